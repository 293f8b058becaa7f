# SPDX-License-Identifier: Apache-2.0
"""The frame: what one NIC saw in one interval, as it travels from a DPU to the controller.

`encode_frame` and `decode_frame` are each other's inverse; docs/wire-format.md describes the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgpack

from dpu_app.wire.errors import FrameFormatError, FrameSchemaError
from dpu_app.wire.fields import FieldReader
from dpu_app.wire.tables import Section, Tables

SCHEMA = 1

MAX_FRAME_BYTES = 64 << 20
"""Largest encoded frame that is read."""

MAX_SECTIONS = 64
MAX_ADDRESSES = 256
MAX_CLOCK_PAIRS = 4096
MAX_NAMED_COUNTS = 4096


class CaptureKind(Enum):
    """Which packets of the NIC a capture takes."""

    ALL = "all"
    STEERED = "steered"
    SAMPLED = "sampled"


@dataclass(frozen=True, slots=True)
class CaptureMode:
    """How a capture was taken; `sample_shift` k of a sampled one means one packet in 2^k."""

    kind: CaptureKind = CaptureKind.ALL
    sample_shift: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.sample_shift <= 24 or (self.sample_shift > 0) != (self.kind is CaptureKind.SAMPLED):
            raise ValueError(
                f"capture mode {self.kind.value} does not go with sample_shift {self.sample_shift}"
            )

    def __str__(self) -> str:
        return f"sampled 1/2^{self.sample_shift}" if self.kind is CaptureKind.SAMPLED else self.kind.value


@dataclass(frozen=True, slots=True)
class NicIdentity:
    """A NIC: its machine, its device name, and the IP addresses it is known to own, as text."""

    machine: str
    nic: str
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClockInfo:
    """What drives the clock of the timestamps, for example "free", "ptp", "system", and its claimed error."""

    source: str
    error_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One NIC and interval.

    `sequence` counts the frames of one `boot_id` without holes; an interval of silence may have no frame, so
    begin and end tell what one covers. `clock_pairs` are readings (NIC clock, system clock) in nanoseconds.
    `losses` counts what the capture and the meter lost, `packets` what became of the packets taken.
    `counters` are those of the device (evidence only). `final` marks the last frame of a capture that ended.
    """

    nic: NicIdentity
    boot_id: str
    sequence: int
    begin_ns: int
    end_ns: int
    tables: Tables = field(compare=False)
    clock: ClockInfo = ClockInfo("unknown")
    clock_pairs: tuple[tuple[int, int], ...] = ()
    mode: CaptureMode = CaptureMode()
    losses: Mapping[str, int] = field(default_factory=dict)
    packets: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    final: bool = False
    schema: int = SCHEMA


def encode_frame(frame: Frame) -> bytes:
    """Return the bytes of a frame. Raises FrameFormatError when a section is larger than readers accept."""
    sections = frame.tables.sections()
    fields: dict[str, Any] = {
        "schema": frame.schema,
        "nic": [frame.nic.machine, frame.nic.nic, list(frame.nic.addresses)],
        "boot_id": frame.boot_id,
        "sequence": frame.sequence,
        "begin_ns": frame.begin_ns,
        "end_ns": frame.end_ns,
        "clock": [frame.clock.source, frame.clock.error_ns],
        "clock_pairs": [list(pair) for pair in frame.clock_pairs],
        "mode": [frame.mode.kind.value, frame.mode.sample_shift],
        "losses": dict(frame.losses),
        "packets": dict(frame.packets),
        "counters": dict(frame.counters),
        "final": frame.final,
    }
    # Section by section: a packer of the whole would hold it twice more while it grows.
    packer = msgpack.Packer()
    parts: list[bytes] = [packer.pack_map_header(len(fields) + 1)]
    for name, value in fields.items():
        parts += [packer.pack(name), packer.pack(value)]
    parts += [packer.pack("sections"), packer.pack_map_header(len(sections))]
    for name, section in sections.items():
        parts += [packer.pack(name), packer.pack_array_header(3)]
        parts += [packer.pack(section.rows), packer.pack(section.raw_bytes)]
        parts += [_binary_header(len(section.data)), section.data]
    return b"".join(parts)


