# SPDX-License-Identifier: Apache-2.0
"""Asks a running ptp4l, through its management socket, how far its clock may be off.

The question is IEEE 1588's management message GET for CURRENT_DATA_SET; the claim is the size of the offset
that the servo last saw.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

_TIMEOUT_S = 0.05
_MANAGEMENT, _GET, _RESPONSE = 0x0D, 0, 2
_TLV_MANAGEMENT, _CURRENT_DATA_SET = 1, 0x2001
_HEADER = struct.Struct(">BBHBBHq4s8sHHBb")
_TARGET = struct.Struct(">8sHBBBB")
_TLV = struct.Struct(">HHH")
_DATA = struct.Struct(">Hqq")
_SCALE = 1 << 16  # of a time interval: parts of a nanosecond


def ask_ptp4l(path: Path, timeout_s: float = _TIMEOUT_S) -> int | None:
    """Return the offset that ptp4l sees, without sign, in ns; None when there is no answer in time."""
    number = int.from_bytes(os.urandom(2), "big")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asker:
            # ptp4l answers to an address; an abstract one leaves no file.
            asker.bind(f"\0pulse-dpu-{os.getpid()}-{number}")
            asker.settimeout(timeout_s)
            asker.sendto(_question(number), str(path))
            end_s = time.monotonic() + timeout_s
            while (left_s := end_s - time.monotonic()) > 0:
                asker.settimeout(left_s)
                offset_ns = _offset_in(asker.recv(1500), number)
                if offset_ns is not None:
                    return offset_ns
    except OSError:
        return None
    return None


def _question(number: int) -> bytes:
    tlv = _TLV.pack(_TLV_MANAGEMENT, 2, _CURRENT_DATA_SET)
    target = _TARGET.pack(b"\xff" * 8, 0xFFFF, 0, 0, _GET, 0)
    length = _HEADER.size + len(target) + len(tlv)
    source = os.getpid() & 0xFFFF
    header = _HEADER.pack(_MANAGEMENT, 2, length, 0, 0, 0, 0, bytes(4), bytes(8), source, number, 4, 0x7F)
    return header + target + tlv


def _offset_in(message: bytes, number: int) -> int | None:
    """Return the offset in an answer to question `number`; None in any other message."""
    if len(message) < _HEADER.size + _TARGET.size + _TLV.size + _DATA.size:
        return None
    header = _HEADER.unpack_from(message)
    action = _TARGET.unpack_from(message, _HEADER.size)[4]
    kind, _, data_set = _TLV.unpack_from(message, _HEADER.size + _TARGET.size)
    expected = (_MANAGEMENT, number, _RESPONSE, _TLV_MANAGEMENT, _CURRENT_DATA_SET)
    if (header[0] & 0x0F, header[10], action & 0x0F, kind, data_set) != expected:
        return None
    _, offset, _ = _DATA.unpack_from(message, _HEADER.size + _TARGET.size + _TLV.size)
    return abs(int(offset)) // _SCALE
