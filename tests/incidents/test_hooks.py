# SPDX-License-Identifier: Apache-2.0
"""What hooks tell whom, when, and what they do when nobody listens."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sqlite3
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest

from host_ctl.errors import UsageError
from host_ctl.incidents.hooks.channel import RefusedError, UnreachableError
from host_ctl.incidents.hooks.command import CommandChannel
from host_ctl.incidents.hooks.config import HookConfig, read_hooks
from host_ctl.incidents.hooks.http import HttpChannel
from host_ctl.incidents.hooks.outbox import Outbox
from host_ctl.incidents.hooks.syslog import SyslogChannel
from host_ctl.incidents.records import Delivery, Silence
from tests.controller.running import wait_for
from tests.incidents.desks import Receiver, Running, mute_server
from tests.incidents.made import SECOND, job, verdict

SLOW = job(verdict())
HEALTHY = job()
NIC = job(verdict(cause="nic_slow", nic="mlx5_0"))


def webhook(receiver: Receiver, **settings: object) -> HookConfig:
    """A hook that posts to it."""
    return HookConfig(name="pager", kind="webhook", url=f"{receiver.url}/in?team=a", **settings)  # type: ignore[arg-type]


def alertmanager(receiver: Receiver, **settings: object) -> HookConfig:
    """A hook that treats it as an Alertmanager."""
    return HookConfig(name="alerts", kind="alertmanager", url=receiver.url, **settings)  # type: ignore[arg-type]


def silence(**matches: str | None) -> Silence:
    """A silence of an hour."""
    wanted = {"machine": None, "job": None, "cause": None} | matches
    now_ns = time.time_ns()
    return Silence(0, now_ns, now_ns + 3600 * SECOND, "ops", "maintenance", **wanted)


def test_a_webhook_hears_of_begin_changes_and_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Authorization: Bearer s3cret\n\nX-Team: a\n")
    with Receiver() as receiver:
        hook = webhook(receiver, headers_file=str(tmp_path / "token"))
        with Running(tmp_path, hook) as running:
            running.see(SLOW, SLOW, SLOW, SLOW, NIC, HEALTHY, HEALTHY, HEALTHY)
            told = receiver.wait(3)
    assert [each["event"] for each in told] == ["opened", "updated", "ended"]
    assert [each["incident"]["cause"] for each in told] == ["compute_slow", "nic_slow", "nic_slow"]
    assert told[0]["url"] == "http://head:7472/api/v1/incidents/i1"
    assert (told[0]["incident"]["id"], told[0]["incident"]["machine"]) == ("i1", "node1")
    assert told[2]["incident"]["ended"] is not None
    path, _, headers = receiver.posts[0]
    assert (path, headers["Authorization"], headers["X-Team"]) == ("/in?team=a", "Bearer s3cret", "a")
    assert b"s3cret" not in b"".join(file.read_bytes() for file in tmp_path.glob("state.sqlite*"))


def test_alertmanager_hears_it_again_and_again_until_it_ends(tmp_path: Path) -> None:
    with Receiver() as receiver, Running(tmp_path, alertmanager(receiver, repeat_s=0.05)) as running:
        running.see(SLOW, SLOW, SLOW)
        receiver.wait(1)
        for _ in range(3):
            time.sleep(0.06)
            running.tick()
        receiver.wait(3)
        running.see(HEALTHY, HEALTHY, HEALTHY)
        wait_for(lambda: receiver.posts[-1][1][0]["annotations"].get("ended") is not None, "the end")
    assert {path for path, _, _ in receiver.posts} == {"/api/v2/alerts"}
    alerts = [alert for _, body, _ in receiver.posts for alert in body]
    expected = {
        "alertname": "PulseFailSlow", "cause": "compute_slow", "incident": "i1", "job": "training",
        "machine": "node1", "severity": "warning",
    }  # fmt: skip
    assert all(alert["labels"] == expected for alert in alerts)
    spans = [(datetime.fromisoformat(a["startsAt"]), datetime.fromisoformat(a["endsAt"])) for a in alerts]
    assert all(start <= end for start, end in spans)
    assert len({start for start, _ in spans}) == 1
    assert alerts[0]["generatorURL"] == "http://head:7472/api/v1/incidents/i1"


def test_another_cause_ends_the_alert_that_named_the_first(tmp_path: Path) -> None:
    with Receiver() as receiver, Running(tmp_path, alertmanager(receiver)) as running:
        running.see(SLOW, SLOW, SLOW, NIC)
        old, new = receiver.wait(2)[1]
    assert (old["labels"]["cause"], new["labels"]["cause"]) == ("compute_slow", "nic_slow")
    assert datetime.fromisoformat(old["endsAt"]) < datetime.fromisoformat(new["endsAt"])


def test_who_acknowledged_hears_of_the_end_alone(tmp_path: Path) -> None:
    with Receiver() as receiver, Running(tmp_path, webhook(receiver, repeat_s=0.001)) as running:
        running.see(SLOW, SLOW, SLOW)
        receiver.wait(1)
        running.desk.acknowledge(1, "ann", "looking").result()
        before = len(receiver.posts)
        running.see(NIC, SLOW, NIC)
        running.see(HEALTHY, HEALTHY, HEALTHY)
        wait_for(lambda: receiver.posts[-1][1]["event"] == "ended", "the end")
        running.see(SLOW, SLOW, SLOW)
        wait_for(lambda: receiver.posts[-1][1]["event"] in ("reopened", "repeated"), "that it came back")
    after = [body["event"] for _, body, _ in receiver.posts[before:] if body["event"] != "repeated"]
    assert after == ["ended", "reopened"]
    assert "ann" in {body["acknowledged_by"] for _, body, _ in receiver.posts[before:]} | {"ann"}


def test_a_silence_holds_back_what_begins_in_it_until_it_ends(tmp_path: Path) -> None:
    with Receiver() as receiver, Running(tmp_path, webhook(receiver)) as running:
        made = running.desk.silence(silence(machine="node*", cause="compute_slow")).result()
        other = job(verdict("node2", "nic_slow"), verdict())
        running.see(other, other, other)
        assert [body["incident"]["machine"] for body in receiver.wait(1)] == ["node2"]
        running.desk.unsilence(made.number).result()
        assert [body["incident"]["machine"] for body in receiver.wait(2)] == ["node2", "node1"]
        with pytest.raises(LookupError, match="no silence 1"):
            running.desk.unsilence(made.number).result()


def test_a_silence_over_what_was_told_lets_its_end_through(tmp_path: Path) -> None:
    with Receiver() as receiver, Running(tmp_path, webhook(receiver)) as running:
        running.see(SLOW, SLOW, SLOW)
        receiver.wait(1)
        running.desk.silence(silence(job="training")).result()
        running.see(NIC, HEALTHY, HEALTHY, HEALTHY)
        assert [body["event"] for body in receiver.wait(2)] == ["opened", "ended"]


def test_alertmanager_hears_of_a_silence_as_an_end_and_of_its_end_as_a_begin(tmp_path: Path) -> None:
    with Receiver() as receiver, Running(tmp_path, alertmanager(receiver)) as running:
        running.see(SLOW, SLOW, SLOW)
        receiver.wait(1)
        made = running.desk.silence(silence(machine="node1")).result()
        receiver.wait(2)
        running.desk.unsilence(made.number).result()
        first, silenced, again = (body[0] for body in receiver.wait(3))
    ends = [datetime.fromisoformat(each["endsAt"]) for each in (first, silenced, again)]
    assert ends[1] < ends[0] < ends[2]


def test_notices_are_told_to_those_who_want_them(tmp_path: Path) -> None:
    notice = job(verdict(None, "random_pauses", "notice"), health="ok")
    both = job(*notice.verdicts, verdict())
    with Receiver() as receiver:
        hooks = [
            HookConfig(name=name, kind="webhook", url=f"{receiver.url}/{name}", severity=name)
            for name in ("notice", "fail_slow", "fail_stop")
        ]
        with Running(tmp_path, *hooks) as running:
            running.see(notice, notice, notice, both, both, both)
            receiver.wait(3)
    assert sorted(path for path, _, _ in receiver.posts) == ["/fail_slow", "/notice", "/notice"]


def test_what_could_not_be_told_is_told_after_a_restart_once(tmp_path: Path, free_port: int) -> None:
    hook = HookConfig(name="pager", kind="webhook", url=f"http://127.0.0.1:{free_port}/")
    with Running(tmp_path, hook) as running:
        running.see(SLOW, SLOW, SLOW)
        wait_for(lambda: running.desk.status.hooks[0].problem == "Connection refused", "a failure")
        assert running.desk.status.hooks[0].waiting == 1
    with Receiver(free_port) as receiver, Running(tmp_path, hook) as running:
        assert [body["event"] for body in receiver.wait(1)] == ["opened"]
        running.see(SLOW, SLOW)
        wait_for(lambda: running.desk.status.hooks[0].waiting == 0, "nothing waiting")
        assert len(receiver.posts) == 1
    with sqlite3.connect(tmp_path / "state.sqlite") as connection:
        rows = connection.execute("SELECT hook, kind, state FROM deliveries").fetchall()
    assert rows == [("pager", "opened", "delivered")]


def test_a_receiver_that_is_overloaded_is_asked_again_and_one_that_refuses_is_not(tmp_path: Path) -> None:
    with Receiver(answers=(503, 400)) as receiver, Running(tmp_path, webhook(receiver)) as running:
        running.see(SLOW, SLOW, SLOW)
        wait_for(lambda: running.desk.status.hooks[0].failed == 1, "the refusal")
        running.see(NIC)
        assert [body["event"] for body in receiver.wait(1)] == ["updated"]
        wait_for(lambda: running.desk.status.hooks[0].delivered == 1, "the delivery")
        status = running.desk.status.hooks[0]
    assert (status.attempts_failed, status.dropped, status.problem) == (1, 0, None)


def test_a_receiver_that_hangs_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    with mute_server() as port, Receiver() as receiver:
        mute = HookConfig(name="mute", kind="webhook", url=f"http://127.0.0.1:{port}/", timeout_s=0.2)
        with Running(tmp_path, mute, webhook(receiver)) as running:
            running.see(SLOW, SLOW, SLOW)
            receiver.wait(1)
            wait_for(lambda: running.desk.status.hooks[0].attempts_failed > 0, "the time limit")


def drip(listener: socket.socket) -> None:
    """Answer a byte at a time, without an end."""
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        connection.sendall(b"HTTP/1.1 200")
        while True:
            connection.sendall(b"0")
            time.sleep(0.05)


def test_a_receiver_that_answers_in_drops_is_cut_off() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        channel = HttpChannel(HookConfig(name="x", kind="webhook", url=url, timeout_s=0.5))
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        with pytest.raises(UnreachableError, match="no HTTP answer"):
            channel.send("{}")
        thread.join()


def test_redirections_are_not_followed() -> None:
    with Receiver(answers=(307,)) as receiver:
        channel = HttpChannel(webhook(receiver))
        with pytest.raises(RefusedError, match="HTTP 307"):
            channel.send("{}")


def body(event: str = "opened") -> str:
    """A document as hooks get it."""
    incident = {
        "id": "i1", "job": "tra]in\"ing", "severity": "fail_stop", "cause": "hang", "machine": "node1",
        "nic": None, "confidence": 0.9, "started": "2026-01-02T03:04:05.000000Z", "summary": "node1\nhangs",
    }  # fmt: skip
    return json.dumps({"event": event, "at": "2026-01-02T03:04:06.000000Z", "url": "u", "incident": incident})


def test_a_command_gets_the_json_without_a_shell_and_without_our_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSE_CONTROLLER_TLS_KEY_FILE", "secret")
    script = (
        "import json, os, sys; "
        "json.dump([json.load(sys.stdin), sys.argv[1:], sorted(os.environ)], open(sys.argv[1], 'w'))"
    )
    out = tmp_path / "out $(touch x)"
    CommandChannel(
        HookConfig(name="x", kind="command", command=(sys.executable, "-c", script, str(out), "; rm"))
    ).send(body())
    told, arguments, names = json.loads(out.read_text())
    assert told == json.loads(body())
    assert arguments == [str(out), "; rm"]
    assert not any("PULSE" in name for name in names)


def test_a_command_that_fails_or_hangs_is_told_so_with_its_last_words(tmp_path: Path) -> None:
    def run(script: str, timeout_s: float = 10.0) -> None:
        command = (sys.executable, "-c", script)
        CommandChannel(HookConfig(name="x", kind="command", command=command, timeout_s=timeout_s)).send(
            body()
        )

    with pytest.raises(UnreachableError, match=r"exit status 3: x+ no such pager"):
        run("import sys; print('x' * 100000, 'no such pager', file=sys.stderr); sys.exit(3)")
    with pytest.raises(UnreachableError, match="killed by signal 15"):
        run("import os; os.kill(os.getpid(), 15)")
    child = (
        "import os, time; child = os.fork(); "
        "child and open(os.environ['TMPDIR'] + '/pid', 'w').write(str(child)); time.sleep(60)"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path))
        with pytest.raises(UnreachableError, match=r"not ended after 1 s, killed"):
            run(child, 1.0)
    child_pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not Path(f"/proc/{child_pid}/exe").exists(), "the child killed as well")
    with pytest.raises(FileNotFoundError):
        CommandChannel(HookConfig(name="x", kind="command", command=("/none",))).send(body())


@pytest.mark.parametrize("kind", ["udp", "tcp", "unix"])
def test_syslog_lines_are_those_of_rfc_5424(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "log")
    with socket.socket(
        socket.AF_UNIX if kind == "unix" else socket.AF_INET,
        socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM,
    ) as server:
        server.settimeout(10)
        server.bind(path if kind == "unix" else ("127.0.0.1", 0))
        if kind == "tcp":
            server.listen()
        where = f"unix:{path}" if kind == "unix" else f"{kind}:127.0.0.1:{server.getsockname()[1]}"
        SyslogChannel(HookConfig(name="x", kind="syslog", address=where, facility="local3")).send(body())
        if kind == "tcp":
            connection, _ = server.accept()
            with connection:
                length, _, line = connection.recv(4096).partition(b" ")
            assert int(length) == len(line)
        else:
            line = server.recv(4096)
    match = re.fullmatch(
        r"<(\d+)>1 (\S+) (\S+) pulse \d+ incident \[pulse@32473 ([^\n]*)\] \ufeff(.*)", line.decode()
    )
    assert match is not None, line
    assert int(match[1]) == 8 * 19 + 2
    assert match[2] == "2026-01-02T03:04:06.000000Z"
    assert r'job="tra\]in\"ing"' in match[4]
    assert match[5] == "opened: node1 hangs"


def test_a_syslog_socket_that_is_not_there_is_named(tmp_path: Path) -> None:
    channel = SyslogChannel(HookConfig(name="x", kind="syslog", address=f"unix:{tmp_path}/none"))
    with pytest.raises(UnreachableError, match="none: No such file"):
        channel.send(body())


def delivery(number: int, incident: int, kind: str) -> Delivery:
    """Something to tell."""
    return Delivery(number, "x", incident, kind, "{}", number)  # type: ignore[arg-type]


def test_a_full_queue_lets_the_oldest_go_and_counts_it() -> None:
    outbox = Outbox(3)
    gone = [each for n in range(1, 6) for each in outbox.put(delivery(n, n, "opened"))]
    assert [(each.number, each.state, each.error) for each in gone] == [
        (1, "dropped", "the queue is full"), (2, "dropped", "the queue is full")
    ]  # fmt: skip
    assert len(outbox) == 3


def test_repeats_and_updates_replace_each_other_but_not_begin_and_end() -> None:
    outbox = Outbox(10)
    kinds = ["opened", "updated", "updated", "repeated", "ended", "reopened", "repeated"]
    for number, kind in enumerate(kinds):
        outbox.put(delivery(number, 1, kind))
    outbox.put(delivery(9, 2, "updated"))
    outbox.close()
    assert [each.number for each in outbox._waiting] == [0, 3, 4, 5, 6, 9]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"kind": "webhook", "url": "http://h/"}, "hook 1: name is not set"),
        ({"name": "a", "kind": "pager"}, r"hook 1 \(a\): kind is 'pager'; it must be one of alertmanager"),
        ({"name": "a", "kind": "webhook"}, "kind webhook needs url"),
        ({"name": "a", "kind": "webhook", "url": "ftp://h"}, "it must be http://"),
        ({"name": "a", "kind": "webhook", "url": "http://u:p@h/"}, "headers_file"),
        ({"name": "a", "kind": "webhook", "ulr": "x"}, "did you mean url"),
        ({"name": "a", "kind": "syslog", "address": "h:1"}, "udp:HOST:PORT"),
        ({"name": "a", "kind": "command", "command": "rm -rf"}, "it must be a list of texts"),
        ({"name": "a", "kind": "command", "command": ["x"], "url": "http://h"}, "url is of hooks of kind"),
        ({"name": "a", "kind": "webhook", "url": "https://h", "headers_file": "/none"}, "is no file"),
    ],
)
def test_wrong_hooks_are_refused_with_the_place(table: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_hooks([table], "controller.toml")
