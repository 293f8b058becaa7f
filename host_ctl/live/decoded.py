# SPDX-License-Identifier: Apache-2.0
"""Frames of the window, their tables decoded: each once, and kept for as long as a window holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.errors import PulseWireError
from dpu_app.wire.frame import Frame, decode_frame
from dpu_app.wire.records import NO_FLOW
from dpu_app.wire.tables import Tables
from host_ctl.ingest.series import JOINED_TABLES, NicSeries, Table, join_frames
from host_ctl.live.intake import Arrived, NicName

Identity = tuple[str, str, str, int]
_IN_LIFE = ("messages", "controls", "markers")


class DecodedFrames:
    """What the last window held; ``bytes`` of tables are in memory, ``lost`` frames could not be read."""

    def __init__(self) -> None:
        self._frames: dict[Identity, Frame] = {}
        self._unusable: set[Identity] = set()
        self.bytes = 0
        self.decoded = 0

    def of(self, arrived: Sequence[Arrived]) -> tuple[list[Frame], int]:
        """The frames, decoded now where they have not been, and how many could not be."""
        frames = [self._frame(each) for each in arrived]
        usable = [frame for frame in frames if frame is not None]
        return usable, len(frames) - len(usable)

    def keep_only(self, identities: set[Identity]) -> None:
        """Let all others go."""
        for identity in self._frames.keys() - identities:
            self.bytes -= _table_bytes(self._frames.pop(identity))
        self._unusable &= identities

    def _frame(self, arrived: Arrived) -> Frame | None:
        identity = arrived.key.identity
        frame = self._frames.get(identity)
        if frame is None and identity not in self._unusable:
            frame = _decoded(arrived.read())
            if frame is None:
                self._unusable.add(identity)
            else:
                self._frames[identity] = frame
                self.bytes += _table_bytes(frame)
                self.decoded += 1
        return frame


def _decoded(data: bytes | None) -> Frame | None:
    """A frame with the tables of the analysis alone; windows and what else it has are let go."""
    if data is None:
        return None
    try:
        frame = decode_frame(data)
        arrays = {name: getattr(frame.tables, name) for name in JOINED_TABLES}
    except PulseWireError:
        return None
    return replace(frame, tables=Tables.of(arrays))


def _table_bytes(frame: Frame) -> int:
    return sum(getattr(frame.tables, name).nbytes for name in JOINED_TABLES)


def series_of(name: NicName, frames: Sequence[Frame]) -> NicSeries:
    """Join the frames of one NIC. Every life of its DPU's process numbers flows anew: not so here."""
    lives: dict[str, list[Frame]] = {}
    for frame in sorted(frames, key=lambda f: (f.begin_ns, f.sequence)):
        lives.setdefault(frame.boot_id, []).append(frame)
    if len(lives) > 1:
        frames = _one_numbering(list(lives.values()))
    addresses = tuple(sorted({address for frame in frames for address in frame.nic.addresses}))
    return join_frames(
        frames,
        named=(*name, addresses),
        witness_ns=max(frame.end_ns for frame in frames),
        packets=sum(frame.packets.get("roce", 0) for frame in frames),
    )


def _one_numbering(lives: Sequence[Sequence[Frame]]) -> list[Frame]:
    """The frames of several lives as if they were of one: the same queue pair is the same flow."""
    numbers: dict[bytes, int] = {}
    begun: dict[int, int] = {}  # lives of the queue pair before this one of the process, by flow
    out: list[Frame] = []
    for frames in lives:
        keys = {int(row["flow"]): _flow_key(row) for frame in frames for row in frame.tables.flows}
        most = max(keys, default=0)
        number = np.full(most + 2, NO_FLOW, np.uint32)
        for flow, key in keys.items():
            number[flow] = numbers.setdefault(key, len(numbers))
        before = np.zeros(most + 2, np.uint16)
        for flow in keys:
            before[flow] = begun.get(int(number[flow]), 0)
        for frame in frames:
            tables = {name: getattr(frame.tables, name).copy() for name in JOINED_TABLES}
            for name in _IN_LIFE:
                at = np.minimum(tables[name]["flow"], most + 1)
                tables[name]["life"] += before[at]
                for flow in np.unique(at[tables[name]["life"] > 0]).tolist():
                    highest = int(tables[name]["life"][at == flow].max())
                    begun[int(number[flow])] = max(begun.get(int(number[flow]), 0), highest)
            for table in tables.values():
                table["flow"] = number[np.minimum(table["flow"], most + 1)]
            reverse = tables["flows"]["reverse_flow"]
            tables["flows"]["reverse_flow"] = number[np.minimum(reverse, most + 1)]
            out.append(replace(frame, boot_id="joined", sequence=len(out), tables=Tables.of(tables)))
    return out


def _flow_key(row: np.void) -> bytes:
    key: bytes = row["src"].tobytes() + row["dst"].tobytes() + int(row["dest_qpn"]).to_bytes(4, "big")
    return key


def trimmed(series: NicSeries, begin_ns: int, end_ns: int) -> NicSeries:
    """What a series holds of [begin, end) of its NIC's clock; totals of its flows stay those of all of it."""
    starts, ends = series.messages["start_ns"], series.messages["end_ns"]
    messages = series.messages[(starts >= begin_ns) & (ends < end_ns)]
    return replace(
        series,
        messages=messages,
        controls=_inside(series.controls, "ns", begin_ns, end_ns),
        events=_inside(series.events, "start_ns", begin_ns, end_ns),
        witness_ns=min(series.witness_ns, end_ns),
        last_ns=min(series.last_ns, end_ns),
    )


def _inside(table: Table, column: str, begin_ns: int, end_ns: int) -> Table:
    """The rows of a table in order of time that lie in [begin, end)."""
    first, last = np.searchsorted(table[column], np.array([begin_ns, end_ns]))
    part: NDArray[np.void] = table[first:last]
    return part
