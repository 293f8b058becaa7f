# SPDX-License-Identifier: Apache-2.0
"""``pulse demo``: software DPUs of a simulated job, a controller, and the verdict, on this machine alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from host_ctl.certs import init_authority, issue_machine, issue_server
from host_ctl.cli.output import write
from host_ctl.errors import PulseError, UsageError
from host_ctl.history.export import export_session

_MACHINES = 8
_DAYS = 1
_START_S = 60.0
_POLL_S = 0.2
_LAST_LOOK_S = 15.0
_TICKS = os.sysconf("SC_CLK_TCK")


class DemoError(PulseError):
    """The demo could not be run to its end."""

    exit_code = 1


def demo(
    fault: Annotated[str, typer.Option(help="What goes wrong; see pulse sim list.")] = "gpu_slow",
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 1,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="New folder for the evidence; else a temporary one."),
    ] = None,
) -> None:
    """Show the whole system on this machine: 64 software DPUs, TLS, a controller, a fault, the verdict."""
    from host_ctl.cli.demo.scenario import demo_scenario
    from sim.spec import SimulationError

    try:
        demo_scenario(fault, seed)
    except SimulationError as error:
        raise UsageError(f"the demo cannot be simulated: {error}") from error
    if keep is not None and keep.exists():
        raise UsageError(f"--keep {keep}: exists; give a new folder")
    with tempfile.TemporaryDirectory(prefix="pulse-demo-") as scratch:
        _Demo(Path(scratch), fault, seed, keep).run()


@dataclass(frozen=True, slots=True)
class _Said:
    """A change in what the controller says, and when it came."""

    unix_s: float
    text: str


class _Demo:
    def __init__(self, scratch: Path, fault: str, seed: int, keep: Path | None) -> None:
        self._scratch = scratch
        self._fault = fault
        self._seed = seed
        self._keep = keep
        self._history = scratch / "history"
        self._begun_s = time.monotonic()
        self._said: dict[str, float] = {}
        self._laps: list[tuple[str, float]] = []

    def run(self) -> None:
        with ExitStack() as stack:
            certs = self._certificates()
            self._lap("certificates")
            log = self._scratch / "controller.log"
            controller = stack.enter_context(_running(_controller(certs, self._history), log))
            port = _wait_for(lambda: _port(log), controller, log)
            self._lap("start of the controller")
            write(f"controller: pid {controller.pid}, port {port}, TLS 1.3 with a certificate per machine\n")
            order = {
                "fault": self._fault, "seed": self._seed, "certs": str(certs),
                "address": f"127.0.0.1:{port}", "folder": str(self._scratch / "simulated"),
            }  # fmt: skip
            dpus = stack.enter_context(_running([sys.executable, "-m", "host_ctl.cli.demo.dpus"], None))
            assert dpus.stdin is not None
            dpus.stdin.write(json.dumps(order).encode() + b"\n")
            dpus.stdin.flush()
            write(f"simulating: 8 machines with 8 NICs each, fault {self._fault}; frames every 0.5 s\n\n")
            truth = self._watch(dpus, controller)
            self._lap("job, measured, published and analysed as it ran")
            self._tell(truth, _cpu_s(controller.pid))

    def _certificates(self) -> Path:
        folder = self._scratch / "certs"
        init_authority(folder, "Pulse demo", _DAYS + 1)
        issue_server(folder, ("localhost", "127.0.0.1"), _DAYS)
        for machine in range(_MACHINES):
            issue_machine(folder, f"node{machine}", _DAYS)
        return folder

    def _watch(self, dpus: subprocess.Popen[bytes], controller: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Tell what changes until the job has ended and been looked at."""
        last = ""
        while dpus.poll() is None:
            time.sleep(_POLL_S)
            last = self._tell_change(last)
            if controller.poll() is not None:
                raise DemoError("the controller has ended before the job")
        if dpus.returncode or dpus.stdout is None:
            raise DemoError(f"the software DPUs have ended with status {dpus.returncode}")
        truth: dict[str, Any] = json.loads(dpus.stdout.read())
        wanted_ns = round((truth["end_unix_s"] - 1.0) * 1e9)
        end_s = time.monotonic() + _LAST_LOOK_S
        while time.monotonic() < end_s and self._looked_ns() < wanted_ns:
            time.sleep(_POLL_S)
            last = self._tell_change(last)
        return truth

    def _report(self) -> dict[str, Any] | None:
        try:
            report: dict[str, Any] = json.loads((self._history / "latest.json").read_text())
        except FileNotFoundError:
            return None
        return report

    def _looked_ns(self) -> int:
        report = self._report()
        return 0 if report is None else int(report["window"]["end_ns"])

    def _tell_change(self, last: str) -> str:
        report = self._report()
        if report is None:
            return last
        text = "; ".join(v["summary"] for v in report["verdicts"])
        for verdict in report["verdicts"]:
            self._said.setdefault(f"{verdict['cause']} {verdict['machine']}", time.time())
        jobs = ", ".join(
            f"{len(j['nics'])} NICs, {j['iteration_s']:.3f} s an iteration" for j in report["jobs"]
        )
        line = f"{report['health']}: {text or jobs or 'no job seen yet'}"
        if re.sub(r"[\d.]+", "", line) != re.sub(r"[\d.]+", "", last):
            write(f"{time.monotonic() - self._begun_s:5.1f} s  {line}\n")
        return line

    def _lap(self, what: str) -> None:
        self._laps.append((what, time.monotonic()))

    def _tell(self, truth: dict[str, Any], controller_s: float) -> None:
        report = self._report()
        if report is None:
            raise DemoError("the controller has looked at nothing")
        evidence = self._keep or Path(tempfile.mkdtemp(prefix="pulse-evidence-"))
        evidence.mkdir(parents=True, exist_ok=True)
        (evidence / "report.json").write_text(json.dumps(report, indent=1) + "\n")
        export_session(self._history, evidence / "session")
        verdicts = report["verdicts"]
        write(
            "\n" + ("\n".join(v["summary"] for v in verdicts) or "No fault found: " + report["health"]) + "\n"
        )
        culprit = truth["culprit"]
        guilty = "nobody" if culprit is None else f"node{culprit}"
        write(f"The simulator's truth, which the controller did not see: {guilty} is to blame.\n")
        onset_s = truth["onset_unix_s"]
        if verdicts and onset_s is not None:
            first = self._said[f"{verdicts[0]['cause']} {verdicts[0]['machine']}"]
            write(f"Named {first - onset_s:.1f} s after the fault began.\n")
        write(f"Evidence: {evidence}: report.json, session/ (pulse analyze {evidence / 'session'})\n")
        write("\nWhere the time went:\n")
        before = self._begun_s
        for what, at in self._laps:
            write(f"  {at - before:5.1f} s  {what}\n")
            before = at
        write(f"  {controller_s:5.1f} s  of it processor time of the controller and its analysis\n")


