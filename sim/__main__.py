# SPDX-License-Identifier: Apache-2.0
"""Command line: ``python -m sim list`` and ``python -m sim run NAME --seed N --out DIR``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from sim.output.run import run_scenario
from sim.scenarios.lab import build, names
from sim.scenarios.lab_shapes import SHAPES
from sim.spec import SimulationError, TxStamp


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 = done, 2 = wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m sim", description=__doc__.splitlines()[0] if __doc__ else None
    )
    commands = parser.add_subparsers(dest="command", required=True)
    lister = commands.add_parser("list", help="show the scenario names")
    lister.add_argument("word", nargs="?", default="", help="only names that contain this")
    runner = commands.add_parser("run", help="simulate one scenario and write captures and truth")
    runner.add_argument("name")
    runner.add_argument("--seed", type=int, default=1)
    runner.add_argument("--out", type=Path, help="folder to write; default NAME-SEED")
    runner.add_argument(
        "--tx-stamp", choices=[stamp.value for stamp in TxStamp], help="instead of the drawn one"
    )
    runner.add_argument("--perfect-clocks", action="store_true", help="no clock error on any NIC")
    runner.add_argument("--counterfactual", action="store_true", help="also run the seed without its fault")
    options = parser.parse_args(arguments)
    if options.command == "list":
        return _list(options.word)
    try:
        return _run(options)
    except (SimulationError, OSError) as error:
        print(f"sim: {error}", file=sys.stderr)
        return 2


def _list(word: str) -> int:
    if not word:
        for shape, (text, _) in SHAPES.items():
            print(f"# {shape:9} {text}")
    print("\n".join(name for name in names() if word in name))
    return 0


def _run(options: argparse.Namespace) -> int:
    scenario = build(options.name, options.seed)
    clock = scenario.clock
    if options.perfect_clocks:
        clock = replace(clock, offset_ns=0, drift_ppm=0.0, jitter_ns=0)
    if options.tx_stamp is not None:
        clock = replace(clock, tx_stamp=TxStamp(options.tx_stamp))
    out = options.out or Path(f"{options.name}-{options.seed}")
    truth = run_scenario(replace(scenario, clock=clock), out, options.counterfactual)
    times = truth.iteration_ms
    fault = truth.data["fault"]
    print(f"{out}: {scenario.machines} machines, {len(times)} iterations, fault {fault['kind']}", end="")
    print(f" on node{fault['culprit_node']}" if fault["culprit_node"] is not None else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
