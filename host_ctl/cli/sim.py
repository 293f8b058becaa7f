# SPDX-License-Identifier: Apache-2.0
"""``pulse sim``: which scenarios there are, what a cluster file looks like, and a run of one scenario."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from dpu_app.meter.metering import MeteringConfig
from host_ctl.cli.output import write
from host_ctl.cli.sim_publish import publish_run, target_of
from host_ctl.errors import OutputError, UsageError
from sim.allowed import ALLOWED
from sim.output.run import OutputForm, write_run
from sim.output.sinks import DpuOptions
from sim.output.truth import Truth
from sim.scenarios.catalogue import CATALOGUE, TWO_FAULTS, Choice, Order, build
from sim.scenarios.cluster_file import ClusterSpec, read_cluster, to_toml
from sim.scenarios.effects import Entry
from sim.scenarios.estimate import capture_bytes, packet_views
from sim.scenarios.preset_jobs import PRESETS
from sim.scenarios.presets import DEFAULT_CLUSTER, NOISES, with_workload
from sim.simulate import prepare
from sim.spec import CaptureKind, Scenario, SimulationError, TxStamp

_PIPED_WIDTH = 160
_SMALL_BYTES = 1 << 30  # captures up to this size are written unless asked otherwise
_FRAME_BYTES_PER_PACKET = 1  # at large scale; measured 0.8
_RESERVE_BYTES = 64 << 20
_INTERVALS_S = (0.01, 60.0)  # as the DPU service takes them

sim_app = typer.Typer(
    help="Simulate training jobs with faults, as packets at every NIC.", no_args_is_help=False
)


class Noise(str, Enum):
    """Kinds of healthy variation."""

    REALISTIC = "realistic"
    IMBALANCE = "imbalance"
    QUIET = "quiet"


@sim_app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    """Simulate training jobs with faults, as packets at every NIC."""
    if context.invoked_subcommand is None:
        raise UsageError("give one of pulse sim list, pulse sim run SCENARIO, pulse sim cluster")


# ---- list


@sim_app.command("list")
def list_scenarios(
    as_json: Annotated[bool, typer.Option("--json", help="Print the lists as JSON.")] = False,
) -> None:
    """List the fault scenarios and the workloads."""
    if as_json:
        scenarios = [_described(entry) for entry in CATALOGUE.values()]
        workloads = [
            {"name": p.name, "text": p.text, "real": p.real, "scale": p.default_scale(DEFAULT_CLUSTER.gpus)}
            for p in PRESETS.values()
        ]
        write(json.dumps({"scenarios": scenarios, "workloads": workloads}, indent=1) + "\n")
        return
    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    console = Console(highlight=False, width=width)
    with console.capture() as capture:
        console.print(_scenario_table())
        console.print(_workload_table())
    write("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n")


def _described(entry: Entry) -> dict[str, Any]:
    allowed = None if entry.kind is None else ALLOWED[entry.kind]
    severity = entry.severity
    return {
        "name": entry.name,
        "row": entry.row,
        "text": entry.text,
        "severity": None
        if severity is None or entry.name == TWO_FAULTS
        else {"meaning": severity.unit, "drawn_from": severity.low, "drawn_to": severity.high},
        "culprit": entry.has_culprit,
        "workloads": list(entry.workloads) or list(PRESETS),
        "allowed": {
            "severities": list(allowed.severities) if allowed else ["none"],
            "causes": list(allowed.causes) if allowed else [],
            "scopes": list(allowed.scopes) if allowed else [],
            "separable": allowed.separable if allowed else False,
        }
        if entry.name != TWO_FAULTS
        else {"of_each": ["gpu_slow", "port_slow"]},
    }


def _verdict(entry: Entry) -> str:
    if entry.name == TWO_FAULTS:
        return "both, each as alone"
    if entry.kind is None:
        return "nothing"
    allowed = ALLOWED[entry.kind]
    severities = " or ".join("nothing" if name == "none" else name for name in allowed.severities)
    who = "machine" if allowed.separable else "no machine"
    return f"{severities}: {', '.join(allowed.causes)} ({who})" if allowed.causes else severities


def _scenario_table() -> Table:
    table = Table("scenario", "row", "what it does", "severity", "allowed verdict", box=None, pad_edge=False)
    for entry in CATALOGUE.values():
        severity = entry.severity
        drawn = (
            ""
            if severity is None or entry.name == TWO_FAULTS
            else f"{severity.low:g} to {severity.high:g}: {severity.unit}"
        )
        table.add_row(entry.name, str(entry.row), entry.text, drawn, _verdict(entry))
    return table


def _workload_table() -> Table:
    table = Table("\nworkload", "\nscale", "\nwhat it does", "\nreal sizes", box=None, pad_edge=False)
    for preset in PRESETS.values():
        scale = preset.default_scale(DEFAULT_CLUSTER.gpus)
        table.add_row(preset.name, str(scale), preset.text, preset.real)
    return table


# ---- cluster


@sim_app.command("cluster")
def print_cluster(
    workload: Annotated[
        str | None, typer.Option(help="Print the jobs of this workload too; see pulse sim list.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the jobs' drawn sizes.")] = 1,
) -> None:
    """Print the default cluster as TOML, to be changed and given to pulse sim run --cluster."""
    with errors():
        cluster = DEFAULT_CLUSTER if workload is None else with_workload(DEFAULT_CLUSTER, workload, seed)
    write(to_toml(cluster))


# ---- run


@sim_app.command("run")
def run_one(
    scenario: Annotated[str, typer.Argument(help="A name of pulse sim list, or two: NAME+NAME.")],
    seed: Annotated[int, typer.Option(help="Everything that is not chosen is drawn from it.")] = 1,
    workload: Annotated[str | None, typer.Option(help="What the job does; see pulse sim list.")] = None,
    cluster: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="The cluster; see pulse sim cluster.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write; default SCENARIO-SEED.")
    ] = None,
    machine: Annotated[
        int | None, typer.Option(help="Machine that the (first) fault hits; drawn otherwise.")
    ] = None,
    nic: Annotated[int | None, typer.Option(help="NIC, or the GPU at it, that the fault hits.")] = None,
    severity: Annotated[
        float | None, typer.Option(help="How strong it is; pulse sim list tells what the number means.")
    ] = None,
    onset: Annotated[
        int | None, typer.Option(metavar="STEP", help="Iteration in which the fault begins.")
    ] = None,
    duration: Annotated[
        int | None, typer.Option(metavar="STEPS", help="Iterations after which it ends; else it stays.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Iterations of each job; default 20.")] = None,
    scale: Annotated[
        float | None, typer.Option(help="Divides bytes and compute times; default by workload.")
    ] = None,
    noise: Annotated[Noise | None, typer.Option(help="Healthy variation of compute.")] = None,
    tx_stamp: Annotated[
        TxStamp | None, typer.Option(help="Where stamps of sent packets come from; none = received only.")
    ] = None,
    capture: Annotated[
        str | None, typer.Option(metavar="all|steered|sampled:K", help="Packets that a tap takes; 1 in K.")
    ] = None,
    perfect_clocks: Annotated[bool, typer.Option("--perfect-clocks", help="No clock error.")] = False,
    counterfactual: Annotated[
        bool, typer.Option(help="Run the seed without its fault too, to know the fault's cost.")
    ] = True,
    form: Annotated[
        OutputForm | None,
        typer.Option("--format", help="What is written per NIC; default pcap up to 1 GB, else frames."),
    ] = None,
    interval: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="A frame for each interval; default 1.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Publish the frames to a controller too.")
    ] = None,
    certs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Certificates of pulse certs; without: plain text.")
    ] = None,
    server_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name in the controller's certificate; default HOST.")
    ] = None,
    pace: Annotated[
        float | None,
        typer.Option(metavar="X", help="Publish X simulated seconds per second; default: as taken."),
    ] = None,
) -> None:
    """Simulate one scenario and write one file per NIC, and what really happened (truth.json, slots.npz)."""
    target = target_of(to, certs, server_name, pace)
    if target is not None or interval is not None:
        if form is OutputForm.PCAP:
            raise UsageError("--to and --interval are for frames: leave --format pcap out")
        form = OutputForm.FRAMES
    with errors():
        choice = Choice(machine, nic, severity, onset, duration)
        made = build(Order(scenario, seed, _cluster(cluster, noise), workload, steps, scale, choice))
        made = _observed(made, tx_stamp, capture, perfect_clocks)
        views, folder = packet_views(made), out or Path(f"{scenario}-{seed}")
        size = capture_bytes(made, views)
        chosen = form or (OutputForm.PCAP if size <= _SMALL_BYTES else OutputForm.FRAMES)
        needed = size if chosen is OutputForm.PCAP else views * _FRAME_BYTES_PER_PACKET
        with fresh_folder(folder, needed), progress_bar(views) as told:
            if target is None:
                sent = ""
                truth = write_run(prepare(made), folder, counterfactual, told, chosen, dpu_options(interval))
            else:
                truth, sent = publish_run(
                    made, folder, counterfactual, told, target, dpu_options(interval), pace
                )
    if chosen is not form and chosen is OutputForm.FRAMES:
        write(f"captures would take {_size(size)}, so frames were written; --format pcap writes captures\n")
    write(sent + summary(folder, truth, chosen))


def dpu_options(interval_s: float | None) -> DpuOptions:
    """What software DPUs are told."""
    if interval_s is None:
        return DpuOptions()
    least, most = _INTERVALS_S
    if not least <= interval_s <= most:
        raise UsageError(f"--interval {interval_s:g}: expected {least:g} to {most:g} seconds")
    return DpuOptions(MeteringConfig(interval_ns=round(interval_s * 1e9)))


@contextmanager
def errors() -> Iterator[None]:
    """What cannot be simulated, or not be written, is the user's to mend."""
    try:
        yield
    except SimulationError as error:
        raise UsageError(str(error)) from error
    except MemoryError as error:
        raise UsageError(
            "the simulation does not fit into memory; give fewer machines, steps or bytes"
        ) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise OutputError(f"{where}the run cannot be written: {error.strerror or error}") from error


