# SPDX-License-Identifier: Apache-2.0
"""The history on disk: what it keeps, what damage costs, and what the ring drops."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_ctl.history.frames import FrameHistory, HistoryConfig, HistoryError, NewFrame
from host_ctl.history.known import MAX_LIVES_PER_NIC, MAX_RUNS, KnownFrames, SequenceSet
from host_ctl.history.reader import ReadCounts, read_range
from host_ctl.history.records import HEADER, Damage, FrameKey, pack_record, walk

SECOND = 10**9


def new(sequence: int, size: int = 1000, *, boot_id: str = "life", machine: str = "node1") -> NewFrame:
    """A frame to be kept; its content is no frame, for the history never looks."""
    key = FrameKey(machine, "mlx5_0", boot_id, sequence, sequence, sequence * SECOND, (sequence + 1) * SECOND)
    return NewFrame(key, bytes([sequence % 251]) * size)


def keep(history: FrameHistory, frames: Sequence[NewFrame]) -> None:
    """Append and note, as the committer does."""
    history.note(history.append(frames))


def sequences(directory: Path, counts: ReadCounts | None = None) -> list[int]:
    """Sequences that can be read, each with its own content."""
    stored = list(read_range(directory, counts=counts))
    assert all(set(each.data) == {each.key.sequence % 251} for each in stored)
    return [each.key.sequence for each in stored]


def filled(directory: Path, count: int = 10, segment_bytes: int = 64 << 20) -> list[Path]:
    """A history of some frames, one per append; return its files."""
    history = FrameHistory(HistoryConfig(directory, segment_bytes=segment_bytes))
    for sequence in range(count):
        keep(history, [new(sequence, 20_000)])
    history.close()
    return sorted(directory.glob("*.history"))


def test_frames_are_there_after_a_restart_and_known(tmp_path: Path) -> None:
    history = FrameHistory(HistoryConfig(tmp_path))
    keep(history, [new(0), new(1)])
    keep(history, [new(3)])
    history.close()
    again = FrameHistory(HistoryConfig(tmp_path))
    known = again.sequences("node1", "mlx5_0", "life")
    assert known is not None
    assert list(known) == [(0, 2), (3, 4)]
    assert (known.highest, known.first_run_end, known.holes) == (3, 1, 1)
    assert again.sequences("node1", "mlx5_0", "other") is None
    keep(again, [new(4)])
    assert sequences(tmp_path) == [0, 1, 3, 4]
    again.close()


def test_a_range_of_time_comes_in_its_order_over_segments_and_machines(tmp_path: Path) -> None:
    history = FrameHistory(HistoryConfig(tmp_path, segment_bytes=1 << 16))
    for sequence in (5, 1, 4, 0, 3, 2):
        keep(history, [new(sequence, 40_000, machine=machine) for machine in ("node2", "node1")])
    history.close()
    found = [(s.key.begin_ns // SECOND, s.key.machine) for s in read_range(tmp_path, 2 * SECOND, 4 * SECOND)]
    assert found == [(2, "node1"), (2, "node2"), (3, "node1"), (3, "node2")]


def test_the_oldest_segments_go_when_the_ring_is_full_and_are_counted(tmp_path: Path) -> None:
    most = 1 << 20
    history = FrameHistory(HistoryConfig(tmp_path, max_bytes=most, segment_bytes=1 << 17))
    for sequence in range(200):
        keep(history, [new(sequence, 20_000)])
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= most
    left = sequences(tmp_path)
    assert left == list(range(left[0], 200))
    assert history.counts.dropped_frames == left[0] > 0
    assert history.counts.frames == len(left)
    history.close()


def test_a_life_is_forgotten_when_its_last_segment_goes(tmp_path: Path) -> None:
    history = FrameHistory(HistoryConfig(tmp_path, max_bytes=1 << 20, segment_bytes=1 << 17))
    keep(history, [new(0, boot_id="first")])
    for sequence in range(100):
        keep(history, [new(sequence, 20_000)])
    assert history.sequences("node1", "mlx5_0", "first") is None
    assert history.sequences("node1", "mlx5_0", "life") is not None
    history.close()


@pytest.mark.parametrize("cut", [1, 30, 19_000, 20_100])
def test_an_unfinished_end_is_cut_off_at_the_start(tmp_path: Path, cut: int) -> None:
    (path,) = filled(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    history = FrameHistory(HistoryConfig(tmp_path))
    left = 9 if cut < 20_080 else 8
    assert sequences(tmp_path) == list(range(left))
    assert not any(isinstance(each, Damage) for each in walk(path, verify=True))
    keep(history, [new(left, 20_000)])
    assert sequences(tmp_path) == list(range(left + 1))
    history.close()


def test_an_end_of_zeros_as_a_power_cut_leaves_it_is_cut_off(tmp_path: Path) -> None:
    (path,) = filled(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:-15_000] + bytes(15_000 + 4096))
    history = FrameHistory(HistoryConfig(tmp_path))
    assert sequences(tmp_path) == list(range(9))
    assert history.counts.torn_bytes > 4096
    history.close()


def test_damage_in_the_midst_costs_the_frames_it_hits_and_no_other(tmp_path: Path) -> None:
    paths = filled(tmp_path, 12, segment_bytes=1 << 16)
    assert len(paths) == 3
    content = bytearray(paths[0].read_bytes())
    content[len(HEADER) + 5] ^= 0xFF  # the head of the first record
    paths[0].write_bytes(content)
    history = FrameHistory(HistoryConfig(tmp_path))
    assert sequences(tmp_path) == list(range(1, 12))
    assert history.counts.damaged_segments == 1
    assert 0 < history.counts.damaged_bytes < 21_000
    history.close()


def test_a_damaged_frame_in_an_older_segment_is_left_out_when_it_is_read(tmp_path: Path) -> None:
    paths = filled(tmp_path, 12, segment_bytes=1 << 16)
    content = bytearray(paths[0].read_bytes())
    content[-5] ^= 0xFF
    paths[0].write_bytes(content)
    counts = ReadCounts()
    assert sequences(tmp_path, counts) == [0, 1, 2, *range(4, 12)]
    assert counts.damaged == 1


def test_a_file_that_is_no_segment_is_set_aside_and_counts_in_the_ring(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    (tmp_path / "000000000009.history").write_bytes(b"something else" * 1000)
    history = FrameHistory(HistoryConfig(tmp_path))
    assert (tmp_path / "000000000009.aside").exists()
    assert history.counts.damaged_segments == 1
    keep(history, [new(3, 20_000)])
    assert sequences(tmp_path) == [0, 1, 2, 3]
    assert history.counts.bytes == sum(p.stat().st_size for p in tmp_path.iterdir() if p.name != "lock")
    history.close()


def test_two_processes_cannot_have_one_history(tmp_path: Path) -> None:
    history = FrameHistory(HistoryConfig(tmp_path))
    with pytest.raises(HistoryError, match="in use by another process"):
        FrameHistory(HistoryConfig(tmp_path))
    history.close()
    FrameHistory(HistoryConfig(tmp_path)).close()


def test_a_write_that_fails_leaves_nothing_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = FrameHistory(HistoryConfig(tmp_path))
    keep(history, [new(0)])

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr("os.fdatasync", fail)
        with pytest.raises(OSError, match="broken"):
            history.append([new(1)])
    keep(history, [new(2)])
    assert sequences(tmp_path) == [0, 2]
    history.close()
    again = FrameHistory(HistoryConfig(tmp_path))
    known = again.sequences("node1", "mlx5_0", "life")
    assert known is not None
    assert list(known) == [(0, 1), (2, 3)]
    again.close()


def test_a_frame_that_stands_twice_on_disk_is_read_once(tmp_path: Path) -> None:
    (path,) = filled(tmp_path, 2)
    frame = new(1, 20_000)
    path.write_bytes(path.read_bytes() + pack_record(frame.key, frame.data))
    counts = ReadCounts()
    assert sequences(tmp_path, counts) == [0, 1]
    assert counts.repeats == 1


def test_many_frames_in_one_write_are_whole_however_little_the_kernel_takes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pwritev

    def reluctant(handle: int, parts: Sequence[memoryview], offset: int) -> int:
        content = b"".join(bytes(part) for part in parts)
        return whole(handle, [content[: max(1, len(content) // 3)]], offset)

    monkeypatch.setattr("os.pwritev", reluctant)
    history = FrameHistory(HistoryConfig(tmp_path))
    keep(history, [new(sequence, sequence % 7) for sequence in range(700)])
    history.close()
    assert [s.key.sequence for s in read_range(tmp_path)] == list(range(700))
    assert not any(
        isinstance(each, Damage) for path in tmp_path.glob("*.history") for each in walk(path, verify=True)
    )


@given(st.lists(st.integers(0, 40), max_size=120))
def test_a_set_of_sequences_is_a_set(added: list[int]) -> None:
    kept, reference = SequenceSet(), set()
    for sequence in added:
        assert kept.add(sequence) == (sequence not in reference)
        reference.add(sequence)
    assert {s for begin, end in kept for s in range(begin, end)} == reference
    assert [s in kept for s in range(42)] == [s in reference for s in range(42)]
    assert kept.highest == max(reference, default=-1)
    assert kept.holes == (max(reference) - min(reference) + 1 - len(reference) if reference else 0)
    runs = list(kept)
    assert all(before[1] < after[0] for before, after in pairwise(runs))


def test_what_is_remembered_is_bounded() -> None:
    holey = SequenceSet()
    for sequence in range(0, 2 * MAX_RUNS + 20, 2):
        holey.add(sequence)
    assert len(list(holey)) == MAX_RUNS
    assert holey.floor == 19
    known = KnownFrames()
    for life in range(MAX_LIVES_PER_NIC + 5):
        known.add(("node1", "mlx5_0", str(life)), 0, 1)
    assert len(list(known.lives())) == MAX_LIVES_PER_NIC
    assert known.of(("node1", "mlx5_0", "0")) is None


@given(st.binary(max_size=3000), st.integers(0, 3))
def test_garbage_between_records_hides_none(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int
) -> None:
    path = tmp_path_factory.mktemp("junk") / "000000000001.history"
    records = [pack_record(new(n, 50).key, new(n, 50).data) for n in range(3)]
    records.insert(at, junk)
    path.write_bytes(HEADER + b"".join(records))
    found = [each for each in walk(path, verify=True) if not isinstance(each, Damage)]
    assert [each.key.sequence for each in found] == [0, 1, 2]
