# SPDX-License-Identifier: Apache-2.0
"""What a job would have lasted without a delay: the native replay against a naive one, and on made jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_ctl.ingest.series import Table
from host_ctl.reconstruct.repairs import REPAIR, LossPlace
from pulse_native import replay
from tests.host_ctl.made import table
from tests.host_ctl.made_jobs import (
    CUT,
    HAND_ON_NS,
    MESSAGE,
    MISSING,
    MS,
    NOTHING,
    US,
    Attributed,
    attributed,
    grid,
    no_time,
    ring,
)

LATE = 3 * MS
ONSET, ITERATIONS = 6, 12
STEPS = ("host", "credit", "transfer")


@dataclass(frozen=True, slots=True)
class Net:
    """Messages in order of their start, each waiting for some before it, and cuts of them."""

    messages: Table
    cuts: Table
    hosts: int

    def arrivals(self, cuts: Table | None = None) -> np.ndarray:
        """When everything arrives by the native replay."""
        order = np.argsort(self.messages["start"], kind="stable")
        return np.asarray(replay(self.messages, self.cuts if cuts is None else cuts, order, self.hosts))

    @property
    def observed(self) -> np.ndarray:
        """When everything did arrive."""
        return np.asarray(self.messages["start"] + self.messages["transfer"])


@st.composite
def nets(draw: st.DrawFn) -> Net:
    """Small nets of waits; what was waited for may seem to have come too late, as by a clock that is off."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count, hosts = draw(st.integers(0, 25)), draw(st.integers(1, 4))
    messages, cuts = np.zeros(count, MESSAGE), np.zeros(count, CUT)
    messages["start"] = np.sort(rng.integers(0, 1000, count))
    for name, high in (
        ("input_lag", 60),
        ("before_lag", 60),
        ("compute_lag", 90),
        ("credit_way", 20),
        ("transfer", 80),
    ):
        messages[name] = rng.integers(0, high, count)
    messages["sending"] = rng.integers(0, messages["transfer"] + 1)
    messages["grant_is_send"] = rng.integers(0, 2, count)
    messages["sender"], messages["receiver"] = rng.integers(0, hosts, (2, count))
    for name in ("input_row", "before_row", "grant_row", "compute_row"):
        messages[name] = [rng.integers(-1, row) if row else NOTHING for row in range(count)]
        messages[name][rng.random(count) < 0.3] = NOTHING
    posted = messages["start"] - rng.integers(0, 100, count)
    messages["posted"] = np.where(rng.random(count) < 0.5, posted, MISSING)
    for name in STEPS:
        cuts[name] = np.where(rng.random(count) < 0.4, rng.integers(0, 100, count), 0)
    return Net(messages, cuts, hosts)


def naive(net: Net) -> list[int]:
    """The arrivals by going from message to message in absolute times, one dictionary per message."""
    done: list[dict[str, int]] = []
    earlier = [0] * net.hosts  # by how much the last message of each host came earlier
    for message, cut in zip(net.messages, net.cuts, strict=True):
        m = {name: int(message[name]) for name in MESSAGE.names or ()}
        waits = []
        if m["input_row"] != NOTHING:
            source = done[m["input_row"]]
            waits.append((source["arrived"] + m["input_lag"], source["arrives"] + m["input_lag"]))
        if m["before_row"] != NOTHING:
            source = done[m["before_row"]]
            waits.append((source["left"] + m["before_lag"], source["leaves"] + m["before_lag"]))
        if m["compute_row"] != NOTHING:
            source = done[m["compute_row"]]
            waits.append((source["began"] + m["compute_lag"], source["begins"] + m["compute_lag"]))
        if m["posted"] != MISSING:
            known = m["posted"] + m["credit_way"]
            if all(known >= observed for observed, _ in waits):
                if m["grant_row"] == NOTHING:
                    moved = earlier[m["receiver"]]
                else:
                    source = done[m["grant_row"]]
                    was, is_now = ("began", "begins") if m["grant_is_send"] else ("arrived", "arrives")
                    moved = source[was] - source[is_now]
                waits.append((known, known - moved - int(cut["credit"])))
        if waits:
            observed, now = (max(times) for times in zip(*waits, strict=True))
            own = max(0, m["start"] - observed)
            begins = m["start"] - (observed - now) - min(own, int(cut["host"]))
        else:
            begins = m["start"] - earlier[m["sender"]] - int(cut["host"])
        way = max(0, m["transfer"] - int(cut["transfer"]))
        leaving = max(0, m["sending"] - int(cut["transfer"]))
        earlier[m["sender"]] = m["start"] - begins
        done.append(
            {
                "began": m["start"],
                "begins": begins,
                "left": m["start"] + m["sending"],
                "leaves": begins + leaving,
                "arrived": m["start"] + m["transfer"],
                "arrives": begins + way,
            }
        )
    return [one["arrives"] for one in done]