def _cluster(file: Path | None, noise: Noise | None) -> ClusterSpec:
    cluster = DEFAULT_CLUSTER if file is None else read_cluster(file, DEFAULT_CLUSTER)
    return cluster if noise is None else replace(cluster, noise=NOISES[noise.value])


def _observed(
    scenario: Scenario, tx_stamp: TxStamp | None, capture: str | None, perfect_clocks: bool
) -> Scenario:
    """The scenario as its taps and clocks are asked to be."""
    clock = scenario.clock
    if perfect_clocks:
        clock = replace(
            clock,
            offset_ns=0,
            drift_ppm=0.0,
            wander_ppm=0.0,
            step_ns=0,
            tai_share=0.0,
            jitter_ns=0,
            poll_ns=0,
        )
    if tx_stamp is not None:
        clock = replace(clock, tx_stamp=tx_stamp)
    taken = scenario.capture
    if capture is not None:
        kind, shift = _capture(capture)
        taken = replace(taken, kind=kind, sample_shift=shift)
    return replace(scenario, clock=clock, capture=taken)


def _capture(text: str) -> tuple[CaptureKind, int]:
    name, colon, number = text.partition(":")
    if not colon and name in (CaptureKind.ALL, CaptureKind.STEERED):
        return CaptureKind(name), 0
    if name == CaptureKind.SAMPLED and number.isdecimal() and len(number) < 8:
        every = int(number)
        if every >= 1 and every & (every - 1) == 0:
            return CaptureKind.SAMPLED, every.bit_length() - 1
    raise UsageError(f"--capture {text}: expected all, steered or sampled:K, K a power of two")


