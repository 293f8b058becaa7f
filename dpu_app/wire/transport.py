# SPDX-License-Identifier: Apache-2.0
"""What a DPU and the controller say to each other: messages, their bytes, and an incremental decoder.

Nothing here reads or writes a socket: both sides use this module, each with its own loop. `encode` and
`Decoder` are each other's inverse; docs/wire-format.md, section Transport, has the bytes and the rules.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

import msgpack

from dpu_app.wire.errors import FrameFormatError, PulseWireError
from dpu_app.wire.fields import FieldReader
from dpu_app.wire.frame import MAX_FRAME_BYTES

ALPN = "pulse/1"
"""Protocol that both sides name in the TLS handshake; another number is another, incompatible protocol."""

DEFAULT_PORT = 7471
MAX_CONTROL_BYTES = 256 << 10
"""Largest message other than a frame."""

MAX_POSITIONS = 1024
MAX_SCHEMAS = 64

_HEAD = struct.Struct("<IB")
HEAD_BYTES = _HEAD.size


class TransportError(PulseWireError):
    """Bytes from the other side that are no message, or a message beyond the limits: end the connection."""


class _Kind(IntEnum):
    HELLO = 1
    WELCOME = 2
    FRAME = 3
    ACK = 4
    REFUSE = 5
    PING = 6
    PONG = 7


class RefuseReason(Enum):
    """Why the controller refuses a connection or a frame; a reason that is not known here reads as OTHER."""

    PROTOCOL = "protocol"  # messages out of order, or bytes that are none
    SCHEMA = "schema"  # no common schema of frames
    IDENTITY = "identity"  # machine or NIC is not the certificate's
    FRAME = "frame"  # this frame is damaged or too large and never will be taken
    BUSY = "busy"  # full, or out of disk: come back later
    STOPPING = "stopping"  # the controller ends
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the frames of one NIC and life of its process: everything up to `sequence`."""

    nic: str
    boot_id: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What the controller takes; a DPU stops sending when so much waits for acknowledgement.

    A side that hears nothing for `silence_ns` may end the connection; pings keep it alive.
    """

    frame_bytes: int = MAX_FRAME_BYTES
    unacknowledged_frames: int = 64
    unacknowledged_bytes: int = 128 << 20
    silence_ns: int = 15_000_000_000


@dataclass(frozen=True, slots=True)
class Hello:
    """The DPU's first message. `kept` are the last frames that it still has of each life, this one's too."""

    machine: str
    nic: str
    boot_id: str
    kept: tuple[Position, ...]
    clock_ns: int
    schemas: tuple[int, ...]
    software: str = ""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The controller's answer: what it has on disk of the lives that `Hello.kept` names."""

    durable: tuple[Position, ...]
    clock_ns: int
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class FrameData:
    """An encoded frame, unopened."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Ack:
    """These frames and all that this connection brought before them are on disk: the DPU may forget them."""

    durable: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """No. With `frame`, that one is never to be sent again and the connection goes on; without, it ends."""

    reason: RefuseReason
    text: str
    frame: Position | None = None


@dataclass(frozen=True, slots=True)
class Ping:
    """A question that either side may ask; `sent_ns` is the asker's system clock."""

    number: int
    sent_ns: int


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer, at once: the question's numbers, and the answerer's system clock at receipt and answer."""

    number: int
    ping_sent_ns: int
    received_ns: int
    sent_ns: int

    def clock_offset(self, received_ns: int) -> tuple[int, int]:
        """Return the answerer's clock minus the asker's, and the round trip; the error is at most half."""
        round_trip_ns = (received_ns - self.ping_sent_ns) - (self.sent_ns - self.received_ns)
        offset_ns = ((self.received_ns - self.ping_sent_ns) + (self.sent_ns - received_ns)) // 2
        return offset_ns, max(round_trip_ns, 0)


Message = Hello | Welcome | FrameData | Ack | Refuse | Ping | Pong


def encode(message: Message) -> bytes:
    """Return the bytes of a message. Raises TransportError when it exceeds what readers take."""
    if isinstance(message, FrameData):
        if not 0 < len(message.data) <= MAX_FRAME_BYTES:
            raise TransportError(f"a frame of {len(message.data)} bytes cannot be sent")
        return _HEAD.pack(len(message.data), _Kind.FRAME) + message.data
    kind, fields = _fields_of(message)
    body: bytes = msgpack.packb(fields)
    if len(body) > MAX_CONTROL_BYTES:
        raise TransportError(f"a {kind.name.lower()} message of {len(body)} bytes cannot be sent")
    return _HEAD.pack(len(body), kind) + body


class Decoder:
    """Turns bytes, in pieces of any size, into messages; holds at most one incomplete message.

    Lengths are checked before anything of that length is kept. After a TransportError it is of no more use.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = min(max_frame_bytes, MAX_FRAME_BYTES)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take bytes; yield the messages that they complete. Raises TransportError after those before it."""
        self._buffer += data
        return self._messages()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a message that is not complete yet; not zero at the end means that one was cut off."""
        return len(self._buffer)

    def _messages(self) -> Iterator[Message]:
        while len(self._buffer) >= HEAD_BYTES:
            length, kind = _HEAD.unpack_from(self._buffer)
            self._check(length, kind)
            end = HEAD_BYTES + length
            if len(self._buffer) < end:
                return
            body = bytes(memoryview(self._buffer)[HEAD_BYTES:end])
            del self._buffer[:end]
            message = _decode(kind, body)
            if message is not None:
                yield message

    def _check(self, length: int, kind: int) -> None:
        most = self._max_frame_bytes if kind == _Kind.FRAME else MAX_CONTROL_BYTES
        if not 0 < length <= most:
            raise TransportError(
                f"a message of kind {kind} says that it has {length} bytes; 1 to {most} are allowed"
            )


