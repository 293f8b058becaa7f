# SPDX-License-Identifier: Apache-2.0
"""Frames between measurement and acknowledgement: first in bounded memory, then in bounded files.

A frame goes to disk when it has waited long or memory is full; only at both bounds the oldest are dropped,
and counted. Frames are read in the order in which they came, those of earlier lives of the process first.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dpu_app.service.segments import Place, Record, SegmentStore, SpoolError, total_bytes

_LOG = logging.getLogger(__name__)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_RETRY_S = 5.0
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class SpoolConfig:
    """Bounds of a spool; without a directory there is only memory."""

    directory: Path | None = None
    memory_bytes: int = 16 << 20
    disk_bytes: int = 512 << 20
    segment_bytes: int = 8 << 20
    spill_s: float = 2.0


@dataclass(slots=True)
class Entry:
    """A frame that waits; `number` is its place in the order of reading."""

    number: int
    boot_id: str
    sequence: int
    data: bytes | None
    place: Place | None
    since_s: float


@dataclass(frozen=True, slots=True)
class SpoolCounts:
    """What waits now, and what became of frames in the life of the process."""

    frames: int
    memory_bytes: int
    disk_bytes: int
    dropped: int
    refused: int
    damaged: int
    disk_errors: int


class Spool:
    """One process's frames. `put` never waits for the disk; `settle` does, in a thread of its own.

    Raises SpoolError or OSError when its directory cannot be used.
    """

    def __init__(self, config: SpoolConfig) -> None:
        self._config = config
        self._lock = threading.Lock()  # of everything but the store
        self._settling = threading.Lock()  # of the store
        self._entries: dict[int, Entry] = {}
        self._first = self._next = 1
        self._memory_bytes = 0
        self._disk_used = 0
        self._in_segment: Counter[int] = Counter()
        self._dropped = self._refused = self._damaged = self._disk_errors = 0
        self._retry_at_s = 0.0
        self._store: SegmentStore | None = None
        if config.directory is not None:
            self._store = SegmentStore(config.directory, config.segment_bytes)
            self._take_found(self._store)

    def put(self, boot_id: str, sequence: int, data: bytes) -> None:
        """Keep a frame; sequences of a boot id come ascending."""
        with self._lock:
            self._add(boot_id, sequence, data, None)
            self._memory_bytes += len(data)
            # `settle` keeps to the bound; a disk that hangs must not fill the memory meanwhile.
            while self._memory_bytes > 2 * self._config.memory_bytes:
                self._drop_from_memory()

    def next_after(self, number: int) -> Entry | None:
        """Return the next frame to be sent behind the entry with a number, 0 for the first."""
        with self._lock:
            for candidate in range(max(number + 1, self._first), self._next):
                entry = self._entries.get(candidate)
                if entry is not None:
                    return entry
        return None

    def load(self, entry: Entry) -> bytes | None:
        """Return the bytes of a frame; None when it is gone or damaged."""
        with self._lock:
            data, place = entry.data, entry.place
            waits = entry.number in self._entries
        if data is not None:
            return data
        if not waits or place is None or self._store is None:
            return None
        try:
            return self._store.read(place)
        except SpoolError as error:
            with self._lock:
                if self._forget(entry.number):
                    self._damaged += 1
                    _LOG.warning("%s", error)
            return None

    def acknowledge(self, boot_id: str, sequence: int) -> None:
        """Forget the frames of a boot id up to a sequence: the controller has them."""
        with self._lock:
            gone = []
            for entry in self._entries.values():
                if entry.boot_id == boot_id:
                    if entry.sequence > sequence:
                        break
                    gone.append(entry.number)
            for number in gone:
                self._forget(number)

    def refuse(self, boot_id: str, sequence: int) -> None:
        """Forget one frame that the controller will never take."""
        with self._lock:
            for entry in self._entries.values():
                if (entry.boot_id, entry.sequence) == (boot_id, sequence):
                    self._forget(entry.number)
                    self._refused += 1
                    return

    def kept(self) -> dict[str, int]:
        """Return the last sequence of each boot id that waits, in the order of reading."""
        with self._lock:
            return {entry.boot_id: entry.sequence for entry in self._entries.values()}

    def counts(self) -> SpoolCounts:
        """Return what waits and what was lost."""
        with self._lock:
            return SpoolCounts(
                len(self._entries),
                self._memory_bytes,
                self._disk_used,
                self._dropped,
                self._refused,
                self._damaged,
                self._disk_errors,
            )

    def settle(self, *, everything: bool = False) -> None:
        """Move frames to disk that have waited long or find no room in memory; drop what finds none at all.

        With `everything`, all of them, before the process ends.
        """
        with self._settling:
            self._delete_finished()
            while records := self._due(everything=everything):
                if not self._write(records):
                    break
            with self._lock:
                while self._memory_bytes > self._config.memory_bytes:
                    self._drop_from_memory()
                self._disk_used = 0 if self._store is None else self._store.used_bytes

    def close(self) -> None:
        """Write everything to disk and let another process have the directory."""
        self.settle(everything=True)
        if self._store is not None:
            self._store.close()

    def _take_found(self, store: SegmentStore) -> None:
        for text in store.aside:
            _LOG.warning("spool: %s; set aside", text)
        for place in store.found:
            self._add(place.boot_id, place.sequence, None, place)
            self._in_segment[place.segment] += 1
        self._disk_used = store.used_bytes

    def _add(self, boot_id: str, sequence: int, data: bytes | None, place: Place | None) -> None:
        self._entries[self._next] = Entry(self._next, boot_id, sequence, data, place, time.monotonic())
        self._next += 1

    def _forget(self, number: int) -> bool:
        entry = self._entries.pop(number, None)
        if entry is None:
            return False
        if entry.data is not None:
            self._memory_bytes -= len(entry.data)
        if entry.place is not None:
            self._in_segment[entry.place.segment] -= 1
        self._first = next(iter(self._entries), self._next)
        return True

    def _drop_from_memory(self) -> None:
        for entry in self._entries.values():
            if entry.data is not None:
                self._forget(entry.number)
                self._dropped += 1
                return

    def _due(self, *, everything: bool) -> list[tuple[int, Record]]:
        """Return the oldest frames in memory that have to leave it, a bounded amount at once."""
        if self._store is None or (time.monotonic() < self._retry_at_s and not everything):
            return []
        due: list[tuple[int, Record]] = []
        # So that room for it can be made without giving up most of what is there.
        most_bytes = min(_BATCH_BYTES, self._config.disk_bytes // 8)
        with self._lock:
            over_bytes = self._memory_bytes - self._config.memory_bytes
            old_s = time.monotonic() - self._config.spill_s
            taken_bytes = 0
            for entry in self._entries.values():
                if entry.data is None:
                    continue
                leaves = everything or entry.since_s <= old_s or taken_bytes < over_bytes
                if not leaves or taken_bytes > most_bytes:
                    break
                due.append((entry.number, Record(entry.boot_id, entry.sequence, entry.data)))
                taken_bytes += len(entry.data)
        return due

    def _write(self, due: list[tuple[int, Record]]) -> bool:
        records = [record for _, record in due]
        assert self._store is not None
        try:
            if not self._make_room(total_bytes(records)):
                return False
            places = self._store.append(records)
        except OSError as error:
            self._disk_errors += 1
            oldest = self._store.oldest
            if error.errno in _FULL and oldest is not None and self._drop_segment(oldest):
                return True
            self._retry_at_s = time.monotonic() + _RETRY_S
            _LOG.warning("spool: %s; frames stay in memory, the oldest go when it is full", error)
            return False
        with self._lock:
            for (number, record), place in zip(due, places, strict=True):
                entry = self._entries.get(number)
                self._in_segment[place.segment] += 0  # a segment without frames that wait is finished
                if entry is not None:
                    entry.data, entry.place = None, place
                    self._memory_bytes -= len(record.data)
                    self._in_segment[place.segment] += 1
        return True

    def _make_room(self, needed_bytes: int) -> bool:
        """Delete what is oldest on disk until there is room; False when there never is."""
        assert self._store is not None
        if needed_bytes > self._config.disk_bytes:
            return False
        while self._store.used_bytes + needed_bytes > self._config.disk_bytes:
            if self._store.delete_aside():
                continue
            oldest = self._store.oldest
            if oldest is None:
                return False
            self._drop_segment(oldest)
        return True

    def _drop_segment(self, segment: int) -> bool:
        """Delete a segment and count what waited in it; False when nothing did."""
        assert self._store is not None
        with self._lock:
            lost = [e.number for e in self._entries.values() if e.place and e.place.segment == segment]
            for number in lost:
                self._forget(number)
            self._dropped += len(lost)
            self._in_segment.pop(segment, None)
        self._store.delete(segment)
        return bool(lost)

    def _delete_finished(self) -> None:
        with self._lock:
            finished = [segment for segment, frames in self._in_segment.items() if frames <= 0]
            for segment in finished:
                del self._in_segment[segment]
        for segment in finished:
            if self._store is not None:
                self._store.delete(segment)
