# SPDX-License-Identifier: Apache-2.0
"""Packets of a Perfetto trace: tracks, slices, instants, counters (perfetto/trace/trace.proto)."""

from __future__ import annotations

from collections.abc import Sequence

from host_ctl.errors import printable
from host_ctl.present.perfetto.wire import double, fixed64, integer, message, string

# Trace and TracePacket
_PACKET = 1
_TIMESTAMP, _SEQUENCE_ID, _EVENT, _INTERNED, _FLAGS, _TRACK = 8, 10, 11, 12, 13, 60
_CLEARED, _NEEDS_STATE = 1, 2
_SEQUENCE = 1
# TrackDescriptor
_UUID, _NAME, _PROCESS, _PARENT, _COUNTER, _ORDERING, _RANK = 1, 2, 3, 5, 8, 11, 12
_PID, _PROCESS_NAME, _UNIT_NAME, _EXPLICIT = 1, 6, 6, 3
# TrackEvent
_CATEGORY, _NOTE, _TYPE, _NAME_ID, _OF_TRACK, _VALUE, _FLOW, _LAST_FLOW = 3, 4, 9, 10, 11, 44, 47, 48
_BEGIN, _END, _INSTANT, _COUNT = 1, 2, 3, 4
# DebugAnnotation
_NOTE_NAME, _NOTE_INTEGER, _NOTE_DOUBLE, _NOTE_TEXT = 10, 4, 5, 6

Notes = Sequence[tuple[str, int | float | str]]
"""Details of a slice: (name, value) pairs."""


class TraceWriter:
    """Collects the packets of one trace. Tracks are known by the number that making one returns.

    Texts are sent once and then referred to, which is what keeps traces small.
    """

    def __init__(self) -> None:
        self._packets: list[bytes] = []
        self._names: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._tracks = 0
        self.events = 0
        self._add(integer(_FLAGS, _CLEARED))

    def process(self, name: str, rank: int = 0) -> int:
        """A track on the uppermost level; ``rank`` orders them."""
        number = self._number()
        process = message(_PROCESS, integer(_PID, number), string(_PROCESS_NAME, printable(name)))
        self._add(message(_TRACK, integer(_UUID, number), string(_NAME, printable(name)), process,
                          integer(_ORDERING, _EXPLICIT), integer(_RANK, rank)))  # fmt: skip
        return number

    def track(self, name: str, parent: int, rank: int = 0) -> int:
        """A track inside of another one."""
        number = self._number()
        self._add(message(_TRACK, integer(_UUID, number), string(_NAME, printable(name)),
                          integer(_PARENT, parent), integer(_ORDERING, _EXPLICIT),
                          integer(_RANK, rank)))  # fmt: skip
        return number

    def counter(self, name: str, unit: str, parent: int, rank: int = 0) -> int:
        """A track of values over time."""
        number = self._number()
        self._add(message(_TRACK, integer(_UUID, number), string(_NAME, printable(name)),
                          integer(_PARENT, parent), message(_COUNTER, string(_UNIT_NAME, unit)),
                          integer(_RANK, rank)))  # fmt: skip
        return number

    def slice(
        self,
        track: int,
        begin_ns: int,
        end_ns: int,
        name: str,
        category: str,
        notes: Notes = (),
        flows: Sequence[int] = (),
        last_of: Sequence[int] = (),
    ) -> None:
        """A stretch of time; ``flows`` begin or go on here, those of ``last_of`` end here."""
        going, ending = [fixed64(_FLOW, f) for f in flows], [fixed64(_LAST_FLOW, f) for f in last_of]
        self._event(begin_ns, _BEGIN, track, name, category, notes, going + ending)
        event = message(_EVENT, integer(_TYPE, _END), integer(_OF_TRACK, track))
        self._add(integer(_TIMESTAMP, end_ns), integer(_FLAGS, _NEEDS_STATE), event)

    def instant(self, track: int, ns: int, name: str, category: str, notes: Notes = ()) -> None:
        """A moment."""
        self._event(ns, _INSTANT, track, name, category, notes, [])

    def value(self, track: int, ns: int, value: float) -> None:
        """A counter's value from a time on."""
        self.events += 1
        event = message(_EVENT, integer(_TYPE, _COUNT), integer(_OF_TRACK, track), double(_VALUE, value))
        self._add(integer(_TIMESTAMP, ns), integer(_FLAGS, _NEEDS_STATE), event)

    def data(self) -> bytes:
        """The whole trace."""
        return b"".join(self._packets)

    def _event(
        self, ns: int, kind: int, track: int, name: str, category: str, notes: Notes, flows: list[bytes]
    ) -> None:
        self.events += 1
        interned: list[bytes] = []
        parts = [
            integer(_CATEGORY, _interned(self._categories, category, 1, interned)),
            integer(_TYPE, kind),
            integer(_NAME_ID, _interned(self._names, printable(name), 2, interned)),
            integer(_OF_TRACK, track),
            *(_note(*note) for note in notes),
            *flows,
        ]
        texts = [message(_INTERNED, *interned)] if interned else []
        event = message(_EVENT, *parts)
        self._add(integer(_TIMESTAMP, ns), integer(_FLAGS, _NEEDS_STATE), *texts, event)

    def _number(self) -> int:
        self._tracks += 1
        return self._tracks

    def _add(self, *parts: bytes) -> None:
        self._packets.append(message(_PACKET, integer(_SEQUENCE_ID, _SEQUENCE), *parts))


def _interned(known: dict[str, int], text: str, field: int, new: list[bytes]) -> int:
    """The number of a text; one that was not sent yet is added to ``new``."""
    number = known.get(text)
    if number is None:
        number = known[text] = len(known) + 1
        new.append(message(field, integer(1, number), string(2, text)))
    return number


def _note(name: str, value: float | str) -> bytes:
    if isinstance(value, int):
        content = integer(_NOTE_INTEGER, value)
    elif isinstance(value, float):
        content = double(_NOTE_DOUBLE, value)
    else:
        content = string(_NOTE_TEXT, printable(value))
    return message(_NOTE, string(_NOTE_NAME, name), content)
