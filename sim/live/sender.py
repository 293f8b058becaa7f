# SPDX-License-Identifier: Apache-2.0
"""The sender process of one group of software DPUs: ``python -m sim.live.sender``, started by LiveSink.

Reads one line of JSON (devices, room) and then messages from standard input, sends each frame when it is
due, and writes "ready" and a report, each one line, to standard output.
"""

from __future__ import annotations

import ctypes
import errno
import heapq
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque

from sim.live.messages import HEADER, START, Chunk, Kind
from sim.live.network import open_wire

LATE_NS = 1_000_000
"""A packet that is sent so long after its time counts as late: more than timers are wrong by."""

_BURST_PACKETS = 64
_READ_BYTES = 1 << 18
_RETRY_S = 50e-6
_IDLE_S = 1.0
_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29


class Sender:
    """Sends the packets of several NICs in the order of their times, and counts what becomes of them."""

    def __init__(self, wires: dict[int, socket.socket], source: int, room_bytes: int) -> None:
        self._wires = wires
        self._source = source
        self._room_bytes = room_bytes
        self._unread = bytearray()
        self._waiting: dict[int, deque[tuple[int, bytes]]] = {nic: deque() for nic in wires}
        self._waiting_bytes = 0
        self._open: dict[int, Chunk] = {}
        self._next: list[tuple[int, int]] = []  # heap of (due_ns, NIC), NICs that have an open chunk
        self._times = (0, 0, 1.0)
        self._round_over = False
        self._ended = False
        self.sent = dict.fromkeys(wires, 0)
        self.late = 0
        self.latest_ns = 0
        self.retried = 0

    def run(self) -> None:
        """Send until the end is told. Raises EOFError when the input ends before."""
        while not self._ended or self._next:
            self._send_due()
            self._read(self._wait_s())

    def _wait_s(self) -> float:
        if not self._next:
            return 0.0 if self._ended else _IDLE_S
        return max(0.0, (self._next[0][0] - time.monotonic_ns()) / 1e9)

    def _send_due(self) -> None:
        """At most a burst, so that packets of other NICs that are due earlier are read in time."""
        due = self._next
        for _ in range(_BURST_PACKETS):
            if not due:
                return
            due_ns, nic = due[0]
            late_ns = time.monotonic_ns() - due_ns
            if late_ns < 0:
                return
            if late_ns > LATE_NS:
                self.late += 1
            if late_ns > self.latest_ns:
                self.latest_ns = late_ns
            chunk = self._open[nic]
            self._send(nic, chunk.frame())
            next_ns = chunk.pass_on()
            if next_ns is not None:
                heapq.heapreplace(due, (next_ns, nic))
            else:
                heapq.heappop(due)
                self._open_next(nic)

    def _send(self, nic: int, frame: memoryview) -> None:
        while not _accepts(self._wires[nic], frame):
            self.retried += 1
            time.sleep(_RETRY_S)
        self.sent[nic] += 1

    def _open_next(self, nic: int) -> None:
        self._open.pop(nic, None)
        if self._waiting[nic]:
            packets, body = self._waiting[nic].popleft()
            self._waiting_bytes -= len(body)
            chunk = self._open[nic] = Chunk(packets, body, *self._times)
            heapq.heappush(self._next, (chunk.dues_ns[0], nic))

    def _read(self, wait_s: float) -> None:
        """Take input for as long as nothing is due; when there is no room, only wait.

        A round is always read to its end: until then packets of other NICs may be missing.
        """
        full = self._waiting_bytes > self._room_bytes and self._round_over
        if self._ended or full:
            time.sleep(wait_s)
            return
        readable, _, _ = select.select([self._source], [], [], wait_s)
        if readable:
            content = os.read(self._source, _READ_BYTES)
            if not content:
                raise EOFError
            self._unread += content
            self._take_messages()

    def _take_messages(self) -> None:
        at = 0
        while len(self._unread) - at >= HEADER.size:
            kind, nic, packets, size = HEADER.unpack_from(self._unread, at)
            if len(self._unread) - at - HEADER.size < size:
                break
            at += HEADER.size
            self._take(kind, nic, packets, bytes(self._unread[at : at + size]))
            at += size
        del self._unread[:at]

    def _take(self, kind: int, nic: int, packets: int, body: bytes) -> None:
        self._round_over = kind == Kind.ROUND
        if kind == Kind.PACKETS:
            self._waiting[nic].append((packets, body))
            self._waiting_bytes += len(body)
            if nic not in self._open:
                self._open_next(nic)
        elif kind == Kind.START:
            self._times = START.unpack(body)
        elif kind == Kind.END:
            self._ended = True


def _accepts(wire: socket.socket, frame: memoryview) -> bool:
    """Send a frame, unless the queue is full."""
    try:
        wire.send(frame)
    except OSError as error:
        if error.errno != errno.ENOBUFS:
            raise
        return False
    return True


def main() -> int:
    """Run the process; 0 = all sent, 1 = a device refused, 3 = the simulation went away."""
    # Ctrl-C reaches the whole process group; the simulation decides when its senders end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A killed simulation would otherwise leave a sender that goes on with what it has.
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        setting = json.loads(_first_line(sys.stdin.fileno()))
        wires = {nic: open_wire(namespace, wire) for nic, namespace, wire in setting["devices"]}
        print("ready", flush=True)
        sender = Sender(wires, sys.stdin.fileno(), setting["room_bytes"])
        sender.run()
    except EOFError:
        return 3
    except OSError as error:
        print(f"live output: a sender stopped: {error}", file=sys.stderr)
        return 1
    report = {"late": sender.late, "latest_ns": sender.latest_ns, "retried": sender.retried}
    print(json.dumps(report | {"sent": list(sender.sent.items())}), flush=True)
    return 0


def _first_line(source: int) -> bytes:
    """One line, not a byte more, because the messages follow."""
    line = bytearray()
    while not line.endswith(b"\n"):
        if not (byte := os.read(source, 1)):
            raise EOFError
        line += byte
    return bytes(line)


if __name__ == "__main__":
    sys.exit(main())
