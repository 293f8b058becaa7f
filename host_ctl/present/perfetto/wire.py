# SPDX-License-Identifier: Apache-2.0
"""The few wire types of protobuf that a trace needs, written by hand."""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_MASK64 = (1 << 64) - 1


def varint(value: int) -> bytes:
    """An integer in groups of seven bits; negative ones as 64-bit two's complement."""
    value &= _MASK64
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    """A field of an integer, enum or bool."""
    return varint(field << 3 | _VARINT) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    """A field of a fixed64."""
    return varint(field << 3 | _FIXED64) + struct.pack("<Q", value & _MASK64)


def double(field: int, value: float) -> bytes:
    """A field of a double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """A field of an embedded message made of encoded fields."""
    content = b"".join(parts)
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def string(field: int, text: str) -> bytes:
    """A field of text."""
    return message(field, text.encode("utf-8", "replace"))
