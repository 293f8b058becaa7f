# SPDX-License-Identifier: Apache-2.0
"""Clocks that are no straight line: drifts that wander, clocks that are set, stamps late or missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpu_app.wire.frame import ClockInfo
from host_ctl.align.clock import Alignment
from host_ctl.align.solve import align
from host_ctl.ingest.local import learn_local
from host_ctl.ingest.naming import find_captures
from host_ctl.ingest.offline import read_capture
from host_ctl.ingest.series import NicSeries
from host_ctl.pipeline import analyze_paths
from sim.output.run import OutputForm, run_scenario
from sim.scenarios.lab import build
from sim.simulate import prepare
from sim.spec import ClockSpec, JobSpec, Scenario, TxStamp
from tests.host_ctl.made import EPOCH_NS, Clocks, both_ways, captured

SPAN_NS = 2_000_000_000
Times = NDArray[np.int64]


@dataclass(frozen=True)
class SetClocks(Clocks):
    """Clocks of which one is set, in the midst of the run."""

    nic: int = 1
    at_ns: int = SPAN_NS // 2
    size_ns: int = 0

    def stamp(self, nic: int, since_epoch_ns: Times) -> Times:
        shown = super().stamp(nic, since_epoch_ns)
        return shown + self.size_ns * (since_epoch_ns >= self.at_ns) if nic == self.nic else shown


@dataclass(frozen=True)
class WavyClocks(Clocks):
    """Clocks whose drift swings, each at its own pace."""

    swing_ns: float = 50_000.0
    period_ns: float = 8e9

    def stamp(self, nic: int, since_epoch_ns: Times) -> Times:
        phase = 2 * np.pi * since_epoch_ns / self.period_ns / (1 + 0.3 * nic)
        return super().stamp(nic, since_epoch_ns) + np.rint(self.swing_ns * np.sin(phase + nic)).astype(
            np.int64
        )


def straight(n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    rng = np.random.default_rng(n)
    return rng.integers(-50_000_000, 50_000_000, n), rng.uniform(-50, 50, n)


def residual(clocks: Clocks, alignment: Alignment, nic: int, at: Times) -> float:
    """The largest error of a NIC against the first one at these true times."""
    common = alignment.clocks[nic].to_common(clocks.stamp(nic, at))
    return float(np.abs(common - alignment.clocks[0].to_common(clocks.stamp(0, at))).max())


@settings(max_examples=12)
@given(
    st.integers(3, 5),
    st.sampled_from([60_000, -60_000, 100_000, 10_000_000, 37_000_000_000, -37_000_000_000]),
    st.floats(0.3, 0.7),
    st.integers(0, 2**31),
)
def test_a_clock_that_was_set_is_found_and_followed(n: int, size: int, share: float, seed: int) -> None:
    at = int(share * SPAN_NS)
    clocks = SetClocks(*straight(n), nic=n - 1, at_ns=at, size_ns=size)
    seen = captured(clocks, both_ways(n, 4000), seed=seed, span_ns=SPAN_NS, packets=3000)
    alignment = align(seen)
    (step,) = alignment.clocks[n - 1].steps
    assert step.size_ns == pytest.approx(size, abs=2000)
    assert step.at_ns == pytest.approx(clocks.stamp(n - 1, np.array([at - 1]))[0], abs=20_000_000)
    assert sum(len(c.steps) for c in alignment.clocks) == 1
    assert any(f"node{n - 1} was set by" in text for text in alignment.warnings)
    steady = np.linspace(0, SPAN_NS, 400).astype(np.int64)
    steady = steady[np.abs(steady - at) > 20_000_000]
    for nic in range(1, n):
        assert residual(clocks, alignment, nic, steady) <= 1000


def test_a_clock_set_back_a_little_is_right_where_its_times_do_not_repeat() -> None:
    clocks = SetClocks(*straight(4), nic=2, size_ns=-10_000_000)
    alignment = align(captured(clocks, both_ways(4, 4000), seed=3, span_ns=SPAN_NS, packets=3000))
    assert [round(s.size_ns / 1e3) for s in alignment.clocks[2].steps] == [-10_000]
    steady = np.linspace(0, SPAN_NS, 400).astype(np.int64)
    steady = steady[np.abs(steady - clocks.at_ns) > 30_000_000]
    assert residual(clocks, alignment, 2, steady) <= 1000


def test_a_queue_that_comes_and_stays_is_no_step() -> None:
    clocks = Clocks(*straight(4))
    seen = captured(clocks, both_ways(4, 4000), seed=5, span_ns=SPAN_NS, packets=3000)
    for index in range(len(seen[1].flows)):  # all that comes to the second NIC waits from half time on
        if seen[1].flows["dst"][index].tobytes()[-1] == 2:
            late = seen[1].markers["flow"] == seen[1].flows["flow"][index]
            late &= seen[1].markers["ns"] > EPOCH_NS + SPAN_NS // 2 + clocks.offset_ns[1]
            seen[1].markers["ns"][late] += 300_000
    alignment = align(seen)
    assert not any(c.steps for c in alignment.clocks)
    assert not any("was set" in text for text in alignment.warnings)
    assert residual(clocks, alignment, 1, np.linspace(0, SPAN_NS, 50).astype(np.int64)) <= 1000


def test_queues_that_come_one_way_as_they_go_the_other_are_no_step() -> None:
    clocks = Clocks(*straight(4))
    seen = captured(clocks, both_ways(4, 4000), seed=7, span_ns=SPAN_NS, packets=3000)
    turn = EPOCH_NS + SPAN_NS // 2
    for nic, one in enumerate(seen):
        for index in range(len(one.flows)):
            mine = one.markers["flow"] == one.flows["flow"][index]
            if nic == 1 and one.flows["dst"][index].tobytes()[-1] == 2:  # to it: late from half time on
                late = mine & (one.markers["ns"] > turn + clocks.offset_ns[1])
            elif nic != 1 and one.flows["src"][index].tobytes()[-1] == 2:  # from it: late until then
                late = mine & (one.markers["ns"] < turn + clocks.offset_ns[nic])
            else:
                continue
            one.markers["ns"][late] += 300_000
    alignment = align(seen)
    assert not any(c.steps for c in alignment.clocks)


def test_a_busy_job_on_slow_links_shows_no_steps(tmp_path: Path) -> None:
    truth = run_scenario(build("slow_compute-dp-on_entry", 1), tmp_path)
    analysis = analyze_paths([tmp_path], until_ns=truth.data["capture"]["end_ns"])
    assert not any("was set" in text for text in analysis.warnings)


@pytest.mark.parametrize("edges", [both_ways(4, 4000), {(i, (i + 1) % 4): 4000 for i in range(4)}])
def test_a_drift_that_wanders_is_followed(edges: dict[tuple[int, int], int]) -> None:
    clocks = WavyClocks(*straight(4))
    span = 10_000_000_000
    alignment = align(captured(clocks, edges, seed=6, span_ns=span, packets=6000))
    at = np.linspace(0, span, 200).astype(np.int64)
    for nic in range(1, 4):
        clock = alignment.clocks[nic]
        assert len(clock.pieces) > 4
        assert not clock.steps
        error = residual(clocks, alignment, nic, at)
        assert error <= 2500
        assert error <= (clock.bound_ns or 0)


def test_a_steady_clock_stays_one_line() -> None:
    alignment = align(captured(Clocks(*straight(5)), both_ways(5, 4000), seed=8, span_ns=SPAN_NS))
    assert not any(c.pieces or c.steps for c in alignment.clocks)
    assert alignment.warnings == ()


@settings(max_examples=20)
@given(st.data())
def test_the_bound_holds_for_all_clocks_and_topologies(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 6))
    kind = data.draw(st.sampled_from([Clocks, WavyClocks, SetClocks]))
    clocks = kind(*straight(n))
    if isinstance(clocks, SetClocks):
        clocks = replace(clocks, size_ns=data.draw(st.sampled_from([200_000, 37_000_000_000])))
    ring = {(i, (i + 1) % n): 0 for i in range(n)}
    more = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    chosen = [*ring, *data.draw(st.lists(more, max_size=2 * n))]
    edges = {pair: data.draw(st.integers(1_000, 30_000)) for pair in chosen}
    seed = data.draw(st.integers(0, 2**31))
    alignment = align(captured(clocks, edges, seed=seed, span_ns=SPAN_NS, packets=1000))
    at = np.linspace(0, SPAN_NS, 200).astype(np.int64)
    at = at[np.abs(at - SPAN_NS // 2) > 30_000_000]
    for nic in range(1, n):
        # What queueing hides of the least delays, at the ends of the capture more than inside.
        assert residual(clocks, alignment, nic, at) <= (alignment.clocks[nic].bound_ns or 0) + 500


def test_tai_and_utc_in_one_component_are_thirty_seven_seconds_apart() -> None:
    offsets, drifts = straight(4)
    clocks = Clocks(offsets + np.array([0, 37, 0, 37]) * 10**9, drifts)
    alignment = align(captured(clocks, both_ways(4, 4000), seed=2, span_ns=SPAN_NS))
    at = np.linspace(0, SPAN_NS, 50).astype(np.int64)
    assert max(residual(clocks, alignment, nic, at) for nic in range(1, 4)) <= 1000
    assert alignment.warnings == ()


def simulated(folder: Path, clock: ClockSpec, rails: int = 1) -> tuple[list[NicSeries], Scenario]:
    job = JobSpec((0, 1, 2, 3), steps=12, collective_bytes=1 << 19, compute_ns=8_000_000)
    scenario = Scenario("clocks", 3, 4, (job,), nics_per_machine=rails, clock=clock)
    run_scenario(scenario, folder, form=OutputForm.FRAMES)
    read = [read_capture(files).series for files in find_captures([folder], {})[0]]
    return learn_local([one for one in read if one is not None])[0], scenario


@pytest.mark.parametrize("sent", [TxStamp.NONE, TxStamp.COPY])
def test_without_good_stamps_of_sending_receipts_of_data_and_acknowledgements_align(
    sent: TxStamp, tmp_path: Path
) -> None:
    spec = ClockSpec(offset_ns=50_000_000, drift_ppm=50.0, jitter_ns=20, tx_stamp=sent, copy_delay_ns=20_000)
    series, scenario = simulated(tmp_path, spec)
    true = prepare(scenario).clocks
    clocks = align(series).clocks
    assert {c.basis for c in clocks} == {"measured"}
    for at in range(20_000_000, 100_000_000, 7_000_000):
        common = [int(c.to_common(np.array([t.show(at)]))[0]) for c, t in zip(clocks, true, strict=True)]
        for clock, shown in zip(clocks[1:], common[1:], strict=True):
            assert abs(shown - common[0]) <= (clock.uncertainty_ns or 0)


def test_rails_that_never_meet_know_from_clock_pairs_how_far_they_are_apart(tmp_path: Path) -> None:
    series, scenario = simulated(tmp_path, ClockSpec(offset_ns=50_000_000, drift_ppm=20.0), rails=2)
    true = prepare(scenario).clocks
    clocks = align(series).clocks
    a, b = clocks[0], next(c for c in clocks if c.component != clocks[0].component)
    assert a.between is not None
    assert b.between is not None
    assert a.between.basis == b.between.basis == "coarse"
    other = clocks.index(b)
    apart = [int(c.to_common(np.array([t.show(50_000_000)]))[0]) for c, t in ((a, true[0]), (b, true[other]))]
    error = abs((apart[1] - apart[0]) - (b.between.offset_ns - a.between.offset_ns))
    assert error <= a.between.uncertainty_ns + b.between.uncertainty_ns
    assert 50_000 <= a.between.uncertainty_ns <= 500_000


def claiming(series: list[NicSeries], error_ns: int) -> list[NicSeries]:
    return [replace(one, clock=ClockInfo("ptp", error_ns)) for one in series]


def test_a_claim_of_ptp_counts_before_clock_pairs_and_moves_no_time() -> None:
    edges = {(0, 1): 4000, (1, 0): 4000, (2, 3): 4000, (3, 2): 4000}
    clocks = Clocks(np.array([0, 40, -30, 60]), np.zeros(4))
    seen = captured(clocks, edges, seed=2, span_ns=SPAN_NS)
    told = align(claiming(seen, 100))
    assert [c.between.basis for c in told.clocks if c.between] == ["ptp"] * 4
    assert all(c.between and c.between.uncertainty_ns <= 1000 for c in told.clocks)
    plain = align(seen)
    assert [replace(c, between=None) for c in told.clocks] == list(plain.clocks)


def test_a_claim_of_ptp_that_packets_disprove_is_told_and_not_used() -> None:
    clocks = Clocks(np.array([0, 0, 5_000_000]), np.zeros(3))
    told = align(claiming(captured(clocks, both_ways(3, 4000), seed=2, span_ns=SPAN_NS), 100))
    assert not any(c.between for c in told.clocks)
    assert any("node2 claims PTP time" in text for text in told.warnings)
