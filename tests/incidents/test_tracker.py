# SPDX-License-Identifier: Apache-2.0
"""From verdicts to incidents: when one opens, goes on, ends and comes back."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from host_ctl.incidents.records import Change, Incident
from host_ctl.incidents.tracker import Persistence, Tracker
from host_ctl.live.findings import JobState
from tests.incidents.made import BEGIN_NS, QUICK, SECOND, findings, job, verdict

HEALTHY = job()
SLOW = job(verdict())


class Watched:
    """A tracker that is shown one look after the other."""

    def __init__(self, persistence: Persistence = QUICK) -> None:
        self.tracker = Tracker(persistence)
        self.looks = 0
        self.changes: list[Change] = []

    def see(self, *looks: JobState | None, silent: tuple[str, ...] = ()) -> list[str]:
        """Show looks at a job, None for one at nothing; return the kinds of changes."""
        before = len(self.changes)
        for each in looks:
            self.looks += 1
            jobs = () if each is None else (each,)
            self.changes += self.tracker.look(findings(self.looks, *jobs, silent=silent))
        return [change.kind for change in self.changes[before:]]

    @property
    def only(self) -> Incident:
        """The one incident that is open."""
        (found,) = self.tracker.open
        return found


@pytest.fixture
def watched() -> Watched:
    """A tracker that ends incidents soon."""
    return Watched()


def times(count: int, look: JobState | None) -> Iterable[JobState | None]:
    """The same look several times."""
    return [look] * count


def test_an_incident_opens_when_a_verdict_was_there_in_three_of_five_looks(watched: Watched) -> None:
    assert watched.see(SLOW, HEALTHY, SLOW, HEALTHY) == []
    assert watched.see(SLOW) == ["opened"]
    assert watched.see(SLOW, HEALTHY, SLOW) == []
    assert watched.only.started_ns == BEGIN_NS + SECOND - 10 * SECOND
    assert "seen in 3 of 5 looks" in watched.changes[0].text


def test_two_looks_in_a_row_are_enough_when_many_iterations_lie_between(watched: Watched) -> None:
    slow = job(verdict(), iteration_ns=SECOND // 10)
    watched.see(slow)
    watched.looks += 1
    assert watched.see(slow) == ["opened"]


def test_two_looks_with_one_without_it_between_are_not(watched: Watched) -> None:
    for look in (SLOW, HEALTHY, SLOW):
        assert watched.see(look) == []
        watched.looks += 60


def test_a_verdict_that_comes_and_goes_opens_none(watched: Watched) -> None:
    assert watched.see(*[SLOW, HEALTHY, HEALTHY, SLOW, HEALTHY] * 20) == []
    assert watched.see(*times(10, HEALTHY)) == []
    assert watched.tracker.state.tracks == []


def test_a_stop_opens_one_at_the_second_look(watched: Watched) -> None:
    stopped = job(verdict(cause="hang", severity="fail_stop"))
    assert watched.see(stopped, stopped) == ["opened"]


def test_it_ends_when_looks_and_time_have_passed_and_says_when_it_was_last_seen(watched: Watched) -> None:
    watched.see(SLOW, SLOW, SLOW)
    assert watched.see(HEALTHY, HEALTHY) == []
    assert watched.see(HEALTHY) == ["ended"]
    incident = watched.changes[-1].incident
    assert incident.state == "ended"
    assert incident.ended_ns == BEGIN_NS + 3 * SECOND
    assert incident.end_reason == "not seen in 3 looks and 3 s"


def test_it_ends_later_in_a_job_with_long_iterations(watched: Watched) -> None:
    watched.see(SLOW, SLOW, SLOW)
    assert watched.see(*times(19, job(iteration_ns=SECOND))) == []
    assert watched.see(job(iteration_ns=SECOND)) == ["ended"]


def test_unsure_looks_neither_open_nor_end_one(watched: Watched) -> None:
    assert watched.see(*times(10, job(verdict(), health="unsure"))) == []
    watched.see(SLOW, SLOW, SLOW)
    assert watched.see(*times(100, job(health="unsure"))) == []
    assert watched.tracker.open


def test_the_silence_of_the_accused_ends_nothing(watched: Watched) -> None:
    watched.see(SLOW, SLOW, SLOW)
    assert watched.see(*times(100, HEALTHY), silent=("node1/mlx5_0",)) == []
    assert watched.see(*times(3, HEALTHY)) == ["ended"]


def test_a_silent_machine_is_not_accused_of_being_slow_but_of_having_stopped(watched: Watched) -> None:
    silent = ("node1/mlx5_0",)
    assert watched.see(*times(10, SLOW), silent=silent) == []
    stopped = job(verdict(cause="crash", severity="fail_stop"))
    assert watched.see(stopped, stopped, silent=silent) == ["opened"]


def test_a_job_that_has_gone_ends_its_incidents_if_its_nics_are_heard(watched: Watched) -> None:
    watched.see(SLOW, SLOW, SLOW)
    everybody = tuple(f"node{number}/mlx5_0" for number in range(4))
    assert watched.see(*times(100, None), silent=everybody) == []
    assert watched.see(*times(29, None)) == []
    assert watched.see(None) == ["ended"]
    assert "has not been there for 30 s" in watched.changes[-1].text


def test_it_is_opened_again_within_the_time_of_grace_and_a_new_one_after_it(watched: Watched) -> None:
    watched.see(SLOW, SLOW, SLOW, *times(5, HEALTHY))
    assert watched.see(SLOW, SLOW) == []
    assert watched.see(SLOW) == ["reopened"]
    assert (watched.only.number, watched.only.reopened, watched.only.ended_ns) == (1, 1, None)
    watched.see(*times(30, HEALTHY))
    assert watched.see(SLOW, SLOW, SLOW) == ["opened"]
    assert (watched.only.number, watched.only.reopened) == (2, 0)
    assert watched.only.started_ns > BEGIN_NS + 10 * SECOND


def test_another_cause_on_the_same_machine_updates_the_incident(watched: Watched) -> None:
    watched.see(SLOW, SLOW, SLOW)
    assert watched.see(job(verdict(cause="nic_slow", nic="mlx5_0"))) == ["updated"]
    assert watched.changes[-1].text == "cause compute_slow -> nic_slow, nic none -> mlx5_0"
    assert (watched.only.number, watched.only.cause) == (1, "nic_slow")


def test_two_faults_of_one_machine_at_a_time_are_two_incidents(watched: Watched) -> None:
    both = job(verdict(), verdict(cause="nic_slow"))
    assert watched.see(both, both, both) == ["opened", "opened"]
    assert watched.see(both, job(verdict(cause="nic_slow")), both) == []


def test_a_link_of_which_an_end_becomes_clear_stays_one_incident(watched: Watched) -> None:
    ends = (("node1", "mlx5_0"), ("node2", "mlx5_0"))
    link = job(verdict(None, "link_loss", candidates=ends))
    watched.see(link, link, link)
    assert watched.see(job(verdict("node2", "nic_slow", nic="mlx5_0"))) == ["updated"]
    assert (watched.only.number, watched.only.machine) == (1, "node2")


def test_a_slow_machine_at_the_end_of_a_bad_link_is_another_incident(watched: Watched) -> None:
    ends = (("node1", "mlx5_0"), ("node2", "mlx5_0"))
    both = job(verdict(None, "link_loss", candidates=ends), verdict("node1"))
    assert watched.see(both, both, both) == ["opened", "opened"]


def test_patterns_of_a_job_are_incidents_of_their_own(watched: Watched) -> None:
    notices = job(
        verdict(None, "random_pauses", "notice"), verdict(None, "stage_imbalance", "notice"), health="ok"
    )
    assert watched.see(notices, notices, notices) == ["opened", "opened"]


def test_a_stopped_job_has_one_stop_whoever_is_to_blame(watched: Watched) -> None:
    def stopped(machine: str) -> JobState:
        return job(verdict(machine, "hang", "fail_stop"))

    watched.see(stopped("node1"), stopped("node1"))
    assert watched.see(stopped("node2")) == ["updated"]
    assert watched.only.machine == "node2"


def test_the_cost_adds_up_over_looks_that_overlap(watched: Watched) -> None:
    # Ten GPU seconds are lost in each ten seconds: one per second.
    watched.see(*times(103, SLOW))
    assert watched.only.lost_gpu_seconds == pytest.approx(10 + 100)
    grown = [change.text for change in watched.changes if change.kind == "updated"]
    assert grown == ["lost GPU seconds 10 -> 70"]


def test_a_clock_that_is_set_ends_nothing_by_itself(watched: Watched) -> None:
    watched.see(SLOW, SLOW, SLOW)
    watched.looks += 1_000_000
    assert watched.see(HEALTHY) == []
    watched.looks -= 2_000_000
    assert watched.see(HEALTHY, SLOW) == []
    assert watched.only.last_seen_ns >= watched.only.opened_ns


def test_somebody_may_end_one_and_it_comes_back_when_it_is_still_there(watched: Watched) -> None:
    watched.see(SLOW, SLOW, SLOW)
    change = watched.tracker.end(1, BEGIN_NS + 4 * SECOND, "replaced the GPU")
    assert change is not None
    assert change.incident.end_reason == "replaced the GPU"
    assert watched.tracker.end(1, BEGIN_NS, "again") is None
    assert watched.see(SLOW, SLOW, SLOW) == ["reopened"]


def test_many_jobs_that_come_and_go_leave_nothing_behind(watched: Watched) -> None:
    for number in range(400):
        watched.see(job(verdict(), key=f"job-{number}"))
    assert len(watched.tracker.state.tracks) <= QUICK.open_of