@contextmanager
def fresh_folder(folder: Path, needed_bytes: int) -> Iterator[None]:
    """A folder for a run, gone again when nothing was written; raises first what would fail in its middle."""
    is_new = not folder.exists()
    if not is_new and not folder.is_dir():
        raise UsageError(f"--out {folder}: is no folder")
    if not is_new and any(folder.iterdir()):
        raise UsageError(f"--out {folder}: is not empty; give a new folder, or empty it")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        free, needed = shutil.disk_usage(folder).free, needed_bytes + _RESERVE_BYTES
        if needed > free:
            raise UsageError(
                f"--out {folder}: about {_size(needed)} are needed and {_size(free)} free; give "
                "another folder, fewer --steps, a larger --scale, --capture steered or --format frames"
            )
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):  # what is not empty stays
                folder.rmdir()
        raise


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


@contextmanager
def progress_bar(views: int | None) -> Iterator[Callable[[float], None]]:
    """A bar on a terminal, nothing otherwise; both on stderr, so that stdout holds the result only."""
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    text = "simulating" if views is None else f"about {views / 1e6:.1f} million packets"
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=1.0)
        yield lambda share: progress.update(task, completed=share)


def summary(folder: Path, truth: Truth, form: OutputForm) -> str:
    """What was simulated, and how to go on."""
    lines = []
    for number, job in enumerate(truth.data["jobs"]):
        times = job["iteration_ms"]
        median = sorted(times)[len(times) // 2] if times else 0.0
        lines.append(
            f"job {number}: {job['workload']} on {len(job['nodes'])} machines, {len(times)} iterations "
            f"of {median:.1f} ms (median)\n"
        )
    faults = (truth.data["fault"], truth.data["second_fault"])
    told = [fault for fault in faults if fault is not None and fault["params"]]
    lines += [_fault_line(fault) for fault in told]
    lines += [
        _cost_line(cost) for cost in truth.data.get("cost", ()) if told and cost["slowdown"] is not None
    ]
    files = sum(not nic["external"] for nic in truth.data["nics"])
    what = "captures" if form is OutputForm.PCAP else "frame files"
    # Frames say until when their capture ran; captures end with their last packet.
    stops = any("fail_stop" in fault["allowed"]["severities"] for fault in told)
    until = f" --until {truth.data['capture']['until_ns']}" if stops and form is OutputForm.PCAP else ""
    lines.append(
        f"{folder}: {files} {what}, truth.json, slots.npz; to analyse them: pulse analyze {folder}{until}\n"
    )
    return "".join(lines)


def _cost_line(cost: dict[str, Any]) -> str:
    extra_ms = cost["iteration_ms"] - cost["healthy_ms"]
    return (
        f"cost for job {cost['job']}: {extra_ms:.1f} ms per iteration from the onset on "
        f"({cost['healthy_ms']:.1f} ms without the fault, {cost['slowdown']:.2f}x)\n"
    )


def _fault_line(fault: dict[str, Any]) -> str:
    kind = fault["params"]["kind"]
    where = "no machine is to blame"
    if fault["culprit_node"] is not None:
        where = f"node{fault['culprit_node']}/mlx5_{fault['culprit_rail']}"
    return f"fault {kind}: {where}, from iteration {fault['onset_step']}\n"