@settings(max_examples=300)
@given(nets())
def test_the_native_replay_agrees_with_a_naive_one(net: Net) -> None:
    assert net.arrivals().tolist() == naive(net)


@given(nets())
def test_nothing_cut_gives_the_observed_arrivals(net: Net) -> None:
    assert (net.arrivals(np.zeros_like(net.cuts)) == net.observed).all()


@given(nets(), st.integers(0, 2**32))
def test_no_message_comes_later_when_more_is_cut(net: Net, seed: int) -> None:
    rng = np.random.default_rng(seed)
    more = net.cuts.copy()
    for name in STEPS:
        more[name] += rng.integers(0, 50, len(more))
    assert (net.arrivals() <= net.observed).all()
    assert (net.arrivals(more) <= net.arrivals()).all()


@given(nets())
def test_no_message_gains_more_than_all_that_is_cut(net: Net) -> None:
    cut = sum(int(net.cuts[name].sum()) for name in STEPS)
    assert (net.observed - net.arrivals() <= cut).all()


@given(nets(), st.integers(-(10**15), 10**15))
def test_a_replay_does_not_depend_on_when_the_job_ran(net: Net, shift: int) -> None:
    moved = net.messages.copy()
    moved["start"] += shift
    moved["posted"][moved["posted"] != MISSING] += shift
    assert (Net(moved, net.cuts, net.hosts).arrivals() == net.arrivals() + shift).all()


@given(nets(), st.data())
def test_what_comes_before_a_cut_does_not_change(net: Net, data: st.DataObject) -> None:
    cuts = net.cuts.copy()
    first = data.draw(st.integers(0, len(cuts)))
    cuts[:first] = np.zeros(1, CUT)
    assert (net.arrivals(cuts)[:first] == net.observed[:first]).all()


@pytest.mark.parametrize("name", ["cuts", "order", "hosts", "row"])
def test_what_does_not_fit_together_is_refused(name: str) -> None:
    messages, cuts = np.zeros(3, MESSAGE), np.zeros(3, CUT)
    messages["input_row"] = messages["before_row"] = messages["grant_row"] = NOTHING
    order, hosts = np.arange(3), 1
    if name == "cuts":
        cuts = cuts[:2]
    elif name == "order":
        order = order + 1
    elif name == "hosts":
        hosts = 0
    else:
        messages["grant_row"][1] = 3
    with pytest.raises(ValueError, match="one cut per message"):
        replay(messages, cuts, order, hosts)


def varied(k: int, i: int) -> int:
    """Computing times that differ by up to 13 us, the same in every run."""
    return (k * 7919 + i * 104_729) % 13 * US


def late_members(*members: int) -> Attributed:
    """A ring of four in which some members compute 3 ms longer from an onset on."""
    return attributed(
        ring(4, ITERATIONS, late=lambda k, i: varied(k, i) + LATE * (i in members and k >= ONSET))
    )


def test_without_cuts_nothing_is_saved() -> None:
    job = late_members(2).replay
    assert not job.saved_ns().any()
    assert not job.saved_ns(job.nothing()).any()


def test_a_late_host_is_worth_its_lateness_in_the_iterations_in_which_it_is_late() -> None:
    job = late_members(2).replay
    (saved,) = job.saved_ns(job.hosts([2]))
    assert not saved[:ONSET].any()
    assert saved[ONSET:] == pytest.approx(LATE, rel=0.01)


