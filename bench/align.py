# SPDX-License-Identifier: Apache-2.0
"""Measures the alignment: clocks found from simulated traffic against the true ones, by clock model."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.simulator import in_mode
from dpu_app.wire.records import MarkerKind
from host_ctl.align.clock import Alignment
from host_ctl.align.markers import Times
from host_ctl.align.solve import align
from host_ctl.ingest.local import learn_local, packed_address
from host_ctl.ingest.naming import find_captures
from host_ctl.ingest.offline import read_capture
from host_ctl.ingest.series import NicSeries
from sim.output.sinks import FrameSink
from sim.planning.clocks import NicClock as TrueClock
from sim.planning.clocks import draw_clock
from sim.scenarios.catalogue import Order, build
from sim.scenarios.presets import DEFAULT_CLUSTER
from sim.simulate import Setting, prepare, run
from sim.spec import ClockSpec, TxStamp, stream

_GRID = 4000
_NEAR_NS = 20_000
_LEAST_ASYMMETRY_NS = 300
_SPEC = ClockSpec(offset_ns=50_000_000, drift_ppm=50.0, jitter_ns=20)

Seen = Callable[[Sequence[NicSeries], int], list[NicSeries]]
"""Changes what was captured, by a seed."""


def _as_seen(series: Sequence[NicSeries], seed: int) -> list[NicSeries]:
    del seed
    return list(series)


def _one_way(series: Sequence[NicSeries], seed: int) -> list[NicSeries]:
    """Only data on its way round the ring: no acknowledgement, no credit."""
    del seed
    kept = []
    for one in series:
        total = one.flows["data_bytes"].astype(np.float64)
        heavy = one.flows["flow"][total > 0.05 * total.max()]
        is_data = ~np.isin(one.markers["kind"], (MarkerKind.ACK, MarkerKind.NAK))
        kept.append(replace(one, markers=one.markers[np.isin(one.markers["flow"], heavy) & is_data]))
    return kept


def _asymmetric(series: Sequence[NicSeries], seed: int) -> list[NicSeries]:
    """Every directed path longer by up to the least asymmetry that is assumed."""
    changed = []
    for one in series:
        own = packed_address(one.addresses[0])
        markers = one.markers.copy()
        for row in one.flows:
            source = row["src"].tobytes()
            if source != own:
                rng = stream(seed, "path", source.hex(), own.hex())
                markers["ns"][markers["flow"] == row["flow"]] += int(rng.integers(0, _LEAST_ASYMMETRY_NS))
        changed.append(replace(one, markers=markers[np.argsort(markers["ns"], kind="stable")]))
    return changed


@dataclass(frozen=True, slots=True)
class ClockModel:
    """One way in which clocks are wrong, and what of the traffic is seen.

    ``stretch`` makes iterations longer, so that drifts have time to wander. ``mode`` is the only
    one, if given.
    """

    name: str
    spec: ClockSpec = _SPEC
    seen: Seen = _as_seen
    stretch: float = 1.0
    mode: str | None = None


MODELS = (
    ClockModel("offset 50 ms, drift 50 ppm"),
    ClockModel("wander 0.1 ppm/sqrt(s), long", replace(_SPEC, wander_ppm=0.1), stretch=40),
    ClockModel("wander 1 ppm/sqrt(s), long", replace(_SPEC, wander_ppm=1.0), stretch=40),
    ClockModel("wander 5 ppm/sqrt(s), long", replace(_SPEC, wander_ppm=5.0), stretch=40),
    ClockModel("steps of 100 us", replace(_SPEC, step_ns=100_000)),
    ClockModel("steps of 10 ms", replace(_SPEC, step_ns=10_000_000)),
    ClockModel("steps of -10 ms", replace(_SPEC, step_ns=-10_000_000), stretch=5),
    ClockModel("steps of 37 s", replace(_SPEC, step_ns=37_000_000_000)),
    ClockModel("steps of -37 s", replace(_SPEC, step_ns=-37_000_000_000)),
    ClockModel(
        "steps of 100 us, 1 ppm wander, long", replace(_SPEC, wander_ppm=1, step_ns=100_000), stretch=40
    ),
    ClockModel("TAI and UTC", replace(_SPEC, tai_share=0.5)),
    ClockModel("software, poll 2 us", replace(_SPEC, poll_ns=2_000), mode="messages"),
    ClockModel("software, poll 30 us", replace(_SPEC, poll_ns=30_000), mode="messages"),
    ClockModel("software, overloaded", replace(_SPEC, poll_ns=30_000), mode="packets"),
    ClockModel("software, noise 10 us", replace(_SPEC, jitter_ns=10_000)),
    ClockModel("sent stamps: copies", replace(_SPEC, tx_stamp=TxStamp.COPY)),
    ClockModel("sent stamps: slow copies", replace(_SPEC, tx_stamp=TxStamp.COPY, copy_delay_ns=8_000)),
    ClockModel("sent stamps: none", replace(_SPEC, tx_stamp=TxStamp.NONE)),
    ClockModel("one-way rings", _SPEC, _one_way),
    ClockModel("paths unequal by up to A", _SPEC, _asymmetric),
    ClockModel("copies, paths unequal by up to A", replace(_SPEC, tx_stamp=TxStamp.COPY), _asymmetric),
)


@dataclass(slots=True)
class Tally:
    """What was measured under one model, over all its runs. Residuals are magnitudes in ns."""

    residuals: list[NDArray[np.float64]] = field(default_factory=list)
    inside: list[NDArray[np.bool_]] = field(default_factory=list)
    violations: int = 0
    true_steps: int = 0
    found_steps: int = 0
    false_steps: int = 0
    between: list[bool] = field(default_factory=list)
    bases: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    uncertainties: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AlignRow:
    """One line of the table; residuals, uncertainty and bound (medians) in microseconds."""

    model: str
    p50_us: float | None
    p99_us: float | None
    max_us: float | None
    inside_percent: float | None
    uncertainty_us: float | None
    bound_us: float | None
    bound_violations: int
    steps: str
    between_inside: str
    basis: str
    seconds: float


def _jobs(quick: bool) -> Iterator[tuple[int, int, str, int]]:
    """Machines, rails, mode and iterations."""
    yield 8, 1, "messages", 20
    yield 8, 1, "packets", 8
    if not quick:
        yield 8, 2, "messages", 20
        yield 16, 1, "messages", 20
        yield 16, 1, "packets", 8
        yield 8, 8, "messages", 12


def _measure(model: ClockModel, job: tuple[int, int, str, int], seed: int, tally: Tally) -> None:
    machines, rails, mode, steps = job
    cluster = replace(DEFAULT_CLUSTER, machines=machines, nics_per_machine=rails)
    scenario = in_mode(build(Order("healthy", seed, cluster, steps=steps)), mode)
    longer = tuple(replace(j, compute_ns=int(j.compute_ns * model.stretch)) for j in scenario.jobs)
    scenario = replace(scenario, clock=model.spec, jobs=longer)
    setting = _within_run(prepare(scenario))
    true = {(n.machine, n.rail): setting.clocks[n.number] for n in setting.world.nics if not n.external}
    with tempfile.TemporaryDirectory(prefix="pulse-bench-") as scratch:
        run(setting, FrameSink(setting, Path(scratch)))
        captures, _ = find_captures([Path(scratch)], {})
        read = [read_capture(files).series for files in captures]
    series = model.seen(learn_local([one for one in read if one is not None])[0], seed)
    begin = time.perf_counter()
    alignment = align(series)
    tally.seconds += time.perf_counter() - begin
    clocks = [true[_place(one)] for one in series]
    tally.bases.update(c.basis for c in alignment.clocks)
    _compare(series, clocks, alignment, tally)


def _within_run(setting: Setting) -> Setting:
    """The setting with clocks whose steps fall into the time that the job really takes."""
    scenario = setting.world.scenario
    if not scenario.clock.step_ns:
        return setting
    end_ns = run(setting, None).end_ns
    clocks = tuple(
        draw_clock(scenario.clock, scenario.seed, nic.machine, nic.rail, setting.epoch_ns, end_ns)
        for nic in setting.world.nics
    )
    return replace(setting, clocks=clocks)


def _place(one: NicSeries) -> tuple[int, int]:
    return int(one.machine.removeprefix("node")), int(one.nic.removeprefix("mlx5_") or 0)


def _shown(clock: TrueClock, true_ns: Times) -> Times:
    """What a true clock shows, int64 ns."""
    t = np.array([p[0] for p in clock.points], dtype=np.int64)
    s = np.array([p[1] for p in clock.points], dtype=np.int64)
    at = np.clip(np.searchsorted(t, true_ns, side="right") - 1, 0, len(t) - 2)
    rate = (s[at + 1] - s[at]) / np.maximum(t[at + 1] - t[at], 1)
    return np.asarray(s[at] + np.rint((true_ns - t[at]) * rate).astype(np.int64))


def _near(stamps: Times, ns: Times) -> NDArray[np.bool_]:
    """Which times lie close to a stamp: only where packets are does an error matter."""
    if not len(stamps):
        return np.zeros(len(ns), np.bool_)
    after = np.minimum(np.searchsorted(stamps, ns), len(stamps) - 1)
    away = np.minimum(np.abs(stamps[after] - ns), np.abs(ns - stamps[np.maximum(after - 1, 0)]))
    return np.asarray(away <= _NEAR_NS)


def _repeated(clock: TrueClock, ns: Times) -> NDArray[np.bool_]:
    """Which times a clock that was set back shows twice: nothing can tell what they mean."""
    out = np.zeros(len(ns), np.bool_)
    for (t0, s0), (t1, s1) in pairwise(clock.points):
        if t0 == t1 and s1 < s0:
            low, high = max(s1, clock.points[0][1]), min(s0, clock.points[-1][1])
            out |= (ns > low - _NEAR_NS) & (ns < high + _NEAR_NS)
    return out


def _compare(
    series: Sequence[NicSeries], clocks: Sequence[TrueClock], alignment: Alignment, tally: Tally
) -> None:
    """Residuals of every clock against the first of its component, where both saw packets."""
    at = np.linspace(0, max(c.points[-1][0] for c in clocks), 8 * _GRID).astype(np.int64)
    shown = [_shown(c, at) for c in clocks]
    near = [
        _near(one.markers["ns"], ns) & ~_repeated(clock, ns)
        for one, clock, ns in zip(series, clocks, shown, strict=True)
    ]
    common = [c.to_common(ns) for c, ns in zip(alignment.clocks, shown, strict=True)]
    firsts: dict[int, int] = {}
    for index, clock in enumerate(alignment.clocks):
        first = firsts.setdefault(clock.component, index)
        if clock.uncertainty_ns is None or first == index:
            continue
        both = near[index] & near[first]
        error = np.abs(common[index] - common[first])[both].astype(np.float64)
        tally.residuals.append(error)
        tally.inside.append(error <= clock.uncertainty_ns)
        tally.uncertainties.append(clock.uncertainty_ns)
        tally.bounds.append(clock.bound_ns or 0.0)
        tally.violations += int((error > (clock.bound_ns or 0.0)).sum())
    _between(near, common, alignment, tally)
    _count_steps(clocks, alignment, at, near, tally)


def _between(
    near: Sequence[NDArray[np.bool_]], common: Sequence[Times], alignment: Alignment, tally: Tally
) -> None:
    """Whether components lie as far apart as they say."""
    firsts: dict[int, int] = {}
    for index, clock in enumerate(alignment.clocks):
        firsts.setdefault(clock.component, index)
    first, *others = firsts.values()
    for index in others:
        here, there = alignment.clocks[index].between, alignment.clocks[first].between
        both = near[index] & near[first]
        if here is not None and there is not None and here.basis == there.basis and both.any():
            apart = (common[index] - common[first])[both] - (here.offset_ns - there.offset_ns)
            tally.between.append(bool(abs(np.median(apart)) <= here.uncertainty_ns + there.uncertainty_ns))


def _count_steps(
    clocks: Sequence[TrueClock],
    alignment: Alignment,
    at: Times,
    near: Sequence[NDArray[np.bool_]],
    tally: Tally,
) -> None:
    """Steps that happened within a capture, and which of them were told with the right size."""
    for true, clock, busy in zip(clocks, alignment.clocks, near, strict=True):
        found = list(clock.steps)
        for (t0, s0), (t1, s1) in pairwise(true.points):
            if t0 != t1 or not (busy[at < t0].any() and busy[at > t0].any()):
                continue
            tally.true_steps += 1
            right = [s for s in found if abs(s.size_ns - (s1 - s0)) <= 0.05 * abs(s1 - s0)]
            if right:
                tally.found_steps += 1
                found.remove(right[0])
        tally.false_steps += len(found)


def measure_model(model: ClockModel, *, quick: bool) -> AlignRow:
    """All runs of one model."""
    tally = Tally()
    for seed in (1,) if quick else (1, 2):
        for job in _jobs(quick):
            if model.mode not in (None, job[2]):
                continue
            _measure(model, job, seed, tally)
    error = np.concatenate(tally.residuals) if tally.residuals else np.empty(0)
    inside = np.concatenate(tally.inside) if tally.inside else np.empty(0)

    def microseconds(value: float) -> float:
        return round(float(value) / 1e3, 3)

    return AlignRow(
        model=model.name,
        p50_us=microseconds(np.percentile(error, 50)) if len(error) else None,
        p99_us=microseconds(np.percentile(error, 99)) if len(error) else None,
        max_us=microseconds(error.max()) if len(error) else None,
        inside_percent=round(100 * float(inside.mean()), 2) if len(error) else None,
        uncertainty_us=microseconds(np.median(tally.uncertainties)) if len(error) else None,
        bound_us=microseconds(np.median(tally.bounds)) if len(error) else None,
        bound_violations=tally.violations,
        steps=f"{tally.found_steps}/{tally.true_steps}" + f" +{tally.false_steps}" * (tally.false_steps > 0),
        between_inside=f"{sum(tally.between)}/{len(tally.between)}",
        basis=" ".join(f"{name}:{count}" for name, count in sorted(tally.bases.items())),
        seconds=round(tally.seconds, 2),
    )


def report_align(*, quick: bool, as_json: bool, write: Callable[[str], None]) -> bool:
    """Write a row per clock model, each as soon as it is measured; whether all bounds held."""
    rows = []
    for model in MODELS:
        rows.append(measure_model(model, quick=quick))
        if not as_json:
            if len(rows) == 1:
                write(" | ".join(asdict(rows[0])) + "\n")
            write(" | ".join("-" if v is None else str(v) for v in asdict(rows[-1]).values()) + "\n")
    if as_json:
        write(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return not any(row.bound_violations for row in rows)
