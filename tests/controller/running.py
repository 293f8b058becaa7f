# SPDX-License-Identifier: Apache-2.0
"""Runs `pulse controller` as a process of its own, and real publishers against it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from dpu_app.service.publisher import ControllerConfig
from dpu_app.wire.frame import CaptureMode, ClockInfo, Frame, NicIdentity, encode_frame
from dpu_app.wire.tables import Tables
from dpu_app.wire.transport import ALPN, Decoder, Hello, Message, Position, Welcome, encode
from host_ctl.certs import init_authority, issue_machine, issue_server
from host_ctl.history.reader import StoredFrame, read_range

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "host_ctl.cli.main"]
WAIT_S = 30.0
_Kind = TypeVar("_Kind", bound=Message)


def wait_for(condition: Callable[[], bool], what: str = "", timeout_s: float = WAIT_S) -> None:
    """Wait until something is so; fail when it never is."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, f"this never came to be: {what}"
        time.sleep(0.01)


def made_frame(
    machine: str, nic: str, boot_id: str, sequence: int, *, padding: int = 0, begin_ns: int | None = None
) -> bytes:
    """An encoded frame without tables; padding makes it larger."""
    begin_ns = 1_700_000_000_000_000_000 + sequence * 10**9 if begin_ns is None else begin_ns
    counters = {f"{'c' * 200}{number}": number for number in range(padding // 206)}
    frame = Frame(
        NicIdentity(machine, nic), boot_id, sequence, begin_ns, begin_ns + 10**9, Tables({}),
        clock=ClockInfo("system"), mode=CaptureMode(), counters=counters,
    )  # fmt: skip
    return encode_frame(frame)


class Pki:
    """An authority made by `pulse certs`, with a controller's certificate and those of machines as asked."""

    def __init__(self, folder: Path, name: str = "pki") -> None:
        self.folder = folder / name
        self.ca = init_authority(self.folder, name, 30)
        self.server = issue_server(self.folder, ("localhost", "127.0.0.1"), 20)

    def machine(self, name: str) -> Path:
        """The certificate of a machine."""
        path = self.folder / f"{name}.crt"
        return path if path.exists() else issue_machine(self.folder, name, 20)

    def client(self, machine: str | None) -> ssl.SSLContext:
        """TLS of a machine's DPU, None for one without a certificate."""
        context = ssl.create_default_context(cafile=self.ca)
        context.set_alpn_protocols([ALPN])
        if machine is not None:
            certificate = self.machine(machine)
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        return context

    def publishing(self, port: int, machine: str) -> ControllerConfig:
        """Settings of a real publisher."""
        certificate = self.machine(machine)
        return ControllerConfig(
            f"localhost:{port}",
            ca_file=self.ca, cert_file=certificate, key_file=certificate.with_suffix(".key"),
            backoff_s=0.02, max_backoff_s=0.2,
        )  # fmt: skip


class Service:
    """A running `pulse controller`; a context that kills it when it is still there."""

    def __init__(
        self,
        folder: Path,
        pki: Pki | None,
        history: Path | None = None,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = (*COMMAND, "controller"),
        more: str = "",
        **settings: object,
    ) -> None:
        self.history = history or folder / "history"
        self._log = folder / f"log-{time.monotonic_ns()}"
        given: dict[str, object] = {
            "listen.address": f"127.0.0.1:{port}", "history.directory": str(self.history),
            "api.address": "127.0.0.1:0", "tls.reload_s": 0.2,
        }  # fmt: skip
        if pki is None:
            given["listen.plaintext"] = True
        else:
            key = pki.server.with_suffix(".key")
            given |= {"tls.ca_file": str(pki.ca), "tls.cert_file": str(pki.server), "tls.key_file": str(key)}
        given |= {key.replace("__", "."): value for key, value in settings.items()}
        self.file = folder / "controller.toml"
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items())
        self.file.write_text(lines + more)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--config", self.file],
                cwd=ROOT, env=os.environ | dict(environment or {}), stdout=log, stderr=log,
            )  # fmt: skip

    def __enter__(self) -> Service:  # noqa: PYI034  Self is of Python 3.11
        try:
            self.await_start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def await_start(self) -> None:
        """Wait until it listens."""
        wait_for(lambda: self.process.poll() is not None or "status on port" in self.log, "the start")
        assert self.process.poll() is None, self.log

    @property
    def log(self) -> str:
        """What it has written."""
        return self._log.read_text()

    @property
    def port(self) -> int:
        """Where DPUs connect."""
        return self._in_log(r"listening for DPUs on .* port (\d+)")

    @property
    def status_port(self) -> int:
        """Where it tells how it is."""
        return self._in_log(r"status on port (\d+)")

    def _in_log(self, pattern: str) -> int:
        found = re.search(pattern, self.log)
        assert found, self.log
        return int(found[1])

    def ask(self, path: str) -> tuple[int, str]:
        """Ask the status endpoint; return status and text."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.status_port}{path}", timeout=WAIT_S
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        """The value of a metric, summed over its labels."""
        rows = [line for line in self.ask("/metrics")[1].splitlines() if re.match(rf"{name}[{{ ]", line)]
        return sum(float(line.rpartition(" ")[2]) for line in rows)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """End it as systemd does; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)

    def stored(self) -> list[StoredFrame]:
        """What its history holds."""
        return list(read_range(self.history))


class Peer:
    """A client that may misbehave: it sends what it is told to, byte by byte if need be."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        raw = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.socket = raw if context is None else context.wrap_socket(raw, server_hostname="localhost")
        self._decoder = Decoder()
        self._messages: list[Message] = []

    def __enter__(self) -> Peer:  # noqa: PYI034  Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *messages: Message | bytes) -> None:
        """Send messages, or bytes as they are."""
        for message in messages:
            self.socket.sendall(message if isinstance(message, bytes) else encode(message))

    def greet(
        self, machine: str, nic: str = "mlx5_0", boot_id: str = "life", kept: tuple[Position, ...] = ()
    ) -> Welcome:
        """Greet and be welcomed."""
        self.send(Hello(machine, nic, boot_id, kept, time.time_ns(), (1,), "test"))
        return self.receive(Welcome)

    def receive(self, kind: type[_Kind]) -> _Kind:
        """Return the next message of a kind, passing over others. Raises ConnectionError at the end."""
        while True:
            while self._messages:
                message = self._messages.pop(0)
                if isinstance(message, kind):
                    return message
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the controller has closed the connection")
            self._messages += self._decoder.feed(data)

    def is_closed(self) -> bool:
        """Read until the other side has ended the connection."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True