def test_hosts_that_only_wait_for_a_late_one_are_worth_nothing() -> None:
    job = late_members(2).replay
    (saved,) = job.saved_ns(job.hosts([0, 1, 3]))
    assert np.abs(saved).max() < 20 * US


def test_two_hosts_that_are_equally_late_hide_each_other_and_save_together() -> None:
    job = late_members(1, 3).replay
    for one in (1, 3):
        (alone,) = job.saved_ns(job.hosts([one]))
        assert np.abs(alone).max() < 20 * US
    (both,) = job.saved_ns(job.hosts([1]), job.hosts([3]))
    assert both[ONSET:] == pytest.approx(LATE, rel=0.01)
    assert (both == job.saved_ns(job.hosts([1, 3]))[0]).all()


def test_of_two_late_hosts_the_later_is_worth_what_it_is_later() -> None:
    more = {1: LATE, 3: LATE + MS}
    job = attributed(ring(4, ITERATIONS, late=lambda k, i: more.get(i, 0) * (k >= ONSET))).replay
    (saved,) = job.saved_ns(job.hosts([3]))
    assert saved[ONSET:] == pytest.approx(MS, rel=0.01)


def test_slow_messages_are_worth_what_their_lane_needs_longer() -> None:
    slow = 50 * US
    job = attributed(ring(4, ITERATIONS, slow=lambda k, i: slow * (i == 2 and k >= ONSET))).replay
    (saved,) = job.saved_ns(job.transfers(job.src == 2))
    # Six messages of an iteration follow each other; handing on took its time beside the slow ones.
    assert (saved[ONSET:] == 6 * slow - 5 * HAND_ON_NS).all()
    assert (saved == job.saved_ns(job.transfers(job.dst == 3))[0]).all()
    assert not job.saved_ns(job.hosts([0, 1, 2, 3])).any()


def test_late_credits_are_worth_their_lateness_to_whom_they_hold_up() -> None:
    job = attributed(ring(4, ITERATIONS, held=lambda k, i: LATE * (i == 2 and k >= ONSET))).replay
    (saved,) = job.saved_ns(job.hosts([2]))
    assert saved[ONSET:] == pytest.approx(LATE, rel=0.01)
    assert not job.saved_ns(job.hosts([1])).any()


def test_credits_granted_on_entering_are_late_with_their_host() -> None:
    """Both a late member and the one before it start late; only one of them is worth anything."""
    traffic = ring(4, ITERATIONS, late=lambda k, i: LATE * (i == 2 and k >= ONSET), held=lambda k, i: 1)
    job = attributed(traffic).replay
    (saved,) = job.saved_ns(job.hosts([2]))
    assert saved[ONSET:] == pytest.approx(LATE, rel=0.01)
    assert job.saved_ns(job.hosts([0, 1, 3])).max() < 20 * US


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    members=st.integers(3, 5),
    credits_held=st.booleans(),
    channels=st.integers(1, 2),
)
def test_in_any_ring_more_cuts_never_save_less_over_the_run(
    seed: int, members: int, credits_held: bool, channels: int
) -> None:
    rng = np.random.default_rng(seed)
    late, slow, held = (rng.integers(0, high, (8, members)) for high in (MS, 30 * US, 100 * US))
    traffic = ring(
        members,
        8,
        late=lambda k, i: int(late[k, i]),
        slow=lambda k, i: int(slow[k, i]),
        held=(lambda k, i: int(held[k, i])) if credits_held else no_time,
        channels=channels,
    )
    job = attributed(traffic).replay
    assert not job.saved_ns(job.nothing()).any()
    cuts: list[Table] = []
    before = 0
    for member in rng.permutation(members).tolist():
        for cut in (job.hosts([member]), job.transfers(job.src == member)):
            cuts.append(cut)
            total = int(job.saved_ns(*cuts).sum())
            alone = int(job.saved_ns(cut).sum())
            assert 0 <= alone <= total
            assert before <= total <= sum(int(c[name].sum()) for c in cuts for name in STEPS)
            before = total
    assert before < np.ptp(job.start_ns)