def _controller(certs: Path, history: Path) -> list[str]:
    settings = {
        "listen.address": "127.0.0.1:0",
        "api.address": "",
        "tls.ca_file": certs / "ca.crt",
        "tls.cert_file": certs / "controller.crt",
        "tls.key_file": certs / "controller.key",
        "history.directory": history,
        "analysis.every_s": 0.5,
        "analysis.look_cpu_s": 2.0,
    }
    flags = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "host_ctl.cli.main", "controller", *flags]


def _port(log: Path) -> int | None:
    found = re.search(r"listening for DPUs on .* port (\d+)", log.read_text() if log.exists() else "")
    return int(found[1]) if found else None


def _wait_for(ask: Callable[[], int | None], process: subprocess.Popen[bytes], log: Path) -> int:
    end_s = time.monotonic() + _START_S
    while (answer := ask()) is None:
        if process.poll() is not None or time.monotonic() >= end_s:
            raise DemoError(f"the controller does not start: {log.read_text()[-500:].strip()}")
        time.sleep(0.05)
    return answer


def _cpu_s(pid: int) -> float:
    """Processor time of a process and its children that live."""
    total = 0
    for name in Path("/proc").iterdir():
        if not name.name.isdecimal():
            continue
        try:
            fields = (name / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(name.name) == pid or int(fields[1]) == pid:
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS


@contextmanager
def _running(command: list[str], log: Path | None) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a group of its own, which ends with the context, whatever it has begun itself."""
    with ExitStack() as stack:
        err = None if log is None else stack.enter_context(log.open("wb"))
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE if log is None else err, stderr=err,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number, wait_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
