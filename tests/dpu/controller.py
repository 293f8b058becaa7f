# SPDX-License-Identifier: Apache-2.0
"""A controller for tests: it keeps frames in memory, and misbehaves on demand."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dpu_app.wire.frame import Frame, decode_frame
from dpu_app.wire.transport import (
    Ack,
    Decoder,
    FrameData,
    Hello,
    Limits,
    Message,
    Ping,
    Pong,
    Position,
    Refuse,
    RefuseReason,
    Welcome,
    encode,
)


@dataclass
class Behaviour:
    """What the controller does with connections from now on."""

    limits: Limits = field(default_factory=Limits)
    acknowledges: bool = True
    reads: bool = True
    refuses: RefuseReason | None = None
    refuses_frame: Callable[[Frame], bool] = lambda _: False
    answers_pings: bool = True
    extra: Message | None = None  # sent after the greeting


class Controller:
    """Listens on a free port of this machine; `frames` are all that came, in order, repeats too."""

    def __init__(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.behaviour = Behaviour()
        self.frames: list[Frame] = []
        self.hellos: list[Hello] = []
        self.pongs: list[tuple[Pong, int]] = []
        self.peers: list[dict[str, object]] = []
        self.handshake_errors: list[str] = []
        self._tls = tls
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._closed = False
        self._durable: dict[tuple[str, str], int] = {}
        self._thread = threading.Thread(target=self._accept, name="controller")
        self._workers: list[threading.Thread] = []
        self._thread.start()

    def __enter__(self) -> Controller:  # noqa: PYI034  Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self.disconnect()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for worker in self._workers:
            worker.join()

    @property
    def keys(self) -> list[tuple[str, int]]:
        """Boot id and sequence of every frame that came."""
        return [(frame.boot_id, frame.sequence) for frame in self.frames]

    def disconnect(self) -> None:
        """End the connections that there are."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def wait(self, condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
        """Wait until something is so; fail when it never is."""
        end_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end_s, f"{self.keys=} {self.handshake_errors=}"
            time.sleep(0.01)

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            worker = threading.Thread(target=self._serve, args=(connection,), name="connection")
            self._workers.append(worker)
            worker.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                if self._tls is not None:
                    connection = self._tls.wrap_socket(connection, server_side=True)
                    self._connections.append(connection)
                    self.peers.append(dict(connection.getpeercert() or {}))
                self._talk(connection)
            except ssl.SSLError as error:
                self.handshake_errors.append(str(error))
            except OSError:
                return
            finally:
                connection.close()

    def _talk(self, connection: socket.socket) -> None:
        decoder = Decoder()
        while not self._closed:
            if not self.behaviour.reads:
                time.sleep(0.02)
                continue
            data = connection.recv(1 << 16)
            if not data:
                return
            for message in decoder.feed(data):
                for answer in self._answers(message):
                    connection.sendall(encode(answer))
                    if isinstance(answer, Refuse) and answer.frame is None:
                        return

    def _answers(self, message: Message) -> list[Message]:
        if isinstance(message, Hello):
            self.hellos.append(message)
            if self.behaviour.refuses is not None:
                return [Refuse(self.behaviour.refuses, "not today")]
            known = tuple(
                Position(kept.nic, kept.boot_id, self._durable[(kept.nic, kept.boot_id)])
                for kept in message.kept
                if (kept.nic, kept.boot_id) in self._durable
            )
            extra = [] if self.behaviour.extra is None else [self.behaviour.extra]
            return [Welcome(known, time.time_ns(), self.behaviour.limits), Ping(7, time.time_ns()), *extra]
        if isinstance(message, Ping) and self.behaviour.answers_pings:
            return [Pong(message.number, message.sent_ns, time.time_ns(), time.time_ns())]
        if isinstance(message, Pong):
            self.pongs.append((message, time.time_ns()))
        if isinstance(message, FrameData):
            return self._take(decode_frame(message.data))
        return []

    def _take(self, frame: Frame) -> list[Message]:
        position = Position(frame.nic.nic, frame.boot_id, frame.sequence)
        if self.behaviour.refuses_frame(frame):
            return [Refuse(RefuseReason.FRAME, "not this one", position)]
        self.frames.append(frame)
        if not self.behaviour.acknowledges:
            return []
        self._durable[(position.nic, position.boot_id)] = position.sequence
        return [Ack((position,))]
