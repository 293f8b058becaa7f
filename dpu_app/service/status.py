# SPDX-License-Identifier: Apache-2.0
"""What the service tells about itself: as JSON, as text, and as metrics, over a local UNIX socket.

The socket speaks HTTP/1.0 with the paths /status and /metrics, so that usual tools can ask it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_MAX_REQUEST = 8192
_TIMEOUT_S = 5.0
Status = dict[str, Any]


class StatusServer:
    """Answers on a UNIX socket; `tell` is asked for every answer. A context that removes the socket."""

    def __init__(self, path: Path, tell: Callable[[], Status]) -> None:
        self._path = path
        self._tell = tell
        self._server: asyncio.AbstractServer | None = None

    async def __aenter__(self) -> StatusServer:  # noqa: PYI034  Self is of Python 3.11
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(self._path.lstat().st_mode):
                self._path.unlink()  # of a process that was killed
        try:
            self._server = await asyncio.start_unix_server(self._answer, self._path, limit=_MAX_REQUEST)
            self._path.chmod(0o660)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(error.errno, f"the status socket {self._path} cannot be made: {reason}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.LimitOverrunError):
            request = await asyncio.wait_for(reader.readline(), _TIMEOUT_S)
            path = [*request.split(), b"", b""][1].decode("ascii", "replace")
            if path == "/status":
                line, kind, body = "200 OK", "application/json", json.dumps(self._tell())
            elif path == "/metrics":
                line, kind, body = "200 OK", "text/plain; version=0.0.4", metrics_text(self._tell())
            else:
                line, kind, body = "404 Not Found", "text/plain", "/status or /metrics\n"
            content = body.encode()
            head = f"HTTP/1.0 {line}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
            writer.write(head.encode() + content)
            await asyncio.wait_for(writer.drain(), _TIMEOUT_S)
        writer.close()


def ask_status(path: Path, what: str) -> str:
    """Return the answer of a running service to /status or /metrics. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.settimeout(_TIMEOUT_S)
        asker.connect(str(path))
        asker.sendall(f"GET {what} HTTP/1.0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: asker.recv(1 << 16), b""))
    return answer.partition(b"\r\n\r\n")[2].decode()


def status_text(status: Status) -> str:
    """Return a status as lines for people."""
    capture, controller, spool, clock = (status[part] for part in ("capture", "controller", "spool", "clock"))
    ring, interface, unstamped = (capture[name] for name in ("dropped", "interface_losses", "unstamped"))
    lost = f"ring {ring}, interface {interface}, unstamped {unstamped}"
    waiting = f"{spool['memory_bytes']} bytes in memory, {spool['disk_bytes']} on disk"
    made, fates = status["frames"]["made"], f"{spool['dropped']} dropped, {spool['refused']} refused"
    error = "unknown" if clock["error_ns"] is None else f"{clock['error_ns']} ns"
    lines = [
        f"{status['machine']}/{status['nic']} on {status['interface']}, {status['mode']} packets",
        f"  captured    {capture['packets']} packets, lost {capture['lost']} ({lost})",
        f"  frames      {made} made, {spool['frames']} waiting ({waiting}), {fates}",
        f"  clock       {clock['source']}, claimed error {error}, set {clock['steps']} times",
    ]
    if controller is None:
        lines.append("  controller  none configured: frames are kept, not sent")
    else:
        state = (
            "connected" if controller["connected"] else f"not connected: {controller['error'] or 'not yet'}"
        )
        lines.append(
            f"  controller  {controller['address']} {state}; {controller['acknowledged']} frames acknowledged"
        )
    return "\n".join(lines) + "\n"


# Metric, its type, its help, and where in the status it stands.
_METRICS = (
    ("captured_packets_total", "counter", "Packets that the capture handed on.", ("capture", "packets")),
    ("lost_packets_total", "counter", "Packets that passed and were not captured.", ("capture", "lost")),
    ("ring_freezes_total", "counter", "How often a packet ring became full.", ("capture", "freezes")),
    ("interface_downs_total", "counter", "How often the interface went down.", ("capture", "times_down")),
    ("frames_total", "counter", "Frames made.", ("frames", "made")),
    ("frame_bytes_total", "counter", "Bytes of frames made.", ("frames", "bytes")),
    ("frames_sent_total", "counter", "Frames sent, repeats included.", ("controller", "sent")),
    (
        "frames_acknowledged_total",
        "counter",
        "Frames that the controller has.",
        ("controller", "acknowledged"),
    ),
    ("frames_dropped_total", "counter", "Frames dropped because the spool was full.", ("spool", "dropped")),
    ("frames_refused_total", "counter", "Frames that the controller refused.", ("spool", "refused")),
    ("spool_frames", "gauge", "Frames that wait.", ("spool", "frames")),
    ("spool_memory_bytes", "gauge", "Bytes of frames that wait in memory.", ("spool", "memory_bytes")),
    ("spool_disk_bytes", "gauge", "Bytes of the spool's files.", ("spool", "disk_bytes")),
    ("connected", "gauge", "1 while the controller answers.", ("controller", "connected")),
    ("connection_failures_total", "counter", "Connections that failed or ended.", ("controller", "failures")),
    ("controller_offset_seconds", "gauge", "The controller's clock minus ours.", ("controller", "offset_s")),
    ("clock_error_seconds", "gauge", "Claimed error of the clock of the stamps.", ("clock", "error_s")),
    ("clock_steps_total", "counter", "How often the clock of the stamps was set.", ("clock", "steps")),
)


def metrics_text(status: Status) -> str:
    """Return a status in Prometheus' text format; what is unknown is left out."""
    return "".join(f"{line}\n" for line in _metric_lines(status))


def _metric_lines(status: Status) -> Iterator[str]:
    names = ("machine", "nic")
    labels = ",".join(f'{name}="{_escaped(str(status[name]))}"' for name in names)
    for name, kind, text, (part, key) in _METRICS:
        value = (status[part] or {}).get(key)
        if value is not None:
            yield f"# HELP pulse_dpu_{name} {text}"
            yield f"# TYPE pulse_dpu_{name} {kind}"
            yield f"pulse_dpu_{name}{{{labels}}} {float(value):.12g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
