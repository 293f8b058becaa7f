# SPDX-License-Identifier: Apache-2.0
"""The API over a desk of a test, and a client for it."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from host_ctl.api.server import ApiConfig, ApiThread
from host_ctl.api.snapshot import NicSnapshot, Snapshot
from host_ctl.incidents.hooks.config import HookConfig
from tests.controller.running import WAIT_S
from tests.incidents.desks import Running
from tests.incidents.made import MACHINES, URL

NIC_COUNTS = (
    "connections", "frames", "bytes", "duplicates", "late", "reordered", "missing", "restarts", "refused",
)  # fmt: skip
INGEST_COUNTS = (
    "accepted", "refused_full", "failed_handshakes", "refused_identity", "refused_schema", "refused_frame",
    "refused_busy", "protocol_errors", "too_slow", "silent", "replaced",
)  # fmt: skip
HISTORY_COUNTS = (
    "segments", "bytes", "frames", "dropped_segments", "dropped_frames", "damaged_bytes", "damaged_segments",
    "torn_bytes", "commits",
)  # fmt: skip


def snapshot(problem: str | None = None, age_s: float = 0.0) -> Snapshot:
    """A controller with four NICs."""
    nics = tuple(
        NicSnapshot(
            machine, "mlx5_0", "life", "pulse-dpu", True, dict.fromkeys(NIC_COUNTS, 1), 7, 10**18, None
        )
        for machine in MACHINES
    )
    return Snapshot(
        time.monotonic() - age_s, 5.0, problem, 4, 0, 10, 0, dict.fromkeys(INGEST_COUNTS, 0),
        dict.fromkeys(HISTORY_COUNTS, 0), None, None, nics, None,
    )  # fmt: skip


class Served:
    """The API of a desk; `state` is what the controller says of itself."""

    def __init__(self, folder: Path, *hooks: HookConfig, **config: Any) -> None:
        self.running = Running(folder, *hooks)
        self.state = snapshot()
        given = {"host": "127.0.0.1", "port": 0, "url": URL, "streams": 4} | config
        self.api = ApiThread(ApiConfig(**given), lambda: self.state, self.running.desk, folder)
        self.see = self.running.see

    def __enter__(self) -> Served:  # noqa: PYI034  Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.api.stop()
        self.running.desk.stop()

    def connection(self, context: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        """A connection to it."""
        if context is not None:
            return http.client.HTTPSConnection("localhost", self.api.port, timeout=WAIT_S, context=context)
        return http.client.HTTPConnection("127.0.0.1", self.api.port, timeout=WAIT_S)

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: object = None,
        headers: dict[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> tuple[int, Any]:
        """Ask; return status and answer, which is text where it is no JSON."""
        connection = self.connection(context)
        with contextlib.closing(connection):
            sent = {} if body is None else {"Content-Type": "application/json"}
            data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            connection.request(method, path, data, sent | (headers or {}))
            answer = connection.getresponse()
            text = answer.read().decode()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text

    @contextlib.contextmanager
    def stream(self, last_id: str | None = None) -> Iterator[Iterator[tuple[str, str, Any]]]:
        """Read the event stream: (id, kind, data)."""
        connection = self.connection()
        with contextlib.closing(connection):
            headers = {} if last_id is None else {"Last-Event-ID": last_id}
            connection.request("GET", "/api/v1/events", headers=headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.readline().startswith(b":")
            yield events_of(answer)


def events_of(answer: http.client.HTTPResponse) -> Iterator[tuple[str, str, Any]]:
    """Yield events until the stream ends."""
    fields: dict[str, str] = {}
    while line := answer.readline():
        assert not line.startswith(b": still"), "nothing comes"
        key, _, value = line.decode().rstrip("\n").partition(": ")
        if key:
            fields[key] = value
        elif "event" in fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            fields = {}