def _fields_of(message: Message) -> tuple[_Kind, dict[str, Any]]:
    if isinstance(message, Hello):
        return _Kind.HELLO, {
            "machine": message.machine,
            "nic": message.nic,
            "boot_id": message.boot_id,
            "kept": _packed_positions(message.kept),
            "clock_ns": message.clock_ns,
            "schemas": list(message.schemas),
            "software": message.software,
        }
    if isinstance(message, Welcome):
        limits = {name: getattr(message.limits, name) for name in _LIMIT_NAMES}
        durable = _packed_positions(message.durable)
        return _Kind.WELCOME, {"durable": durable, "clock_ns": message.clock_ns} | limits
    if isinstance(message, Ack):
        return _Kind.ACK, {"durable": _packed_positions(message.durable)}
    if isinstance(message, Refuse):
        frame = None if message.frame is None else _packed(message.frame)
        return _Kind.REFUSE, {"reason": message.reason.value, "text": message.text[:256], "frame": frame}
    if isinstance(message, Ping):
        return _Kind.PING, {"number": message.number, "sent_ns": message.sent_ns}
    assert isinstance(message, Pong)
    return _Kind.PONG, {
        "number": message.number,
        "ping_sent_ns": message.ping_sent_ns,
        "received_ns": message.received_ns,
        "sent_ns": message.sent_ns,
    }


_LIMIT_NAMES = ("frame_bytes", "unacknowledged_frames", "unacknowledged_bytes", "silence_ns")


def _packed(position: Position) -> list[str | int]:
    return [position.nic, position.boot_id, position.sequence]


def _packed_positions(positions: tuple[Position, ...]) -> list[list[str | int]]:
    if len(positions) > MAX_POSITIONS:
        raise TransportError(f"{len(positions)} positions cannot be sent in one message; {MAX_POSITIONS} can")
    return [_packed(position) for position in positions]


def _decode(kind: int, body: bytes) -> Message | None:
    """Return the message, or None for a kind that later versions may send."""
    if kind == _Kind.FRAME:
        return FrameData(body)
    read = _READERS.get(kind)
    if read is None:
        return None
    name = _Kind(kind).name.lower()
    try:
        fields = msgpack.unpackb(body, strict_map_key=True, max_ext_len=0)
        if not isinstance(fields, Mapping):
            raise TransportError(f"a {name} message is no map")
        return read(FieldReader(fields))
    except FrameFormatError as error:
        raise TransportError(f"a {name} message: {error}") from error
    except (ValueError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise TransportError(f"a {name} message is no msgpack: {error}") from error


def _read_hello(reader: FieldReader) -> Hello:
    return Hello(
        machine=reader.text("machine"),
        nic=reader.text("nic"),
        boot_id=reader.text("boot_id"),
        kept=_positions(reader, "kept"),
        clock_ns=reader.integer("clock_ns", signed=True),
        schemas=tuple(reader.as_integer("schemas", each) for each in reader.array("schemas", 0, MAX_SCHEMAS)),
        software=reader.text("software"),
    )


def _read_welcome(reader: FieldReader) -> Welcome:
    limits = Limits(**{name: reader.integer(name) for name in _LIMIT_NAMES})
    return Welcome(_positions(reader, "durable"), reader.integer("clock_ns", signed=True), limits)


def _read_ack(reader: FieldReader) -> Ack:
    return Ack(_positions(reader, "durable"))


def _read_refuse(reader: FieldReader) -> Refuse:
    code = reader.text("reason")
    known = code in {reason.value for reason in RefuseReason}
    frame = reader.array("frame", 3, 3) if reader.has("frame") else None
    return Refuse(
        RefuseReason(code) if known else RefuseReason.OTHER,
        reader.text("text"),
        None if frame is None else _position(reader, "frame", frame),
    )


def _read_ping(reader: FieldReader) -> Ping:
    return Ping(reader.integer("number"), reader.integer("sent_ns", signed=True))


def _read_pong(reader: FieldReader) -> Pong:
    return Pong(
        reader.integer("number"),
        reader.integer("ping_sent_ns", signed=True),
        reader.integer("received_ns", signed=True),
        reader.integer("sent_ns", signed=True),
    )


_READERS: dict[int, Callable[[FieldReader], Message]] = {
    _Kind.HELLO: _read_hello,
    _Kind.WELCOME: _read_welcome,
    _Kind.ACK: _read_ack,
    _Kind.REFUSE: _read_refuse,
    _Kind.PING: _read_ping,
    _Kind.PONG: _read_pong,
}


def _positions(reader: FieldReader, name: str) -> tuple[Position, ...]:
    return tuple(_position(reader, name, each) for each in reader.array(name, 0, MAX_POSITIONS))


def _position(reader: FieldReader, name: str, value: object) -> Position:
    nic, boot_id, sequence = reader.as_array(name, value, 3, 3)
    return Position(
        reader.as_text(name, nic), reader.as_text(name, boot_id), reader.as_integer(name, sequence)
    )
