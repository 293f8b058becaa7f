# SPDX-License-Identifier: Apache-2.0
"""``pulse sim replay``: recorded jobs; ``pulse sim live``: packets on network devices in scaled real time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from host_ctl.cli.output import write
from host_ctl.cli.sim import errors, fresh_folder, progress_bar, summary
from host_ctl.errors import UsageError
from sim.live.run import LiveDevice, LiveRun, live_truth, run_live
from sim.output.run import OutputForm, write_run
from sim.replay.model import MODELS, Scaling, layout_of
from sim.replay.run import Replay, prepare_replay
from sim.replay.trace_file import load_trace
from sim.scenarios.catalogue import Choice, Order, build
from sim.scenarios.cluster_file import read_cluster
from sim.scenarios.presets import DEFAULT_CLUSTER


class Model(str, Enum):
    """Stated model configurations that bytes are taken from."""

    AR = "AR"
    SE = "SE"


def replay(
    trace: Annotated[Path, typer.Argument(help="Operator trace (parquet), one row per operation.")],
    model: Annotated[Model, typer.Option(help="Model whose sizes the bytes follow.")] = Model.AR,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write; default replay-SEED.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of clocks, addresses and network noise.")] = 1,
    steps: Annotated[
        int | None, typer.Option(help="Recorded steps to replay, from the first; default all.")
    ] = None,
    time_scale: Annotated[float, typer.Option(help="What all times are multiplied by.")] = 0.01,
    size_scale: Annotated[float, typer.Option(help="What all bytes are multiplied by.")] = 0.001,
    gpus_per_machine: Annotated[int, typer.Option(help="GPUs of a machine.")] = 8,
    tensor_ranks: Annotated[
        bool, typer.Option("--tensor-ranks", help="Simulate all GPUs of a worker.")
    ] = False,
    form: Annotated[OutputForm, typer.Option("--format", help="What is written per NIC.")] = OutputForm.PCAP,
) -> None:
    """Replay a recorded job: real compute times and order of operations, modelled bytes."""
    folder = out or Path(f"replay-{seed}")
    with errors():
        recorded = load_trace(trace)
        layout = layout_of(recorded, gpus_per_machine, tensor_ranks)
        job = Replay(recorded, MODELS[model.value], layout, Scaling(time_scale, size_scale), steps)
        setting = prepare_replay(job, seed)
        with fresh_folder(folder, 0), progress_bar(None) as told:
            truth = write_run(setting, folder, progress=told, form=form)
        slowed = [f"node{machine}" for machine in job.slowed_machines]
        truth.data["replay"] = {"trace": trace.name, "model": model.value, "slowed_machines": slowed}
        truth.write(folder / "truth.json")
    who = " and ".join(slowed) if slowed else "no machine"
    write(f"recorded: {who} computed lastingly slower than its stage\n")
    write(summary(folder, truth, form))


def live(
    scenario: Annotated[str, typer.Argument(help="A name of pulse sim list, or two: NAME+NAME.")],
    seed: Annotated[int, typer.Option(help="Everything that is not chosen is drawn from it.")] = 1,
    workload: Annotated[str | None, typer.Option(help="What the job does; see pulse sim list.")] = None,
    cluster: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="The cluster; see pulse sim cluster.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Iterations of each job.")] = None,
    scale: Annotated[float | None, typer.Option(help="Divides bytes and compute times.")] = None,
    machine: Annotated[int | None, typer.Option(help="Machine that the (first) fault hits.")] = None,
    speed: Annotated[float, typer.Option(help="Simulated seconds per second.")] = 0.01,
    groups: Annotated[int | None, typer.Option(help="Sender processes; default one per two cores.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for Enter before packets flow.")] = False,
    truth: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write the truth.")] = None,
) -> None:
    """Send a scenario's packets to network devices, in scaled real time: one namespace per machine.

    Needs root. A capture on the devices that are listed sees what a DPU would see; Ctrl-C ends it.
    """
    if not 0 < speed <= 1:
        raise UsageError(f"--speed {speed}: expected more than 0 and at most 1")
    with errors():
        site = DEFAULT_CLUSTER if cluster is None else read_cluster(cluster, DEFAULT_CLUSTER)
        made = build(Order(scenario, seed, site, workload, steps, scale, Choice(machine=machine)))
        with progress_bar(None) as told:
            ran = run_live(made, speed, ready=_ready(wait), groups=groups, progress=told)
        if truth is not None:
            live_truth(ran).write(truth)
    write(_live_summary(ran))


def _ready(wait: bool) -> Callable[[Sequence[LiveDevice]], None]:
    def tell(devices: Sequence[LiveDevice]) -> None:
        for device in devices:
            file = f"node{device.machine}.{device.name}.pcap"
            write(
                f"ip netns exec {device.namespace} "
                f"tcpdump -i {device.name} -s 128 --time-stamp-precision=nano -w {file}\n"
            )
        if wait:
            input("start the captures, then press Enter ")

    return tell


def _live_summary(ran: LiveRun) -> str:
    sent = ran.sent
    return (
        f"{sum(sent.sent.values())} packets sent, {sent.late} more than 1 ms late "
        f"(at most {sent.latest_ns / 1e6:.1f} ms), {ran.missing} missing; "
        f"for pulse analyze: --until {ran.end_unix_ns}\n"
    )
