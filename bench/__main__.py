# SPDX-License-Identifier: Apache-2.0
"""Command line of the measurements: ``python -m bench offline``, ``segmentation``, ``simulator``, ..."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.controller import report_controller
from bench.dpu import report_dpu
from bench.fidelity.report import DEFAULT_CLUSTER_SIZE, report_fidelity
from bench.figures.report import report_figures
from bench.fingerprints import report_fingerprints
from bench.inputs import BenchInput, given_captures, simulated_captures
from bench.live import report_live
from bench.offline import OfflineResult, measure_offline
from bench.peers.report import report_peers
from bench.picture import report_picture
from bench.reality import report_reality
from bench.scenarios.once import report_once
from bench.segmentation import report_segmentation
from bench.simulator import report_modes, report_speed
from bench.tshark import measure_tshark
from host_ctl.errors import PulseError

DEFAULT_PACKETS = 1_000_000
KEPT = Path("build/bench")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 = measured, 2 = wrong usage or input."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "segmentation":
            return report_segmentation(options.captures, as_json=options.json)
        if options.command == "reality":
            return report_reality(options.captures, twin=options.twin, as_json=options.json)
        if options.command == "simulator":
            return report_speed(as_json=options.json)
        if options.command == "fingerprints":
            return report_fingerprints(as_json=options.json)
        if options.command == "catalogue":
            return report_once(options.seed, options.scenario, options.capture, as_json=options.json)
        if options.command == "picture":
            return report_picture(options.scenario, options.seed, options.out)
        if options.command == "figures":
            return report_figures(options.out, options.cause)
        if options.command == "modes":
            return report_modes(options.runs, options.seed, as_json=options.json)
        if options.command == "peers":
            return report_peers(options.runs, options.seed, options.scenario, as_json=options.json)
        if options.command == "fidelity":
            return report_fidelity(options.cluster, options.seed, options.workload, as_json=options.json)
        if options.command == "dpu":
            return report_dpu(options.seconds, as_json=options.json)
        if options.command == "controller":
            return report_controller(options.seconds, as_json=options.json)
        if options.command == "live":
            return report_live(as_json=options.json)
        result = _offline(options)
    except (PulseError, OSError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(result.as_dict(), indent=1))
    else:
        print(result.as_text())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Pulse beside other tools.")
    commands = parser.add_subparsers(dest="command", required=True)
    offline = commands.add_parser("offline", help="from capture files to a verdict, stage by stage")
    offline.add_argument(
        "--captures", type=Path, metavar="DIR", help="captures to measure; default: a job simulated for it"
    )
    offline.add_argument(
        "--packets", type=int, default=DEFAULT_PACKETS, help="at least this many (%(default)s)"
    )
    offline.add_argument(
        "--runs", type=int, default=3, help="runs, the quickest of which counts (%(default)s)"
    )
    offline.add_argument(
        "--keep", type=Path, default=KEPT, metavar="DIR", help="where the measured files stay (%(default)s)"
    )
    offline.add_argument("--no-tshark", action="store_true", help="do not run tshark on the same file")
    offline.add_argument("--json", action="store_true", help="print the result as JSON")
    cuts = commands.add_parser("segmentation", help="ways to cut traffic into operators, side by side")
    cuts.add_argument("captures", nargs="+", type=Path, metavar="DIR", help="folders of captures")
    cuts.add_argument("--json", action="store_true", help="print the result as JSON")
    reality = commands.add_parser("reality", help="packet distributions of captures, and of a simulated twin")
    reality.add_argument("captures", nargs="*", type=Path, metavar="DIR", help="folders of captures")
    reality.add_argument("--twin", action="store_true", help="simulate the Soft-RoCE job and measure it too")
    reality.add_argument("--json", action="store_true", help="print the result as JSON")
    simulator = commands.add_parser("simulator", help="speed and memory of the default scenario, by mode")
    simulator.add_argument("--json", action="store_true", help="print the result as JSON")
    prints = commands.add_parser("fingerprints", help="hashes of simulated runs, to compare two versions")
    prints.add_argument("--json", action="store_true", help="print the result as JSON")
    once = commands.add_parser("catalogue", help="every scenario once: allowed, said, right or not")
    once.add_argument("--seed", type=int, default=3, help="seed of the runs (%(default)s)")
    once.add_argument("--scenario", nargs="*", default=[], help="only these scenarios")
    once.add_argument(
        "--capture", choices=("messages", "trains"), default="messages", help="how it is simulated"
    )
    once.add_argument("--json", action="store_true", help="print the result as JSON")
    picture = commands.add_parser("picture", help="one simulated iteration of all NICs")
    picture.add_argument("scenario", help="a name of pulse sim list")
    picture.add_argument("--seed", type=int, default=1, help="seed of the scenario (%(default)s)")
    picture.add_argument(
        "--out", type=Path, required=True, metavar="FILE.svg", help="file to write, also .png"
    )
    figures = commands.add_parser("figures", help="how each cause is recognised, a figure per cause")
    figures.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the SVG files")
    figures.add_argument("--cause", action="append", default=[], help="only this one; may be repeated")
    modes = commands.add_parser("modes", help="verdicts from packet and from message mode, run by run")
    modes.add_argument("--runs", type=int, default=200, help="runs, drawn from the catalogue (%(default)s)")
    modes.add_argument("--seed", type=int, default=1, help="what they are drawn from (%(default)s)")
    modes.add_argument("--json", action="store_true", help="print the result as JSON")
    peers = commands.add_parser("peers", help="rules of published systems on runs of the catalogue")
    peers.add_argument("--runs", type=int, default=100, help="runs, scenarios in turn (%(default)s)")
    peers.add_argument("--seed", type=int, default=1, help="what they are drawn from (%(default)s)")
    peers.add_argument("--scenario", nargs="*", default=[], help="only these scenarios")
    peers.add_argument("--json", action="store_true", help="print the result as JSON")
    fidelity = commands.add_parser(
        "fidelity", help="what the analysis makes of simulated runs, and the truth"
    )
    fidelity.add_argument("--seed", type=int, default=1, help="seed of the runs (%(default)s)")
    fidelity.add_argument(
        "--cluster", default=DEFAULT_CLUSTER_SIZE, metavar="MACHINESxNICS", help="its size (%(default)s)"
    )
    fidelity.add_argument(
        "--workload", action="append", default=[], metavar="W", help="one of them only; may be repeated"
    )
    fidelity.add_argument("--json", action="store_true", help="print the result as JSON")
    dpu = commands.add_parser("dpu", help="what the DPU service costs per packet and per frame; needs root")
    dpu.add_argument("--seconds", type=float, default=5.0, help="length of each run (%(default)s)")
    dpu.add_argument("--json", action="store_true", help="print the result as JSON")
    live = commands.add_parser("live", help="what live analysis costs, by stage, and what it holds in memory")
    live.add_argument("--json", action="store_true", help="print the result as JSON")
    controller = commands.add_parser("controller", help="what taking frames costs the controller")
    controller.add_argument("--seconds", type=float, default=5.0, help="length of each run (%(default)s)")
    controller.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _offline(options: argparse.Namespace) -> OfflineResult:
    if options.packets < 1 or options.runs < 1:
        raise ValueError("--packets and --runs must be at least 1")
    source: BenchInput = (
        given_captures(options.captures, options.packets, options.keep)
        if options.captures
        else simulated_captures(options.packets, options.keep)
    )
    tshark = None if options.no_tshark else measure_tshark(source.files[0].paths[0])
    return measure_offline(source, options.runs, tshark)


if __name__ == "__main__":
    sys.exit(main())
