# SPDX-License-Identifier: Apache-2.0
"""The whole service as a process: from packets on a veth pair to frames at a controller."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dpu.certificates import Authority
from tests.dpu.controller import Controller
from tests.dpu.devices import Pair, in_namespace, made_pair, needs_root
from tests.dpu.packets import plain
from tests.dpu.service import COMMAND, ROOT, Service

pytestmark = needs_root


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A veth pair, and a loopback device for the controller."""
    with made_pair() as made:
        made.ip("link", "set", "dev", "lo", "up")
        yield made


@pytest.fixture
def controller(pair: Pair) -> Iterator[Controller]:
    """A controller without TLS in the namespace."""
    with in_namespace(pair.namespace, Controller) as made:
        yield made


def at(controller: Controller) -> dict[str, object]:
    """Settings of the way to a controller without TLS."""
    return {"controller.address": f"127.0.0.1:{controller.port}", "controller.plaintext": True}


def write_packets(begin: int, count: int) -> list[bytes]:
    """RDMA WRITEs of one packet each, with PSNs that follow one another."""
    return [plain(psn=(begin + number) % (1 << 24)) for number in range(count)]


def roce_packets(controller: Controller) -> int:
    """Packets in all frames that came, each frame once."""
    frames = {(frame.boot_id, frame.sequence): frame for frame in controller.frames}
    return sum(frame.packets.get("roce", 0) for frame in frames.values())


def send_for(pair: Pair, seconds: float) -> int:
    """Send packets over many intervals; return how many."""
    sent = 0
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        sent += pair.send(write_packets(sent, 20))
        time.sleep(0.01)
    return sent


