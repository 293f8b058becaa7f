# SPDX-License-Identifier: Apache-2.0
"""A desk in a folder, and receivers that hear what hooks tell."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from host_ctl.incidents.desk import Desk, DeskConfig
from host_ctl.incidents.hooks.config import HookConfig
from host_ctl.live.findings import JobState
from tests.controller.running import wait_for
from tests.incidents.made import QUICK, URL, findings


class Running:
    """A desk that is shown one look after the other."""

    def __init__(self, folder: Path, *hooks: HookConfig, keep_days: float = 365.0) -> None:
        self.desk = Desk(DeskConfig(folder, QUICK, keep_days, hooks, URL))
        self.events: list[Any] = []
        self.desk.listen(self.events.append)
        self.looks = 0

    def __enter__(self) -> Running:  # noqa: PYI034  Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.desk.stop()

    def see(self, *looks: JobState) -> None:
        """Show looks, and wait until they have been looked at."""
        before = self.desk.status.looks
        for each in looks:
            self.looks += 1
            self.desk.take(findings(self.looks, each))
        wait_for(lambda: self.desk.status.looks == before + len(looks), "the looks")
        self.tick()

    def tick(self) -> None:
        """Let a second pass, as far as the desk knows."""
        before = self.desk._ticking
        self.desk.tick()
        ticking = self.desk._ticking
        if ticking is not None and ticking is not before:
            ticking.result()


class Receiver:
    """An HTTP server that keeps what is posted; it answers with `answers` in turn, then with 200."""

    def __init__(self, port: int = 0, answers: tuple[int, ...] = ()) -> None:
        self.posts: list[tuple[str, Any, dict[str, str]]] = []
        self.answers = list(answers)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.answers.pop(0) if receiver.answers else 200
                if status == 200:
                    receiver.posts.append((self.path, json.loads(body), dict(self.headers)))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def __enter__(self) -> Receiver:  # noqa: PYI034  Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def wait(self, count: int) -> list[Any]:
        """Return the documents, once there are so many."""
        wait_for(lambda: len(self.posts) >= count, f"{count} posts, there are {self.posts}")
        return [body for _, body, _ in self.posts]


@contextlib.contextmanager
def mute_server() -> Iterator[int]:
    """A server that takes connections and never says anything; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])
