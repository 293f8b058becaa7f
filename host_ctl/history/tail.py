# SPDX-License-Identifier: Apache-2.0
"""Follows a history while another process writes it: every record once, in the order of the files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from host_ctl.history.records import HEADER, SUFFIX, Damage, Found, walk

_LIST_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Place:
    """A record and the file that it is in."""

    path: Path
    found: Found


class HistoryTail:
    """Remembers how far it has read. Files that go away meanwhile are passed over."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path: Path | None = None
        self._offset = 0
        self._listed_ns = -1
        self._listed_s = float("-inf")

    def new(self) -> Iterator[Place]:
        """Yield what has come since the last call. Raises OSError when the disk does."""
        changed_ns, now_s = self._directory.stat().st_mtime_ns, time.monotonic()
        # Two changes within a tick of the file system's clock look like one.
        known = changed_ns == self._listed_ns and now_s < self._listed_s + _LIST_AGAIN_S
        if known and not self._has_grown():
            return
        self._listed_ns, self._listed_s = changed_ns, now_s
        paths = sorted(p for p in self._directory.glob(f"*{SUFFIX}") if p.stem.isdecimal())
        for path in paths:
            if self._path is not None and path < self._path:
                continue
            if path != self._path:
                self._path, self._offset = path, len(HEADER)
            try:
                yield from self._in(path, last=path == paths[-1])
            except FileNotFoundError:
                continue

    def _has_grown(self) -> bool:
        try:
            return self._path is not None and self._path.stat().st_size > self._offset
        except FileNotFoundError:
            return False

    def _in(self, path: Path, *, last: bool) -> Iterator[Place]:
        if path.stat().st_size <= self._offset:
            return
        for found in walk(path, begin=self._offset):
            if isinstance(found, Damage):
                if last:
                    return  # it may just be being written
            else:
                self._offset = found.end
                yield Place(path, found)
