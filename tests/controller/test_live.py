# SPDX-License-Identifier: Apache-2.0
"""Live analysis in a running controller: frames over TLS, verdicts out, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpu_app.wire.frame import Frame, decode_frame, encode_frame
from dpu_app.wire.transport import Ack, FrameData
from tests.controller.running import Peer, Pki, Service, wait_for
from tests.live.sessions import arrivals, small_session

NIC = "mlx5_0"
LOOKS = {"analysis__every_s": 0.05, "analysis__deadline_s": 0.5}


class Dpus:
    """The NICs of a session, which send their frames over TLS as if they had been measured just now."""

    def __init__(self, pki: Pki, folder: Path) -> None:
        self._pki = pki
        self.frames: dict[str, list[Frame]] = {}
        for arrived in arrivals(folder):
            frame = decode_frame(arrived.read() or b"")
            named = replace(frame, nic=replace(frame.nic, nic=NIC))
            self.frames.setdefault(arrived.key.machine, []).append(named)
        self._begin_ns = time.time_ns()

    def send(self, port: int, first: int, last: int) -> None:
        """Send the frames of some sequences of every NIC, and wait until they are durable."""
        for machine, frames in self.frames.items():
            with Peer(port, self._pki.client(machine)) as peer:
                peer.greet(machine, NIC, frames[0].boot_id)
                chosen = [frame for frame in frames if first <= frame.sequence < last]
                for frame in chosen:
                    reading = (frames[0].begin_ns, self._begin_ns)
                    peer.send(FrameData(encode_frame(replace(frame, clock_pairs=(reading,)))))
                while chosen and peer.receive(Ack).durable[0].sequence < chosen[-1].sequence:
                    pass


def latest(service: Service) -> dict[str, Any]:
    path = service.history / "latest.json"
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"verdicts": []}
    return report


def accused(service: Service) -> list[tuple[str, str]]:
    return [(v["cause"], v["machine"]) for v in latest(service)["verdicts"] if v["severity"] != "notice"]


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def worker_of(service: Service) -> int:
    wait_for(lambda: bool(children(service.process.pid)), "the worker")
    return children(service.process.pid)[0]


def is_gone(pid: int) -> bool:
    try:
        return "(zombie)" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


@pytest.mark.slow
def test_a_verdict_comes_out_and_resumes_after_the_controller_was_killed(tmp_path: Path, pki: Pki) -> None:
    dpus = Dpus(pki, small_session(tmp_path / "session", "slow_compute", steps=60))
    most = max(frame.sequence for frame in dpus.frames["node0"]) + 1
    with Service(tmp_path, pki, **LOOKS) as service:
        dpus.send(service.port, 0, most // 2)
        wait_for(lambda: (service.history / "jobs.json").exists(), "a look")
        worker = worker_of(service)
        service.kill()
    wait_for(lambda: is_gone(worker), "the end of the worker, whose controller was killed")
    with Service(tmp_path, pki, history=service.history, **LOOKS) as again:
        dpus.send(again.port, most // 2, most)
        wait_for(lambda: accused(again) == [("compute_slow", "node1")], "the verdict")
        wait_for(lambda: "verdict: node1" in again.log, "a line in the log")
        assert latest(again)["verdicts"][0]["job"] == "job-1"
        again.kill()
    with Service(tmp_path, pki, history=service.history, **LOOKS) as last:
        (last.history / "latest.json").unlink(missing_ok=True)
        wait_for(lambda: accused(last) == [("compute_slow", "node1")], "the same verdict once more")
        assert last.terminate() == 0


@pytest.mark.slow
def test_a_worker_that_dies_is_followed_by_another_which_has_all_that_it_had(
    tmp_path: Path, pki: Pki
) -> None:
    dpus = Dpus(pki, small_session(tmp_path / "session", "slow_compute"))
    with Service(tmp_path, pki, **LOOKS) as service:
        first = worker_of(service)
        os.kill(first, signal.SIGKILL)
        dpus.send(service.port, 0, 1000)
        wait_for(lambda: accused(service) == [("compute_slow", "node1")], "the verdict of another worker")
        assert worker_of(service) != first
        wait_for(lambda: service.metric("pulse_analysis_looks_total") >= 1, "the count of looks")
        assert service.metric("pulse_analysis_restarts_total") == 1
        worker = worker_of(service)
        assert service.terminate() == 0
    wait_for(lambda: is_gone(worker), "the end of the worker")


@pytest.mark.slow
def test_without_analysis_there_is_no_worker(tmp_path: Path, pki: Pki) -> None:
    with Service(tmp_path, pki, analysis__enabled=False) as service:
        assert service.ask("/healthz")[0] == 200
        assert not children(service.process.pid)
        assert "pulse_analysis" not in service.ask("/metrics")[1]
        os.kill(service.process.pid, signal.SIGTERM)
        assert service.process.wait(30) == 0
