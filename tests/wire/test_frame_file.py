# SPDX-License-Identifier: Apache-2.0
"""Files of frames: what goes in comes out, and damage is told where it is."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpu_app.wire.errors import FrameFormatError
from dpu_app.wire.frame import Frame, NicIdentity, encode_frame
from dpu_app.wire.frame_file import MAGIC, FrameFileWriter, read_frames
from dpu_app.wire.tables import Tables

GOLDEN = Path(__file__).parent / "golden" / "frames-v1.frames"


def frame(sequence: int) -> Frame:
    return Frame(
        nic=NicIdentity("node0", "mlx5_0", ("10.0.0.1",)),
        boot_id="boot",
        sequence=sequence,
        begin_ns=sequence * 1_000_000_000,
        end_ns=(sequence + 1) * 1_000_000_000,
        tables=Tables({}),
    )


def file_of(frames: list[Frame]) -> bytes:
    file = io.BytesIO()
    writer = FrameFileWriter(file)
    for one in frames:
        writer.write(one)
    return file.getvalue()


def read_all(content: bytes) -> tuple[list[Frame], str]:
    found: list[Frame] = []
    try:
        found.extend(read_frames(io.BytesIO(content)))
    except FrameFormatError as error:
        return found, str(error)
    return found, ""


@given(st.lists(st.integers(0, 1000), max_size=5))
def test_frames_come_back_in_their_order(sequences: list[int]) -> None:
    frames = [frame(number) for number in sequences]
    assert read_all(file_of(frames)) == (frames, "")


def test_the_layout_is_magic_then_length_checksum_and_bytes() -> None:
    data = encode_frame(frame(3))
    assert file_of([frame(3)]) == MAGIC + struct.pack("<II", len(data), zlib.crc32(data)) + data


def test_a_file_of_the_first_version_is_still_read() -> None:
    frames, problem = read_all(GOLDEN.read_bytes())
    assert (frames, problem) == ([frame(0), frame(1)], "")


@given(st.data())
def test_a_file_cut_anywhere_gives_the_whole_frames_before_the_cut(data: st.DataObject) -> None:
    frames = [frame(number) for number in range(3)]
    content = file_of(frames)
    ends = [len(file_of(frames[:count])) for count in range(4)]
    cut = data.draw(st.integers(len(MAGIC), len(content)))
    found, problem = read_all(content[:cut])
    assert found == frames[: sum(end <= cut for end in ends) - 1]
    assert bool(problem) == (cut not in ends)


@given(st.data())
def test_a_flipped_bit_is_never_taken_for_sound(data: st.DataObject) -> None:
    frames = [frame(number) for number in range(2)]
    content = bytearray(file_of(frames))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    found, problem = read_all(bytes(content))
    assert problem
    assert found == frames[: len(found)]


def test_another_kind_of_file_is_refused_at_once() -> None:
    assert read_all(b"\xd4\xc3\xb2\xa1" + bytes(40)) == ([], "not a file of frames")


def test_a_length_beyond_the_largest_frame_takes_no_memory() -> None:
    with pytest.raises(FrameFormatError, match="head of frame 0"):
        list(read_frames(io.BytesIO(MAGIC + struct.pack("<II", 0xFFFF_FFFF, 0))))
