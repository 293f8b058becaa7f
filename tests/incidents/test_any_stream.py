# SPDX-License-Identifier: Apache-2.0
"""What holds of incidents for any stream of verdicts."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from host_ctl.diagnose.verdict import Cause, Severity, Verdict
from host_ctl.incidents.plain import to_json
from host_ctl.incidents.records import Change
from host_ctl.incidents.tracker import Persistence, Tracker
from host_ctl.live.findings import Findings, JobState
from tests.incidents.made import BEGIN_NS, MACHINES, SECOND, findings, job, verdict

HASTY = Persistence(
    open_looks=2, open_of=3, stop_looks=1, stop_of=2, end_looks=2, end_s=2.0, reopen_s=4.0, gone_s=5.0
)
CAUSES: dict[Severity, tuple[Cause, ...]] = {
    "fail_slow": ("compute_slow", "nic_slow", "link_loss", "congestion", "unknown"),
    "fail_stop": ("hang", "crash", "link_down", "op_mismatch"),
    "notice": ("random_pauses", "stage_imbalance"),
}
ends = st.lists(st.tuples(st.sampled_from(MACHINES), st.none() | st.just("mlx5_0")), max_size=3)


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    """Any verdict that accuses a machine, ends of a link, or nobody."""
    severity = draw(st.sampled_from(sorted(CAUSES)))
    return verdict(
        draw(st.none() | st.sampled_from(MACHINES)),
        draw(st.sampled_from(CAUSES[severity])),
        severity,
        candidates=tuple(draw(ends)),
        confidence=draw(st.sampled_from((0.3, 0.6, 0.9))),
        cost=draw(st.sampled_from((0.0, 5.0, 500.0))),
        onset_ns=draw(st.sampled_from((0, BEGIN_NS, BEGIN_NS + 50 * SECOND))),
    )


@st.composite
def jobs(draw: st.DrawFn) -> JobState:
    """A job in any state."""
    return job(
        *draw(st.lists(verdicts(), max_size=4)),
        key=draw(st.sampled_from(("a", "b"))),
        health=draw(st.sampled_from((None, None, "unsure"))),
    )


@st.composite
def streams(draw: st.DrawFn) -> list[Findings]:
    """Looks at a few jobs with a clock that may be set, in which what was seen before often comes again."""
    drawn = st.tuples(
        st.lists(jobs(), max_size=2), st.integers(1, 4), st.sampled_from((1, 1, 1, 1, 0, -9, 60))
    )
    looks: list[Findings] = []
    at_ns = BEGIN_NS
    for several, repeats, step_s in draw(st.lists(drawn, min_size=3, max_size=12)):
        silent = tuple(draw(st.lists(st.sampled_from([f"{m}/mlx5_0" for m in MACHINES]), max_size=4)))
        for _ in range(repeats):
            at_ns += step_s * SECOND
            looks.append(findings(0, *several, silent=silent, end_ns=at_ns))
    return looks


@given(streams())
@settings(max_examples=30)
def test_at_most_one_is_open_of_an_identity_and_begins_and_ends_alternate(looks: list[Findings]) -> None:
    tracker = Tracker(HASTY)
    state_of: dict[int, str] = {}
    for look in looks:
        for change in tracker.look(look):
            incident = change.incident
            before = state_of.get(incident.number)
            assert (change.kind, before) in {
                ("opened", None), ("reopened", "ended"), ("updated", "open"), ("ended", "open")
            }  # fmt: skip
            assert incident.state == ("ended" if change.kind == "ended" else "open")
            assert incident.started_ns <= incident.opened_ns <= incident.last_seen_ns
            assert incident.ended_ns in (None, incident.last_seen_ns)
            state_of[incident.number] = incident.state
        identities = [incident.identity for incident in tracker.open]
        assert len(identities) == len(set(identities))
        numbers = [incident.number for incident in tracker.open]
        assert sorted(numbers) == sorted(n for n, state in state_of.items() if state == "open")
    assert sorted(state_of) == list(range(1, len(state_of) + 1))


@given(streams(), st.data())
@settings(max_examples=30)
def test_a_restart_at_any_moment_changes_nothing(looks: list[Findings], data: st.DataObject) -> None:
    steady, restarted = Tracker(HASTY), Tracker(HASTY)
    expected: list[Change] = []
    found: list[Change] = []
    for look in looks:
        expected += steady.look(look)
        found += restarted.look(look)
        if data.draw(st.booleans()):
            restarted = Tracker(HASTY, Tracker.restored(json.loads(to_json(restarted.state))))
    assert found == expected
    assert to_json(restarted.state) == to_json(steady.state)


@given(streams())
@settings(max_examples=30)
def test_the_order_of_jobs_and_verdicts_is_of_no_matter(looks: list[Findings]) -> None:
    forward, backward = Tracker(HASTY), Tracker(HASTY)
    for look in looks:
        unique = {each.key: each for each in look.jobs}
        turned = [
            JobState(
                each.key, each.machines, each.nics, each.iterations, each.iteration_ns, each.health,
                tuple(reversed(each.verdicts)),
            )
            for each in reversed(unique.values())
        ]  # fmt: skip
        kept = (look.report, look.silent, look.problems)
        ordered = Findings(look.begin_ns, look.end_ns, look.health, tuple(unique.values()), *kept)
        mirrored = Findings(look.begin_ns, look.end_ns, look.health, tuple(turned), *kept)
        assert forward.look(ordered) == backward.look(mirrored)


@given(st.lists(st.booleans(), max_size=60))
@settings(max_examples=100)
def test_a_verdict_that_flickers_opens_one_incident_at_most(seen: list[bool]) -> None:
    tracker = Tracker(Persistence())
    opened = 0
    for number, there in enumerate(seen):
        opened += sum(
            change.kind == "opened" for change in tracker.look(findings(number, job(*[verdict()] * there)))
        )
    assert opened <= 1
