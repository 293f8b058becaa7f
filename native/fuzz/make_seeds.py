# SPDX-License-Identifier: Apache-2.0
"""Write inputs that fuzzing begins with: `python -m native.fuzz.make_seeds DIR`.

A target that starts from nothing spends hours on magic numbers. What it then finds is kept in
native/fuzz/corpus, cut down to what still covers something (`make fuzz-corpus`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.native.captures import Packet, Roce, frame, pcap, pcapng

# Opcode: bytes of the headers behind BTH.
_OPCODES = {0x06: 16, 0x07: 0, 0x08: 0, 0x0A: 16, 0x0B: 20, 0x0C: 16, 0x0D: 4, 0x11: 4, 0x13: 28, 0x64: 8}


def packets() -> list[Packet]:
    """One packet of each kind, over IPv4 and IPv6."""
    made = []
    for number, (opcode, extension) in enumerate(_OPCODES.items()):
        for src, dst in (("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")):
            fields = Roce(opcode, bytes(extension), bytes(8), psn=number, src=src, dst=dst)
            data = frame(fields)
            made.append(Packet(1_700_000_000_000_000_000 + 1000 * number, data, len(data)))
    return made


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield target and input."""
    some = packets()
    for order in "<>":
        yield "reader", b"\x20" + pcap(some[:3], order=order)
        yield "reader", b"\x20" + pcap(some[:3], order=order, nanoseconds=False)
        yield "reader", b"\x20" + pcapng(some[:3], order=order)
    for packet in some:
        yield "parser", b"\x00" + packet.data
        yield "parser", b"\x01" + bytes(14) + packet.data[12:]
    draws = np.random.default_rng(1)
    for target in ("meter", "store", "frame"):
        for length in (8, 64, 512):
            yield target, draws.bytes(length)
    # A flow with a window of one packet and a long entry, and the same in the layout of older frames.
    yield "frame", bytes(4) + bytes([1, 5, 6, 0x00, 0xC3, 2, 0, 1, 8])
    yield "frame", bytes(4) + bytes([1, 5, 0x80, 0x20, 1, 4, 2, 2, 0, 0, 0])


def main(folder: Path) -> None:
    """Write each seed to a folder of its target."""
    for number, (target, data) in enumerate(seeds()):
        path = folder / f"fuzz_{target}" / f"seed{number:03}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
