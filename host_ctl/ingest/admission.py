# SPDX-License-Identifier: Apache-2.0
"""Looks at a frame that came, before it is kept: readable, of whom it should be, within the limits."""

from __future__ import annotations

import msgpack
import zstandard

from dpu_app.wire.errors import FrameFormatError, FrameSchemaError
from dpu_app.wire.fields import FieldReader
from dpu_app.wire.frame import Frame, decode_frame
from dpu_app.wire.tables import MAX_SECTION_BYTES
from dpu_app.wire.transport import Position, RefuseReason
from host_ctl.history.records import UNKNOWN_NS, FrameKey
from host_ctl.ingest.peer_clock import ClockReading

_INT64 = (-(2**63), 2**63 - 1)


class RejectedError(Exception):
    """A frame that is not taken; without a position the connection must end, since nothing settles it."""

    def __init__(self, reason: RefuseReason, text: str, position: Position | None) -> None:
        super().__init__(text)
        self.reason = reason
        self.position = position


def admit(data: bytes, machine: str, nic: str, table_bytes: int) -> Frame:
    """Return the frame, its tables unopened; they fit into `table_bytes`. Raises RejectedError."""
    try:
        frame = decode_frame(data)
    except FrameSchemaError as error:
        raise RejectedError(RefuseReason.SCHEMA, str(error), _position_in(data, nic)) from error
    except FrameFormatError as error:
        raise RejectedError(RefuseReason.FRAME, str(error), _position_in(data, nic)) from error
    position = Position(nic, frame.boot_id, frame.sequence)
    if (frame.nic.machine, frame.nic.nic) != (machine, nic):
        whose = f"{frame.nic.machine}/{frame.nic.nic}"
        text = f"a frame of {whose[:80]} came over the connection of {machine}/{nic}"
        raise RejectedError(RefuseReason.IDENTITY, text, position)
    problem = _table_problem(frame, table_bytes)
    if problem is not None:
        raise RejectedError(RefuseReason.FRAME, problem, position)
    return frame


def key_of(frame: Frame, received_ns: int, clock: ClockReading | None) -> FrameKey:
    """Return the key under which a frame is kept, its times brought to the controller's clock."""
    shift_ns = 0 if clock is None else -clock.offset_ns
    if frame.clock_pairs:
        nic_ns, system_ns = frame.clock_pairs[-1]
        shift_ns += system_ns - nic_ns
    elif frame.clock.source != "system":
        shift_ns = received_ns - frame.end_ns  # nothing better is known of a clock without readings
    return FrameKey(
        frame.nic.machine,
        frame.nic.nic,
        frame.boot_id,
        frame.sequence,
        received_ns,
        _clamped(frame.begin_ns + shift_ns),
        _clamped(frame.end_ns + shift_ns),
        0 if clock is None else _clamped(clock.offset_ns),
        UNKNOWN_NS if clock is None else min(clock.uncertainty_ns, UNKNOWN_NS),
    )


def _clamped(ns: int) -> int:
    return min(max(ns, _INT64[0]), _INT64[1])


def _table_problem(frame: Frame, table_bytes: int) -> str | None:
    """What is wrong with the sizes that the tables claim, without opening one."""
    sections = frame.tables.sections()
    total = sum(section.raw_bytes for section in sections.values())
    if total > table_bytes:
        return f"its tables claim {total} bytes; {table_bytes} are allowed"
    for name, section in sections.items():
        if section.raw_bytes > MAX_SECTION_BYTES:
            return f"section {name[:40]} claims {section.raw_bytes} bytes; {MAX_SECTION_BYTES} are allowed"
        try:
            content = zstandard.get_frame_parameters(section.data).content_size
        except zstandard.ZstdError:
            return f"section {name[:40]} is no zstd data"
        if content != section.raw_bytes:
            return f"section {name[:40]} claims {section.raw_bytes} bytes, its data {content}"
    return None


def _position_in(data: bytes, nic: str) -> Position | None:
    """Where a frame belongs that cannot be read as a whole, if so much of it can be."""
    try:
        fields = msgpack.unpackb(data, strict_map_key=True, max_ext_len=0)
        if not isinstance(fields, dict):
            return None
        reader = FieldReader(fields)
        return Position(nic, reader.text("boot_id"), reader.integer("sequence"))
    except (FrameFormatError, ValueError, RecursionError, msgpack.exceptions.UnpackException):
        return None
