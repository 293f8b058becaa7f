# SPDX-License-Identifier: Apache-2.0
"""The spool: what it was given comes out once, in order, or is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpu_app.service.segments import SpoolError
from dpu_app.service.spool import Spool, SpoolConfig

ROOT = Path(__file__).parents[2]

# Puts frames into a spool, says what is on disk, and waits to be killed.
_VICTIM = """
import sys
from pathlib import Path
from dpu_app.service.spool import Spool, SpoolConfig
spool = Spool(SpoolConfig(Path(sys.argv[1]), memory_bytes=1000, spill_s=0.0, segment_bytes=700))
for sequence in range(20):
    spool.put("victim", sequence, bytes([sequence]) * 100)
spool.settle()
for sequence in range(20, 25):
    spool.put("victim", sequence, bytes([sequence]) * 100)
print("settled", flush=True)
sys.stdin.read()
"""


def contents(spool: Spool) -> list[tuple[str, int, bytes]]:
    """All that waits, in the order of reading."""
    found, number = [], 0
    while (entry := spool.next_after(number)) is not None:
        number = entry.number
        data = spool.load(entry)
        if data is not None:
            found.append((entry.boot_id, entry.sequence, data))
    return found


def frames(boot_id: str, sequences: range, size: int = 100) -> list[tuple[str, int, bytes]]:
    """Frames that differ."""
    return [(boot_id, sequence, bytes([sequence % 256]) * size) for sequence in sequences]


def on_disk(folder: Path, **bounds: float) -> SpoolConfig:
    """A small spool that writes everything when it is settled."""
    sizes: dict[str, float] = {
        "memory_bytes": 1000,
        "disk_bytes": 10_000,
        "segment_bytes": 700,
        "spill_s": 0.0,
    }
    return SpoolConfig(folder, **(sizes | bounds))  # type: ignore[arg-type]


def test_frames_stay_in_memory_while_they_are_acknowledged_soon(tmp_path: Path) -> None:
    spool = Spool(on_disk(tmp_path, spill_s=60.0))
    for frame in frames("a", range(5)):
        spool.put(*frame)
    spool.settle()
    assert list(tmp_path.glob("*.spool")) == []
    assert contents(spool) == frames("a", range(5))
    spool.acknowledge("a", 4)
    assert contents(spool) == []
    assert spool.counts().memory_bytes == 0


def test_what_memory_cannot_hold_goes_to_disk_and_comes_back_in_order(tmp_path: Path) -> None:
    spool = Spool(on_disk(tmp_path, spill_s=60.0))
    for frame in frames("a", range(15)):
        spool.put(*frame)
    spool.settle()
    counts = spool.counts()
    assert counts.memory_bytes <= 1000 < counts.memory_bytes + counts.disk_bytes
    assert contents(spool) == frames("a", range(15))
    assert counts.dropped == 0


def test_a_spool_that_was_closed_is_there_for_the_next_process(tmp_path: Path) -> None:
    first = Spool(on_disk(tmp_path))
    for frame in frames("a", range(9)):
        first.put(*frame)
    first.close()
    second = Spool(on_disk(tmp_path))
    for frame in frames("b", range(3)):
        second.put(*frame)
    assert contents(second) == frames("a", range(9)) + frames("b", range(3))
    assert second.kept() == {"a": 8, "b": 2}
    second.acknowledge("a", 8)
    second.settle()
    second.close()
    assert contents(Spool(on_disk(tmp_path))) == frames("b", range(3))


def test_segments_vanish_when_all_of_theirs_is_acknowledged(tmp_path: Path) -> None:
    spool = Spool(on_disk(tmp_path))
    for number in range(6):
        for frame in frames("a", range(5 * number, 5 * number + 5)):
            spool.put(*frame)
        spool.settle()
    assert len(list(tmp_path.glob("*.spool"))) > 2
    spool.acknowledge("a", 29)
    spool.settle()
    assert list(tmp_path.glob("*.spool")) == []
    assert spool.counts().disk_bytes == 0


def test_only_at_both_bounds_the_oldest_are_dropped_and_counted(tmp_path: Path) -> None:
    spool = Spool(on_disk(tmp_path, disk_bytes=3000))
    for frame in frames("a", range(60)):
        spool.put(*frame)
        spool.settle()
    left = contents(spool)
    assert left == frames("a", range(60))[-len(left) :]
    assert spool.counts().dropped == 60 - len(left) > 0
    assert spool.counts().disk_bytes <= 3000


def test_without_a_disk_the_oldest_in_memory_are_dropped() -> None:
    spool = Spool(SpoolConfig(memory_bytes=1000))
    for frame in frames("a", range(14)):
        spool.put(*frame)
    spool.settle()
    assert contents(spool) == frames("a", range(4, 14))
    assert spool.counts().dropped == 4


def test_memory_is_bounded_while_nobody_settles(tmp_path: Path) -> None:
    spool = Spool(on_disk(tmp_path))
    for frame in frames("a", range(100)):
        spool.put(*frame)
    assert spool.counts().memory_bytes <= 2000
    assert contents(spool) == frames("a", range(80, 100))


@given(st.integers(1, 400))
def test_a_torn_tail_is_set_aside_and_what_was_before_it_remains(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    first = Spool(on_disk(folder, segment_bytes=1 << 20))
    for frame in frames("a", range(5)):
        first.put(*frame)
    first.close()
    (segment,) = folder.glob("*.spool")
    os.truncate(segment, segment.stat().st_size - cut)
    second = Spool(on_disk(folder))
    left = contents(second)
    assert left == frames("a", range(5))[: len(left)]
    record_bytes = 8 + 9 + 1 + 100
    assert len(left) == 5 - -(-cut // record_bytes)
    torn = cut % record_bytes
    assert [path.stat().st_size for path in folder.glob("*.aside")] == ([record_bytes - torn] if torn else [])
    second.close()
    assert contents(Spool(on_disk(folder))) == left


def test_damage_in_the_middle_costs_what_follows_in_its_segment_and_is_set_aside(tmp_path: Path) -> None:
    first = Spool(on_disk(tmp_path))
    for number in range(4):
        for frame in frames("a", range(7 * number, 7 * number + 7)):
            first.put(*frame)
        first.settle()
    first.close()
    segment = sorted(tmp_path.glob("*.spool"))[1]
    content = bytearray(segment.read_bytes())
    content[300] ^= 1
    segment.write_bytes(content)
    left = contents(Spool(on_disk(tmp_path)))
    assert left == [*frames("a", range(9)), *frames("a", range(14, 28))]
    assert len(list(tmp_path.glob("*.aside"))) == 1


def test_damage_while_the_process_runs_costs_one_frame(tmp_path: Path) -> None:
    spool = Spool(on_disk(tmp_path))
    for frame in frames("a", range(5)):
        spool.put(*frame)
    spool.settle()
    (segment,) = tmp_path.glob("*.spool")
    content = bytearray(segment.read_bytes())
    content[150] ^= 1
    segment.write_bytes(content)
    assert contents(spool) == [frame for frame in frames("a", range(5)) if frame[1] != 1]
    assert spool.counts().damaged == 1


@pytest.mark.parametrize(
    "header", [b"PLSSPL\x00\n", b"PLSSPL\x02\n", b"something", b""], ids=["old", "new", "other", "empty"]
)
def test_a_spool_of_another_version_is_set_aside_whole(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "0000000007.spool").write_bytes(header + b"whatever it held")
    spool = Spool(on_disk(tmp_path))
    assert contents(spool) == []
    assert (tmp_path / "0000000007.aside").read_bytes() == header + b"whatever it held"
    for frame in frames("a", range(3)):
        spool.put(*frame)
    spool.close()
    assert (tmp_path / "0000000008.spool").exists()


def test_files_set_aside_are_the_first_to_go_when_room_is_needed(tmp_path: Path) -> None:
    (tmp_path / "0000000001.aside").write_bytes(bytes(2000))
    spool = Spool(on_disk(tmp_path, disk_bytes=3000))
    for frame in frames("a", range(14)):
        spool.put(*frame)
        spool.settle()
    assert list(tmp_path.glob("*.aside")) == []
    assert contents(spool) == frames("a", range(14))


def test_one_process_at_a_time_has_a_spool(tmp_path: Path) -> None:
    spool = Spool(on_disk(tmp_path))
    with pytest.raises(SpoolError, match="in use"):
        Spool(on_disk(tmp_path))
    spool.close()
    Spool(on_disk(tmp_path))


def test_a_refused_frame_is_forgotten_alone(tmp_path: Path) -> None:
    spool = Spool(on_disk(tmp_path))
    for frame in frames("a", range(4)):
        spool.put(*frame)
    spool.refuse("a", 2)
    assert [sequence for _, sequence, _ in contents(spool)] == [0, 1, 3]
    assert spool.counts().refused == 1


def test_a_killed_process_loses_nothing_that_was_on_disk(tmp_path: Path) -> None:
    victim = subprocess.Popen(
        [sys.executable, "-c", _VICTIM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == b"settled\n"
    victim.kill()
    victim.communicate()
    spool = Spool(on_disk(tmp_path))
    left = contents(spool)
    # What never left memory is gone with the process: at most the bound of memory.
    assert left == frames("victim", range(20))
    assert list(tmp_path.glob("*.aside")) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_on_a_full_disk_the_oldest_go_and_the_newest_are_kept(small_disk: Path) -> None:
    spool = Spool(on_disk(small_disk, memory_bytes=20_000, disk_bytes=10 << 20, segment_bytes=16_000))
    for frame in frames("a", range(100), 4000):
        spool.put(*frame)
        spool.settle()
    left = contents(spool)
    assert left == frames("a", range(100), 4000)[-len(left) :]
    counts = spool.counts()
    assert counts.dropped == 100 - len(left) > 0
    assert counts.disk_errors > 0
    assert len(left) > 5
    spool.close()


def test_a_disk_that_others_have_filled_leaves_memory_and_gives_it_back_later(small_disk: Path) -> None:
    (small_disk / "other").write_bytes(bytes(60_000))
    spool = Spool(on_disk(small_disk, memory_bytes=20_000, disk_bytes=50_000))
    for frame in frames("a", range(10), 4000):
        spool.put(*frame)
    spool.settle()
    assert contents(spool) == frames("a", range(5, 10), 4000)
    assert spool.counts().dropped == 5
    (small_disk / "other").unlink()
    spool.close()
    again = Spool(on_disk(small_disk))
    assert contents(again) == frames("a", range(5, 10), 4000)
    again.close()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(1, 400)),
            st.tuples(st.just("settle"), st.just(0)),
            st.tuples(st.just("acknowledge"), st.integers(0, 40)),
            st.tuples(st.just("reopen"), st.just(0)),
        ),
        max_size=60,
    )
)
def test_whatever_happens_each_frame_waits_once_or_was_acknowledged_or_dropped(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(on_disk(folder, disk_bytes=4000))
    life, sequence, acknowledged, dropped, put = 0, 0, 0, 0, []
    done: set[tuple[str, int]] = set()
    for step, value in steps:
        boot_id = str(life)
        if step == "put":
            spool.put(boot_id, sequence, bytes(value))
            put.append((boot_id, sequence))
            sequence += 1
        elif step == "settle":
            spool.settle()
        elif step == "acknowledge":
            waiting = {key[:2] for key in contents(spool)}
            spool.acknowledge(boot_id, value)
            gone = {key for key in waiting if key[0] == boot_id and key[1] <= value}
            done |= gone
            acknowledged += len(gone)
        else:
            spool.close()
            dropped += spool.counts().dropped
            waiting = {key[:2] for key in contents(spool)}
            spool = Spool(on_disk(folder, disk_bytes=4000))
            # The controller's welcome would say the same: what was acknowledged is still known there.
            for key in done:
                spool.acknowledge(*key)
            assert {key[:2] for key in contents(spool)} == waiting
            life, sequence = life + 1, 0
    left = [key[:2] for key in contents(spool)]
    assert left == [key for key in put if key in set(left)]
    assert len(left) + acknowledged + dropped + spool.counts().dropped == len(put)
    spool.close()