def test_every_packet_is_in_a_frame_at_the_controller_over_tls(pair: Pair, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("head", hosts=("127.0.0.1",))
    own = authority.issue("dpu", machine="node1")
    with in_namespace(pair.namespace, lambda: Controller(authority.server_context(server))) as controller:
        settings = {
            "controller.address": f"127.0.0.1:{controller.port}",
            "controller.ca_file": str(authority.file),
            "controller.cert_file": str(own.certificate),
            "controller.key_file": str(own.key),
        }
        with Service(pair.namespace, tmp_path, settings) as service:
            sent = send_for(pair, 1.0)
            controller.wait(lambda: len(controller.frames) > 2)
            assert service.end() == 0
        assert controller.frames[-1].final
        assert [frame.final for frame in controller.frames[:-1]] == [False] * (len(controller.frames) - 1)
    assert roce_packets(controller) == sent
    boot_ids = {frame.boot_id for frame in controller.frames}
    assert len(boot_ids) == 1
    assert [frame.sequence for frame in controller.frames] == list(range(len(controller.frames)))
    assert all(not frame.losses for frame in controller.frames)
    whole = controller.frames[1:-1]
    assert all(frame.begin_ns % 100_000_000 == 0 for frame in controller.frames)
    assert all(frame.end_ns - frame.begin_ns == 100_000_000 for frame in whole)
    assert {(frame.nic.machine, frame.nic.nic) for frame in controller.frames} == {("node1", "mlx5_0")}
    assert {frame.clock.source for frame in controller.frames} == {"system"}
    told = [frame for frame in controller.frames if frame.clock_pairs]
    assert told
    assert all(
        abs(nic - time.time_ns()) < 60e9 and nic == system for f in told for nic, system in f.clock_pairs
    )
    counters = told[-1].counters
    assert counters["rx_packets"] >= sent
    assert counters["capture_freezes"] == counters["clock_steps"] == 0
    assert "softnet_dropped" in counters
    assert any(name.startswith("ethtool_") for name in counters)


def test_the_status_tells_what_is_going_on(pair: Pair, controller: Controller, tmp_path: Path) -> None:
    with Service(pair.namespace, tmp_path, at(controller)) as service:
        sent = send_for(pair, 0.5)
        service.wait(lambda: service.status()["capture"]["packets"] == sent)
        service.wait(lambda: service.status()["controller"]["acknowledged"] > 0)
        status = service.status()
        text, metrics = service.ask(), service.ask("--metrics")
        assert service.end() == 0
    assert (status["machine"], status["nic"], status["interface"]) == ("node1", "mlx5_0", "nic0")
    assert status["controller"]["connected"] is True
    assert status["controller"]["tls"] is False
    assert status["capture"]["lost"] == 0
    assert status["clock"]["hardware_stamps"] is False
    assert f"{sent} packets, lost 0" in text
    assert "connected" in text
    labels = 'machine="node1",nic="mlx5_0"'
    assert f"pulse_dpu_captured_packets_total{{{labels}}} {sent}\n" in metrics
    assert f"pulse_dpu_connected{{{labels}}} 1\n" in metrics
    lines = [line for line in metrics.splitlines() if not line.startswith("#")]
    assert len(lines) == len({line.split("{")[0] for line in lines})
    assert not service.socket.exists()


def test_a_killed_service_loses_nothing_that_was_on_disk_and_repeats_nothing(
    pair: Pair, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    with in_namespace(pair.namespace, Controller) as gone:
        settings = at(gone) | {"spool.directory": str(spool)}
    with Service(pair.namespace, tmp_path, settings) as service:
        send_for(pair, 3.0)
        service.wait(lambda: service.status()["spool"]["disk_bytes"] > 0)
        time.sleep(1.0)
        service.kill()
    kept = len(list(spool.glob("*.spool")))
    assert kept > 0
    with in_namespace(pair.namespace, Controller) as controller:
        with Service(pair.namespace, tmp_path, at(controller) | {"spool.directory": str(spool)}) as service:
            send_for(pair, 0.5)
            controller.wait(lambda: len({boot for boot, _ in controller.keys}) == 2)
            assert service.end() == 0
        by_boot: dict[str, list[int]] = {}
        for boot_id, sequence in controller.keys:
            by_boot.setdefault(boot_id, []).append(sequence)
    first, second = by_boot.values()
    assert first == list(range(len(first)))
    assert len(first) >= 10
    assert second == list(range(len(second)))
    assert controller.frames[-1].final
    assert list(spool.glob("*.spool")) == []


def test_a_kill_while_frames_flow_makes_no_gap_in_what_was_durable(
    pair: Pair, controller: Controller, tmp_path: Path
) -> None:
    settings = at(controller) | {"spool.directory": str(tmp_path / "spool")}
    sender = threading.Thread(target=send_for, args=(pair, 6.0))
    sender.start()
    for life in range(3):
        with Service(pair.namespace, tmp_path, settings) as service:
            controller.wait(lambda life=life: len({boot for boot, _ in controller.keys}) > life)
            time.sleep(0.3)
            service.kill()
    sender.join()
    assert len(controller.keys) == len(set(controller.keys))
    for boot_id in {boot for boot, _ in controller.keys}:
        sequences = [sequence for boot, sequence in controller.keys if boot == boot_id]
        assert sequences == list(range(len(sequences)))


def test_frames_that_no_disk_can_hold_are_counted_in_those_that_come_later(
    pair: Pair, controller: Controller, tmp_path: Path
) -> None:
    controller.behaviour.refuses_frame = lambda frame: frame.sequence in (1, 8)
    with Service(pair.namespace, tmp_path, at(controller)) as service:
        send_for(pair, 1.5)
        controller.wait(lambda: sum(f.losses.get("frames_dropped", 0) for f in controller.frames) == 2)
        assert service.end() == 0
    assert sum(frame.losses.get("frames_dropped", 0) for frame in controller.frames) == 2


def test_an_interface_that_goes_down_and_up_again_is_measured_on(
    pair: Pair, controller: Controller, tmp_path: Path
) -> None:
    with Service(pair.namespace, tmp_path, at(controller)) as service:
        sent = send_for(pair, 0.4)
        service.wait(lambda: service.status()["capture"]["packets"] == sent)
        pair.set_nic("down")
        service.wait(lambda: service.status()["capture"]["times_down"] == 1)
        pair.set_nic("up")
        sent += send_for(pair, 0.6)
        service.wait(lambda: service.status()["capture"]["packets"] == sent)
        assert service.end() == 0
    assert roce_packets(controller) == sent
    assert controller.frames[-1].counters["capture_times_down"] == 1


def test_sighup_moves_to_another_controller_and_wrong_settings_change_nothing(
    pair: Pair, controller: Controller, tmp_path: Path
) -> None:
    with (
        in_namespace(pair.namespace, Controller) as second,
        Service(pair.namespace, tmp_path, at(controller)) as service,
    ):
        controller.wait(lambda: bool(controller.hellos))
        service.write(meter__interval_s=-1)
        service.signal(signal.SIGHUP)
        service.wait(lambda: "meter.interval_s is -1" in service.log)
        assert len(controller.hellos) == 1
        service.write(meter__interval_s=0.1, controller__address=f"127.0.0.1:{second.port}")
        service.signal(signal.SIGHUP)
        second.wait(lambda: bool(second.hellos))
        sent = send_for(pair, 0.4)
        assert service.end() == 0
        assert roce_packets(second) == sent


def test_systemd_is_told(pair: Pair, tmp_path: Path) -> None:
    told: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}
        with Service(pair.namespace, tmp_path, {}, environment) as service:
            while sum("WATCHDOG=1" in message for message in told) < 3:
                told.append(manager.recv(1000).decode())
            service.signal(signal.SIGHUP)
            while not any("RELOADING=1" in message for message in told):
                told.append(manager.recv(1000).decode())
            while "READY=1" not in told[-1]:
                told.append(manager.recv(1000).decode())
            assert service.end() == 0
        while "STOPPING=1" not in told[-1]:
            told.append(manager.recv(1000).decode())
    assert told[0].startswith("READY=1\nSTATUS=capturing on nic0")


def run(namespace: str, *arguments: str, drop_root: bool = False) -> subprocess.CompletedProcess[str]:
    """Run `pulse-dpu` to its end."""
    dropped = ["setpriv", "--bounding-set", "-net_raw"] if drop_root else []
    return subprocess.run(
        ["ip", "netns", "exec", namespace, *dropped, *COMMAND, *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=60,
    )  # fmt: skip


def test_an_unknown_interface_ends_it_with_a_line(pair: Pair) -> None:
    done = run(pair.namespace, "run", "--interface", "nic7")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "pulse-dpu: capture on nic7: there is no such interface\n"


def test_without_the_capability_it_ends_with_a_line_that_helps(pair: Pair) -> None:
    done = run(pair.namespace, "run", "--interface", "nic0", drop_root=True)
    assert done.returncode == 1
    assert done.stderr.startswith("pulse-dpu: capture on nic0: a packet socket cannot be opened")
    assert "CAP_NET_RAW" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_status_socket_that_cannot_be_made_is_named(pair: Pair, tmp_path: Path) -> None:
    socket_path = tmp_path / "missing" / "status"
    done = run(pair.namespace, "run", "--interface", "nic0", "--status-socket", str(socket_path))
    assert done.returncode == 1
    assert f"the status socket {socket_path} cannot be made: No such file or directory" in done.stderr


def test_wrong_settings_end_it_with_status_2(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text('interface = "nic0"\n[controller]\nadress = "head"\n')
    done = run(pair.namespace, "run", "--config", str(file))
    assert done.returncode == 2
    assert "there is no setting controller.adress; did you mean controller.address?" in done.stderr


def test_without_a_service_the_status_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "status", "--interface", "nic0", "--status-socket", str(tmp_path / "none")],
        capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 1
    assert "no service answers" in done.stderr
