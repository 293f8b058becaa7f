# SPDX-License-Identifier: Apache-2.0
"""Files of frames: how frames are kept or carried where there is no network.

Eight bytes of magic, then each frame as its length and CRC-32 (both little-endian u32) and its bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import IO

from dpu_app.wire.errors import FrameFormatError
from dpu_app.wire.frame import MAX_FRAME_BYTES, Frame, decode_frame, encode_frame

MAGIC = b"PLSFRM\x01\n"
SUFFIX = ".frames"

_HEAD = struct.Struct("<II")


class FrameFileWriter:
    """Appends frames to a binary file that the caller has opened for writing."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        file.write(MAGIC)

    def write(self, frame: Frame) -> None:
        """Append one frame. Raises OSError as the file does."""
        self.write_encoded(encode_frame(frame))

    def write_encoded(self, data: bytes) -> None:
        """Append a frame that is encoded already, as it is. Raises OSError as the file does."""
        self._file.write(_HEAD.pack(len(data), zlib.crc32(data)))
        self._file.write(data)


def read_frames(file: IO[bytes]) -> Iterator[Frame]:
    """Yield the frames of a file in its order.

    Raises FrameFormatError where the file is damaged or cut off, after all frames before that place.
    """
    if file.read(len(MAGIC)) != MAGIC:
        raise FrameFormatError("not a file of frames")
    number = 0
    while head := file.read(_HEAD.size):
        length, checksum = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 0)
        if not 0 < length <= MAX_FRAME_BYTES:
            raise FrameFormatError(f"cut off or damaged at the head of frame {number}")
        data = file.read(length)
        if len(data) < length:
            raise FrameFormatError(f"cut off inside frame {number}")
        if zlib.crc32(data) != checksum:
            raise FrameFormatError(f"frame {number} is damaged: its checksum is wrong")
        yield decode_frame(data)
        number += 1
