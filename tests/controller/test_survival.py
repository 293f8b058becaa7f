# SPDX-License-Identifier: Apache-2.0
"""What the controller survives: being killed, disks that are full or read-only, crowds."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from host_ctl.history.reader import ReadCounts, read_range
from host_ctl.incidents.store import FILE
from tests.controller.agents import Agents
from tests.controller.running import Peer, Pki, Service, wait_for


def stored_once(history: Path) -> set[tuple[str, int]]:
    """Machine and sequence of every frame in a history; fail when one stands there twice or is damaged."""
    counts = ReadCounts()
    found = [(stored.key.machine, stored.key.sequence) for stored in read_range(history, counts=counts)]
    assert counts.damaged == counts.repeats == 0
    assert [key for key, times in Counter(found).items() if times > 1] == []
    return set(found)


def kill_again_and_again(folder: Path, pki: Pki, port: int, rounds: int, seed: int) -> None:
    """Kill the controller at random moments under real publishers; what they were told must be on disk."""
    chance = random.Random(seed)
    history = folder / "history"
    rounds_with_news = 0
    with Agents(pki, port, ("node0", "node1", "node2")) as agents:
        for _ in range(rounds):
            before = len(agents.acknowledged)
            with Service(folder, pki, port=port, history__segment_mib=1):
                end_s = time.monotonic() + chance.uniform(0.02, 0.5)
                while time.monotonic() < end_s:
                    agents.measure(chance.randrange(1, 4), padding=chance.choice((0, 3000, 100_000)))
                    time.sleep(0.01)
            told = agents.acknowledged
            rounds_with_news += len(told) > before
            assert told <= stored_once(history)
        with Service(folder, pki, port=port) as last:
            wait_for(agents.all_idle, "everything acknowledged")
            assert last.terminate() == 0
        assert rounds_with_news > rounds // 4
        assert stored_once(history) == agents.put == agents.acknowledged


def test_killed_8_times_it_loses_and_doubles_no_acknowledged_frame(
    tmp_path: Path, pki: Pki, free_port: int
) -> None:
    kill_again_and_again(tmp_path, pki, free_port, 8, seed=1)


@pytest.mark.slow
def test_killed_100_times_it_loses_and_doubles_no_acknowledged_frame(
    tmp_path: Path, pki: Pki, free_port: int
) -> None:
    kill_again_and_again(tmp_path, pki, free_port, 100, seed=2)


def test_a_full_disk_stops_acknowledgements_and_says_so_until_there_is_room(
    tmp_path: Path, pki: Pki, small_disk: Path
) -> None:
    filler = small_disk / "filler"
    with Service(tmp_path, pki, history=small_disk / "history") as service:
        with Agents(pki, service.port, ("node0", "node1")) as agents:
            agents.measure(3)
            wait_for(agents.all_idle, "the first frames acknowledged")
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(1 << 16)):
                    pass
            agents.measure(20, padding=20_000)
            wait_for(lambda: service.ask("/readyz")[0] == 503, "not ready")
            assert "No space left on device" in service.ask("/readyz")[1]
            assert service.ask("/healthz")[0] == 200
            missing = agents.put - agents.acknowledged
            assert missing
            assert service.process.poll() is None
            filler.unlink()
            wait_for(lambda: service.ask("/readyz")[0] == 200, "ready again")
            wait_for(agents.all_idle, "everything acknowledged")
            assert "the disk takes frames again" in service.log
        assert stored_once(service.history) == agents.put == agents.acknowledged


def test_a_disk_that_becomes_read_only_is_survived_as_well(
    tmp_path: Path, pki: Pki, small_disk: Path
) -> None:
    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", small_disk], check=True)

    # No disk becomes read-only by command while a file is open for writing, as that of incidents is.
    (small_disk / "history").mkdir()
    (small_disk / "history" / FILE).symlink_to(tmp_path / FILE)
    with Service(tmp_path, pki, history=small_disk / "history") as service:
        with Agents(pki, service.port, ("node0",)) as agents:
            agents.measure(3)
            wait_for(agents.all_idle, "the first frames acknowledged")
            remount("ro")
            agents.measure(3)
            wait_for(lambda: service.ask("/readyz")[0] == 503, "not ready")
            assert "Read-only file system" in service.ask("/readyz")[1]
            remount("rw")
            wait_for(agents.all_idle, "everything acknowledged")
        assert stored_once(service.history) == agents.put == agents.acknowledged


def test_64_agents_that_come_back_at_once_are_all_served(tmp_path: Path, pki: Pki, free_port: int) -> None:
    machines = [f"node{number}" for number in range(64)]
    with Agents(pki, free_port, machines) as agents:
        agents.measure(2)
        with Service(tmp_path, pki, port=free_port):
            wait_for(agents.all_idle, "everything acknowledged")
        agents.measure(2)
        with Service(tmp_path, pki, port=free_port) as service:
            wait_for(agents.all_idle, "everything acknowledged once more")
            wait_for(lambda: service.metric("pulse_nic_connected") == 64, "64 NICs connected")
        assert stored_once(service.history) == agents.put


def is_refused(port: int, pki: Pki) -> bool:
    """Whether a connection without a certificate is ended by the controller."""
    try:
        with Peer(port, pki.client(None)) as peer:
            return peer.is_closed()
    except OSError:
        return True


def test_200_connections_without_a_certificate_do_not_keep_an_agent_out(service: Service, pki: Pki) -> None:
    idle = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(200)]
    with Agents(pki, service.port, ("node1",)) as agents:
        agents.measure(5)
        wait_for(agents.all_idle, "the agent served beside silent connections")
        wait_for(lambda: service.metric("pulse_ingest_failed_handshakes_total") >= 200, "handshakes given up")
        for connection in idle:
            connection.close()
        assert all(is_refused(service.port, pki) for _ in range(200))
        agents.measure(5)
        wait_for(agents.all_idle, "the agent served after strangers")
    assert stored_once(service.history) == agents.put


def test_unfinished_handshakes_give_way_to_newer_ones(tmp_path: Path, pki: Pki) -> None:
    patience = {"limits__handshakes": 8, "limits__handshake_s": 300.0}
    with Service(tmp_path, pki, **patience) as service:
        idle = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(50)]
        with Agents(pki, service.port, ("node1", "node2")) as agents:
            agents.measure(2)
            wait_for(agents.all_idle, "agents served beside handshakes that never end")
        wait_for(lambda: service.metric("pulse_ingest_refused_full_total") >= 42, "what gave way counted")
        assert service.terminate() == 0
        for connection in idle:
            connection.close()
        assert "Traceback" not in service.log


def test_a_new_process_of_a_dpu_is_a_new_life_and_counted(service: Service, pki: Pki) -> None:
    for boot_id in ("first", "second"):
        with Agents(pki, service.port, ("node1",), boot_id) as agents:
            agents.measure(3)
            wait_for(agents.all_idle, "everything acknowledged")
    wait_for(lambda: service.metric("pulse_nic_restarts_total") == 1, "the restart counted")
    found = [(stored.key.boot_id, stored.key.sequence) for stored in service.stored()]
    assert sorted(found) == [(boot_id, n) for boot_id in ("first", "second") for n in range(3)]
