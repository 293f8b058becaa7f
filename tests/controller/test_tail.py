# SPDX-License-Identifier: Apache-2.0
"""Following a history that another process writes: every record once, none before it is whole."""

from __future__ import annotations

from pathlib import Path

from host_ctl.history.frames import FrameHistory, HistoryConfig, NewFrame
from host_ctl.history.records import FrameKey, pack_record
from host_ctl.history.tail import HistoryTail


def frame(number: int, size: int = 1000) -> NewFrame:
    key = FrameKey("node1", "mlx5_0", "life", number, number, number, number + 1)
    return NewFrame(key, bytes([number % 256]) * size)


def sequences(tail: HistoryTail) -> list[int]:
    return [place.found.key.sequence for place in tail.new()]


def test_every_record_comes_once_over_many_files(tmp_path: Path) -> None:
    history, tail = FrameHistory(HistoryConfig(tmp_path, segment_bytes=1 << 16)), HistoryTail(tmp_path)
    assert sequences(tail) == []
    seen: list[int] = []
    for number in range(0, 300, 3):
        history.append([frame(n) for n in range(number, number + 3)])
        seen += sequences(tail)
    assert seen == list(range(300))
    assert len(list(tmp_path.glob("*.history"))) > 3
    assert sequences(tail) == []
    history.close()


def test_a_record_that_is_just_being_written_comes_once_it_is_whole(tmp_path: Path) -> None:
    history = FrameHistory(HistoryConfig(tmp_path))
    history.append([frame(0)])
    history.close()
    (path,) = tmp_path.glob("*.history")
    tail, record = HistoryTail(tmp_path), pack_record(frame(1).key, frame(1).data)
    with path.open("ab", buffering=0) as file:
        file.write(record[:500])
        assert sequences(tail) == [0]
        assert sequences(tail) == []
        file.write(record[500:])
        assert sequences(tail) == [1]


def test_damage_before_a_newer_file_is_passed_over(tmp_path: Path) -> None:
    first = FrameHistory(HistoryConfig(tmp_path))
    first.append([frame(0)])
    first.close()
    (path,) = tmp_path.glob("*.history")
    torn = pack_record(frame(1).key, frame(1).data)[:300]
    path.write_bytes(path.read_bytes() + torn)
    tail = HistoryTail(tmp_path)
    assert sequences(tail) == [0]
    newer = path.with_name(f"{int(path.stem) + 1:012d}.history")
    newer.write_bytes(path.read_bytes()[:8] + pack_record(frame(2).key, frame(2).data))
    assert sequences(tail) == [2]


def test_files_that_the_ring_drops_are_passed_over(tmp_path: Path) -> None:
    history, tail = FrameHistory(HistoryConfig(tmp_path, 1 << 18, 1 << 16)), HistoryTail(tmp_path)
    history.append([frame(0)])
    assert sequences(tail) == [0]
    for number in range(1, 600):
        history.append([frame(number)])
    seen = sequences(tail)
    assert seen[-1] == 599
    assert seen == list(range(seen[0], 600))
    history.close()
