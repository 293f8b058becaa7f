# SPDX-License-Identifier: Apache-2.0
"""The process of the demo's software DPUs: simulates the job as time passes and publishes its frames.

Its order is a line of JSON on standard input, and it ends when that does. When all frames are durable it
says on standard output, as a line of JSON, what really happened.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from dpu_app.meter.metering import MeteringConfig
from host_ctl.cli.demo.scenario import demo_scenario
from host_ctl.cli.sim_publish import Target, publish_run
from host_ctl.errors import PulseError
from sim.output.sinks import DpuOptions
from sim.output.truth import Truth

_INTERVAL_NS = 500_000_000
_NICE = 10  # it has the whole time of the job, others wait for the controller


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def _said(truth: Truth) -> dict[str, Any]:
    fault, onset_ns = truth.data["fault"], truth.data["fault"]["onset_ns"]
    return {
        "end_unix_s": truth.data["capture"]["end_ns"] / 1e9,
        "culprit": fault["culprit_node"],
        "onset_unix_s": None if onset_ns is None else onset_ns / 1e9,
    }


def main() -> int:
    """Simulate what the order on standard input asks for; 0 = all is delivered."""
    order = json.loads(sys.stdin.readline())
    os.nice(_NICE)
    threading.Thread(target=_end_with_input, daemon=True).start()
    options = DpuOptions(MeteringConfig(interval_ns=_INTERVAL_NS, silent_frames=True))
    target = Target(order["address"], Path(order["certs"]), "localhost")
    scenario = demo_scenario(order["fault"], order["seed"])
    try:
        truth, _ = publish_run(scenario, Path(order["folder"]), False, _told, target, options, 1.0)
    except PulseError as error:
        print(f"software DPUs: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(_said(truth)), flush=True)
    return 0


def _told(_: float) -> None:
    """The demo tells what the controller says, not how far the simulation is."""


if __name__ == "__main__":
    sys.exit(main())