def test_cuts_of_one_message_count_once() -> None:
    job = late_members(2).replay
    once = job.saved_ns(job.hosts([2]))
    assert (job.saved_ns(job.hosts([2]), job.hosts([2]), job.hosts([2])) == once).all()


def test_rings_on_clocks_that_nothing_relates_end_their_iterations_apart() -> None:
    made = ring(4, ITERATIONS, late=lambda k, i: LATE * (i == 2 and k >= ONSET))
    clocks = tuple(replace(clock, component=n // 2) for n, clock in enumerate(made.clocks))
    job = attributed(replace(made, clocks=clocks)).replay
    assert job.saved_ns().shape == (2, ITERATIONS)
    assert set(job.clock[job.src < 2]) == {0}
    assert set(job.clock[job.src >= 2]) == {1}
    assert job.clocks_of(job.hosts([2])).tolist() == [1]
    assert job.clocks_of(job.nothing()).tolist() == []


def test_what_was_repeated_is_cut_as_repair_and_not_as_a_hosts_or_a_slow_one() -> None:
    made = ring(4, ITERATIONS, slow=lambda k, i: 400 * US * (i == 1 and k == 7))
    t = made.transfers
    slow = np.flatnonzero((t["link"] == 1) & (t["rx_end"] - t["tx_start"] > 300 * US))
    repairs = table(
        REPAIR,
        len(slow),
        start=t["tx_start"][slow],
        end=t["rx_end"][slow],
        row=slow,
        last_row=slow,
        link=1,
        packets=1,
        repeated=1,
        place=LossPlace.BETWEEN_TAPS,
    )
    job = attributed(made, repairs).replay
    assert job.repaired.sum() == len(slow)
    assert not job.transfers(job.src == 1)["transfer"].any()
    assert not job.hosts([1])["host"][job.repaired].any()
    (saved,) = job.saved_ns(job.repairs())
    assert np.flatnonzero(saved > 300 * US).tolist() == [7]


def test_what_waits_behind_a_slow_message_is_no_late_host() -> None:
    job = grid([(0, 1), (1, 0)], 3)
    job.excess["host"][:] = 5
    job.excess["transfer"][:] = 7
    behind = np.zeros(len(job.src), dtype=bool)
    behind[[3, 4]] = True
    job = replace(job, behind_slow=behind)
    assert not job.hosts([0])["host"][behind].any()
    sent = job.transfers(job.src == 0)
    assert (sent["host"] > 0).tolist() == behind.tolist()
    assert (sent["transfer"] == np.where(job.src == 0, 7, 0)).all()


def test_a_host_is_cut_in_what_it_sends_and_in_what_it_grants() -> None:
    job = grid([(0, 1), (1, 2), (2, 0)], 3)
    job.excess["host"][:] = 5
    job.excess["credit"][:] = 9
    cuts = job.hosts([1])
    assert (cuts["host"] == np.where(job.src == 1, 5, 0)).all()
    assert (cuts["credit"] == np.where(job.dst == 1, 9, 0)).all()
    assert not cuts["transfer"].any()


def test_nothing_waits_for_what_was_sent_later() -> None:
    """One iteration in which a member seems to hand on what was sent to it only later, as losses show it."""
    made = ring(3, 60)
    t = made.transfers.copy()
    odd = np.flatnonzero(t["link"] == 1)[30 * 4 + 1 : 31 * 4]
    for name in ("tx_start", "rx_start", "tx_end", "rx_end"):
        t[name][odd] -= 150 * US
    one = attributed(replace(made, transfers=t))
    inputs = np.concatenate([gate.input_row for gate in one.gates])
    rows = np.concatenate([lane.rows for lane in one.program.lanes])
    assert (t["tx_start"][inputs] >= t["tx_start"][rows])[inputs != NOTHING].any()
    starts, waits = one.replay.start_ns, one.replay._messages["input_row"]
    assert (starts[waits] < starts)[waits != NOTHING].all()
    assert not one.replay.saved_ns(one.replay.nothing()).any()