def _binary_header(size: int) -> bytes:
    """Return what msgpack writes before `size` bytes."""
    for code, width in ((0xC4, 1), (0xC5, 2), (0xC6, 4)):
        if size < 1 << (8 * width):
            return bytes([code]) + size.to_bytes(width, "big")
    raise FrameFormatError(f"a section of {size} bytes does not fit in a frame")


def decode_frame(data: bytes) -> Frame:
    """Return the frame; its tables stay compressed until they are read, and damage in one shows only then.

    Raises FrameSchemaError for another schema, FrameFormatError for damage or exceeded bounds.
    """
    reader = FieldReader(_unpack(data))
    schema = reader.integer("schema")
    if schema != SCHEMA:
        raise FrameSchemaError(
            f"frame of schema {schema}; this version reads schema {SCHEMA}: update the older of the two sides"
        )
    machine, nic, addresses = reader.array("nic", 3, 3)
    clock_source, clock_error = reader.array("clock", 2, 2)
    begin_ns, end_ns = reader.integer("begin_ns", signed=True), reader.integer("end_ns", signed=True)
    if end_ns < begin_ns:
        raise FrameFormatError(f"the frame ends at {end_ns}, before its begin {begin_ns}")
    return Frame(
        schema=schema,
        nic=NicIdentity(
            reader.as_text("nic", machine),
            reader.as_text("nic", nic),
            tuple(
                reader.as_text("nic", each) for each in reader.as_array("nic", addresses, 0, MAX_ADDRESSES)
            ),
        ),
        boot_id=reader.text("boot_id"),
        sequence=reader.integer("sequence"),
        begin_ns=begin_ns,
        end_ns=end_ns,
        clock=ClockInfo(
            reader.as_text("clock", clock_source),
            None if clock_error is None else reader.as_integer("clock", clock_error),
        ),
        clock_pairs=tuple(
            _clock_pair(reader, pair) for pair in reader.array("clock_pairs", 0, MAX_CLOCK_PAIRS)
        ),
        mode=_mode(reader),
        losses=reader.counts("losses", MAX_NAMED_COUNTS),
        packets=reader.counts("packets", MAX_NAMED_COUNTS),
        counters=reader.counts("counters", MAX_NAMED_COUNTS),
        final=reader.boolean("final"),
        tables=Tables(_sections(reader)),
    )


def _unpack(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_FRAME_BYTES:
        raise FrameFormatError(f"a frame of {len(data)} bytes exceeds the {MAX_FRAME_BYTES} allowed")
    try:
        # The unpacker bounds every container and string by the bytes that are there.
        fields = msgpack.unpackb(data, strict_map_key=True, max_ext_len=0)
    except (ValueError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise FrameFormatError(f"not a msgpack map: {error}") from error
    if not isinstance(fields, dict):
        raise FrameFormatError("not a msgpack map")
    return fields


def _clock_pair(reader: FieldReader, pair: object) -> tuple[int, int]:
    nic_ns, system_ns = reader.as_array("clock_pairs", pair, 2, 2)
    return (
        reader.as_integer("clock_pairs", nic_ns, signed=True),
        reader.as_integer("clock_pairs", system_ns, signed=True),
    )


def _mode(reader: FieldReader) -> CaptureMode:
    kind, shift = reader.array("mode", 2, 2)
    try:
        return CaptureMode(CaptureKind(reader.as_text("mode", kind)), reader.as_integer("mode", shift))
    except ValueError as error:
        raise FrameFormatError(f"field mode: {error}") from error


def _sections(reader: FieldReader) -> dict[str, Section]:
    sections: dict[str, Section] = {}
    for name, value in reader.mapping("sections", MAX_SECTIONS).items():
        rows, raw_bytes, content = reader.as_array("sections", value, 3, 3)
        if not isinstance(content, bytes):
            raise FrameFormatError(f"section {name} holds no bytes")
        sections[name] = Section(
            reader.as_integer("sections", rows), reader.as_integer("sections", raw_bytes), content
        )
    return sections
