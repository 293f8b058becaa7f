# SPDX-License-Identifier: Apache-2.0
"""What live analysis costs: processor time by stage, once over everything and in looks, and memory."""

from __future__ import annotations

import json
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from host_ctl.ingest.naming import find_captures
from host_ctl.live.analyst import Analyst
from host_ctl.live.clocks import CarriedClocks
from host_ctl.live.decoded import DecodedFrames
from host_ctl.live.intake import Arrived, Intake
from host_ctl.live.look import look_at
from host_ctl.live.recorded import recorded
from host_ctl.live.window import Window
from sim.output.records import iteration_times_ms, records_of
from sim.output.sinks import FrameSink
from sim.planning.world import START_NS
from sim.scenarios.catalogue import Choice, Order, build
from sim.scenarios.presets import DEFAULT_CLUSTER, with_workload
from sim.simulate import prepare, run

NICS = 64
STAGES = ("decode", "join", "align", "reconstruct", "attribute", "diagnose")
_TRAIN_PACKETS = 128
_ONSET = 0.5
_LOADS = ((700_000_000, 24), (110_000_000, 30), (30_000_000, 30))
"""Computing per iteration, ns, and iterations of 69 MB per NIC."""


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One load.

    ``frame_bytes`` are those of a NIC and second, ``stages`` processor seconds per second of traffic, gone
    through once.

    Looks are those that a machine of this speed would have made: the next begins when the last is over.
    ``named_after_s`` is from the fault's begin to the end of the look that names the machine.
    """

    frame_bytes: int
    traffic_s: float
    stages: dict[str, float]
    times_real_time: float
    looks: int
    look_s: float
    longest_look_s: float
    window_s: float
    cut: int
    named_after_s: float | None
    memory_mib: float


def report_live(*, as_json: bool) -> int:
    """Measure every load and print it; return the exit status."""
    rows = [_row(*load) for load in _LOADS]
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    print(f"{NICS} NICs, a frame a second each; processor seconds per second of traffic, gone through once")
    print(f"{'frame':>9} " + " ".join(f"{s:>11}" for s in STAGES) + f" {'all':>7} {'x real time':>12}")
    for row in rows:
        cells = " ".join(f"{row.stages[s]:>11.3f}" for s in STAGES)
        total = sum(row.stages.values())
        print(f"{row.frame_bytes:>9} {cells} {total:>7.2f} {row.times_real_time:>12.2f}")
    heads = f"{'looks':>6} {'look s':>7} {'longest':>8} {'window s':>9} {'cut':>4} {'named s':>7} {'MiB':>7}"
    print(f"\n{'frame':>9} {heads}")
    for row in rows:
        named = "-" if row.named_after_s is None else f"{row.named_after_s:.1f}"
        print(
            f"{row.frame_bytes:>9} {row.looks:>6} {row.look_s:>7.2f} {row.longest_look_s:>8.2f} "
            f"{row.window_s:>9.1f} {row.cut:>4} {named:>7} {row.memory_mib:>7.0f}"
        )
    return 0


def _row(compute_ns: int, steps: int) -> LiveRow:
    """Measure one load; every part in a process of its own, so that memory is that of the part alone."""
    with tempfile.TemporaryDirectory(prefix="pulse-bench-") as scratch:
        folder = Path(scratch)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
            onset_ns = pool.submit(_simulate, compute_ns, steps, folder).result()
            live = pool.submit(_live, folder, onset_ns).result()
            at_once = pool.submit(_at_once, folder).result()
    stages = {stage: seconds / live.traffic_s for stage, seconds in at_once.items()}
    return replace(live, stages=stages, times_real_time=1.0 / sum(stages.values()))


def _session(folder: Path) -> list[Arrived]:
    captures, _ = find_captures([folder], {})
    return recorded(captures)


def _live(folder: Path, onset_ns: int) -> LiveRow:
    """Look as a machine of this speed would have: frames that come during a look wait for the next."""
    session = _session(folder)
    begin_ns, end_ns = session[0].key.begin_ns, session[-1].key.end_ns
    traffic_s = (end_ns - begin_ns) / 1e9
    analyst = Analyst()
    spent: list[float] = []
    windows: list[float] = []
    named_ns: int | None = None
    now_ns = begin_ns
    for arrived in (*session, None):
        if arrived is not None:
            analyst.take(arrived)
            if arrived.key.end_ns < now_ns:
                continue  # a look is under way
        now_ns = end_ns + analyst.limits.deadline_ns if arrived is None else arrived.key.end_ns
        begun_s = time.process_time()
        findings = analyst.look(now_ns)
        if findings is None:
            continue
        spent.append(time.process_time() - begun_s)
        windows.append((findings.end_ns - findings.begin_ns) / 1e9)
        now_ns = min(now_ns, end_ns) + round(spent[-1] * 1e9)
        if named_ns is None and any(v.machine for job in findings.jobs for v in job.verdicts):
            named_ns = now_ns
    return LiveRow(
        frame_bytes=round(sum(a.size for a in session) / NICS / traffic_s),
        traffic_s=traffic_s,
        stages={},
        times_real_time=0.0,
        looks=len(spent),
        look_s=sum(spent) / max(len(spent), 1),
        longest_look_s=max(spent, default=0.0),
        window_s=min(max(windows, default=0.0), traffic_s),
        cut=analyst.counts.cut,
        named_after_s=None if named_ns is None else (named_ns - onset_ns) / 1e9,
        memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _at_once(folder: Path) -> dict[str, float]:
    """Processor seconds by stage of one look at everything."""
    session = _session(folder)
    intake = Intake(most_bytes=1 << 40)
    for arrived in session:
        intake.take(arrived)
    begin_ns, end_ns = session[0].key.begin_ns, session[-1].key.end_ns
    frames = {nic.name: nic.overlapping(begin_ns, end_ns) for nic in intake}
    size = sum(each.size for each in session)
    window = Window(begin_ns, end_ns, frames, size, 0, end_ns - begin_ns, cut=False)
    looked = look_at(window, DecodedFrames(), CarriedClocks())
    return {stage: looked.analysis.seconds[stage] for stage in STAGES}


def _simulate(compute_ns: int, steps: int, folder: Path) -> int:
    """Write the frames of a job; return when its fault begins."""
    cluster = with_workload(DEFAULT_CLUSTER, "dp", 1)
    job = replace(cluster.jobs[0], compute_ns=compute_ns, steps=steps)
    cluster = replace(cluster, jobs=(job,), train_packets=_TRAIN_PACKETS)
    onset = round(steps * _ONSET)
    setting = prepare(build(Order("gpu_slow", 1, cluster, choice=Choice(onset_step=onset))))
    outcome = run(setting, FrameSink(setting, folder))
    times_ms = iteration_times_ms(records_of(outcome), [r.number for r in outcome.world.ranks])
    return setting.epoch_ns + START_NS + round(sum(times_ms[:onset]) * 1e6)
