# SPDX-License-Identifier: Apache-2.0
"""A small capture on the receiving side of live devices, written without the product's own."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

from sim.live.network import LiveDevice, in_namespace

_ALL_PROTOCOLS = 3
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 256 << 20
_MAX_FRAME = 65_536


class Capture:
    """Every frame that each device receives, with kernel stamps: ``packets[nic]`` = (ns, bytes) in order."""

    def __init__(self) -> None:
        self.packets: dict[int, list[tuple[int, bytes]]] = {}
        self.dropped = 0
        self.devices: tuple[LiveDevice, ...] = ()
        self._sockets: dict[int, socket.socket] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="capture")

    def begin(self, devices: Sequence[LiveDevice]) -> None:
        """Open a socket on every device."""
        self.devices = tuple(devices)
        for device in devices:
            self._sockets[device.nic] = in_namespace(device.namespace, lambda name=device.name: _open(name))
            self.packets[device.nic] = []
        self._thread.start()

    def end(self, _devices: Sequence[LiveDevice] = ()) -> None:
        """Take what has arrived and close."""
        if not self._thread.is_alive():
            return
        self._stop.set()
        self._thread.join()
        for opened in self._sockets.values():
            statistics = opened.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
            self.dropped += struct.unpack("II", statistics)[1]
            opened.close()

    def write(self, folder: Path) -> None:
        """One nanosecond pcap file per NIC."""
        for device in self.devices:
            with (folder / f"node{device.machine}.pcap").open("wb") as out:
                out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, _MAX_FRAME, 1))
                for ns, frame in self.packets[device.nic]:
                    out.write(struct.pack("<IIII", *divmod(ns, 1_000_000_000), len(frame), len(frame)))
                    out.write(frame)

    def _work(self) -> None:
        with selectors.DefaultSelector() as selector:
            for nic, opened in self._sockets.items():
                selector.register(opened, selectors.EVENT_READ, (opened, self.packets[nic]))
            while True:
                ready = selector.select(0.1)
                for key, _ in ready:
                    _receive(*key.data)
                if not ready and self._stop.is_set():
                    return


def _receive(opened: socket.socket, packets: list[tuple[int, bytes]]) -> None:
    for _ in range(256):
        try:
            frame, ancillary, _, _ = opened.recvmsg(_MAX_FRAME, 64)
        except BlockingIOError:
            return
        seconds, nanos = struct.unpack("qq", ancillary[0][2])
        packets.append((seconds * 1_000_000_000 + nanos, frame))


def _open(device: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    opened.setblocking(False)
    opened.bind((device, _ALL_PROTOCOLS))
    return opened
