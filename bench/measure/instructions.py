# SPDX-License-Identifier: Apache-2.0
"""Instructions per packet, by stage: `python -m bench.measure.instructions BINARY [--record]`.

Unlike times they do not depend on what else a machine does, so a change of a few per cent shows. They are
compared with those of `instructions.json`; a compiler of another version makes other code, and then the
comparison says so and fails nothing. Counted by callgrind, which sees no waiting for memory.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

BASELINE = Path(__file__).with_suffix(".json")
TOLERANCE = 0.03
_BATCH, _REPETITIONS, _WINDOW_NS = 8192, 16, 8000
_WARM_PACKETS = 16  # of each flow, as native/bench/packet_path.cpp has it
_CASES = {
    "16 flows, trains of 32": (16, 32, False),
    "2000 flows, trains of 32": (2000, 32, False),
    "2000 flows, random": (2000, 1, False),
    "2000 flows, random, steered": (2000, 1, True),
}
# Calls of a stage, by caller and callee; `rest of update` is what is left of `parse and update`.
_BLOCK = r".*Meter::update_b"
_STAGES = {
    "parse alone": (r"pulse::bench::measure_path", r"pulse::parse_packet\("),
    "parse and update": (r".", r"pulse::Meter::update_batch\("),
    "whole headers": (_BLOCK, r"pulse::parse_packet\("),
    "new flows": (_BLOCK, r"pulse::Meter::create_flow\("),
    "packets outside runs": (_BLOCK, r"pulse::Meter::on_packet\("),
    "long window entries": (r".", r"pulse::WindowStore::append_slowly\("),
    "cut": (r".", r"pulse::Meter::cut\("),
}
_PARTS = ("whole headers", "new flows", "packets outside runs")


@dataclass(frozen=True, slots=True)
class Counts:
    """Instructions per packet of a case, by stage, and the compiler of the binary."""

    compiler: str
    cases: dict[str, dict[str, float]]


def calls_of(profile: str) -> list[tuple[str, str, int]]:
    """Return caller, callee and inclusive instructions of every call in callgrind's output."""
    names: dict[str, str] = {}

    def name(text: str) -> str:
        number, _, rest = text.partition(" ")
        return names.setdefault(number, rest) if rest else names.get(number, number)

    calls = []
    caller = callee = ""
    awaited = False
    for line in profile.splitlines():
        if awaited:
            calls.append((caller, callee, int(line.split()[1])))
            awaited = False
        elif line.startswith("fn="):
            caller = name(line[3:])
        elif line.startswith("cfn="):
            callee = name(line[4:])
        elif line.startswith("calls="):
            awaited = True
    return calls


def packets_of(flows: int) -> int:
    """Return how many packets pulse_bench puts through the meter."""
    warm = max(_REPETITIONS, 1 + _WARM_PACKETS * flows // _BATCH)
    return (warm + _REPETITIONS) * _BATCH


def stages_of(profile: str, packets: int) -> dict[str, float]:
    """Return instructions per packet by stage."""
    calls = calls_of(profile)
    stages = {
        stage: sum(cost for a, b, cost in calls if re.match(caller, a) and re.match(callee, b)) / packets
        for stage, (caller, callee) in _STAGES.items()
    }
    stages["rest of update"] = stages["parse and update"] - sum(stages[part] for part in _PARTS)
    return {stage: round(count, 1) for stage, count in stages.items()}


def count(binary: Path) -> Counts:
    """Run the benchmark of the packet path under callgrind. Raises CalledProcessError when it fails."""
    cases = {}
    with tempfile.TemporaryDirectory(prefix="pulse-callgrind-") as scratch:
        for name, (flows, train, steered) in _CASES.items():
            out = Path(scratch) / "profile"
            arguments = (flows, train, 4096, int(steered), _REPETITIONS, _WINDOW_NS, _BATCH)
            subprocess.run(
                ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(binary)]
                + [str(argument) for argument in arguments],
                check=True,
                capture_output=True,
            )
            cases[name] = stages_of(out.read_text(), packets_of(flows))
    return Counts(_compiler_of(binary), cases)


def _compiler_of(binary: Path) -> str:
    comments = re.findall(rb"GCC: \([^)]*\) (\d+)|clang version (\d+)", binary.read_bytes())
    versions = sorted(
        {f"gcc {gcc.decode()}" if gcc else f"clang {clang.decode()}" for gcc, clang in comments}
    )
    return ", ".join(versions) or "unknown"


def compare(counts: Counts, baseline: Counts) -> tuple[str, bool]:
    """Return a table beside the baseline, and whether a stage has become dearer than the tolerance allows."""
    lines = [f"{'case':<30}{'stage':<22}{'instructions':>13}{'baseline':>10}{'change':>9}"]
    is_worse = False
    for case, stages in counts.cases.items():
        for stage, now in stages.items():
            before = baseline.cases.get(case, {}).get(stage)
            if before is None:
                lines.append(f"{case:<30}{stage:<22}{now:>13.1f}{'-':>10}{'-':>9}")
                continue
            change = (now - before) / before if before else 0.0
            # Less than an instruction per packet is the place of a branch, not a dearer stage.
            worse = change > TOLERANCE and now - before >= 1
            is_worse = is_worse or worse
            mark = " worse" if worse else ""
            lines.append(f"{case:<30}{stage:<22}{now:>13.1f}{before:>10.1f}{change:>+8.1%}{mark}")
    return "\n".join(lines), is_worse


def main(arguments: list[str] | None = None) -> int:
    """0 = as cheap as before, or not comparable; 1 = dearer."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure.instructions", description=__doc__)
    parser.add_argument("binary", type=Path, help="the built pulse_bench")
    parser.add_argument("--record", action="store_true", help="make these counts the baseline")
    options = parser.parse_args(arguments)
    if shutil.which("valgrind") is None:
        print("bench-instructions skipped: there is no valgrind (Debian: valgrind)")
        return 0
    counts = count(options.binary)
    if options.record:
        BASELINE.write_text(json.dumps({"compiler": counts.compiler, "cases": counts.cases}, indent=1) + "\n")
    baseline = Counts(**json.loads(BASELINE.read_text()))
    text, is_worse = compare(counts, baseline)
    print(text)
    if counts.compiler != baseline.compiler:
        print(f"built by {counts.compiler}, the baseline by {baseline.compiler}: changes say nothing")
        return 0
    return int(is_worse)


if __name__ == "__main__":
    sys.exit(main())
