# SPDX-License-Identifier: Apache-2.0
"""The tables of a frame: independently compressed sections, each decoded when first asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from dpu_app.wire import records
from dpu_app.wire.columns import packed_columns, unpack_columns
from dpu_app.wire.errors import FrameFormatError
from dpu_app.wire.pieces import pieces_of, spread_pieces
from pulse_native import decode_series, decode_windows

TABLE_DTYPES: dict[str, np.dtype[Any]] = {
    "flows": records.FLOW,
    "messages": records.MESSAGE,
    "controls": records.CONTROL,
    "bursts": records.BURST,
    "markers": records.MARKER,
    "events": records.EVENT,
    "histograms": records.HISTOGRAM,
}
WINDOWS = "windows"
SERIES = "series"

MAX_SECTION_BYTES = 64 << 20
"""Largest section after decompression; a larger one is refused before memory is taken for it."""

MAX_WINDOWS = 1 << 24
"""Most windows decoded from one frame, and most that pieces are spread to."""

_ZSTD_LEVEL = 3


@dataclass(frozen=True, slots=True)
class Section:
    """One compressed section as it stands in a frame."""

    rows: int
    raw_bytes: int
    data: bytes

    def raw(self, name: str) -> bytes:
        """Return the decompressed bytes.

        Raises FrameFormatError, and takes no memory, when they are not as many as the frame claims.
        """
        if not 0 <= self.raw_bytes <= MAX_SECTION_BYTES:
            raise FrameFormatError(
                f"section {name} claims {self.raw_bytes} bytes, more than the {MAX_SECTION_BYTES} allowed"
            )
        try:
            parameters = zstandard.get_frame_parameters(self.data)
            if parameters.content_size != self.raw_bytes:
                raise FrameFormatError(
                    f"section {name} claims {self.raw_bytes} bytes, its data {parameters.content_size}"
                )
            raw = zstandard.ZstdDecompressor(max_window_size=MAX_SECTION_BYTES).decompress(
                self.data, allow_extra_data=False
            )
        except zstandard.ZstdError as error:
            raise FrameFormatError(f"section {name} cannot be decompressed: {error}") from error
        if len(raw) != self.raw_bytes:
            raise FrameFormatError(f"section {name} holds {len(raw)} bytes instead of {self.raw_bytes}")
        return raw

    @classmethod
    def of(cls, rows: int, raw: bytes) -> Section:
        """Compress `raw`. Raises FrameFormatError when it is larger than readers accept."""
        return cls.of_parts(rows, len(raw), (raw,))

    @classmethod
    def of_parts(cls, rows: int, raw_bytes: int, parts: Iterable[bytes]) -> Section:
        """Compress what follows one another in `parts`, `raw_bytes` together, as `of` does."""
        if raw_bytes > MAX_SECTION_BYTES:
            raise FrameFormatError(
                f"a section of {raw_bytes} bytes exceeds the {MAX_SECTION_BYTES} that readers accept"
            )
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_content_size=True)
        stream = compressor.compressobj(size=raw_bytes)
        data = [stream.compress(part) for part in parts]
        return cls(rows, raw_bytes, b"".join([*data, stream.flush()]))


@dataclass(frozen=True, slots=True)
class WindowBlob:
    """Windows of all flows, still encoded (docs/wire-format.md): `series`, or `blob` in older frames."""

    begin_ns: int
    window_ns: int
    blob: bytes = b""
    series: bytes = b""

    def decode(self) -> NDArray[np.void]:
        """Return PIECE records, ascending by flow and time. Raises FrameFormatError on damage.

        A row of one window is exact; of one with more, where the meter was over its budget, the sums are.
        """
        try:
            if self.series:
                return decode_series(self.series, self.window_ns, MAX_WINDOWS)
            if self.blob:
                return pieces_of(decode_windows(self.blob, self.begin_ns, self.window_ns, MAX_WINDOWS))
        except (ValueError, OverflowError) as error:
            raise FrameFormatError(str(error)) from error
        return np.empty(0, records.PIECE)


_NO_WINDOWS = WindowBlob(0, 1)
_WINDOW_HEADER_BYTES = 16


class Tables:
    """Tables of one frame. Reading one never decompresses another; results are kept.

    Tables that were not sent are empty. Arrays are shared between callers: treat them as read-only.
    """

    __slots__ = ("_arrays", "_sections", "_windows")

    def __init__(self, sections: Mapping[str, Section]) -> None:
        self._sections = dict(sections)
        self._arrays: dict[str, NDArray[np.void]] = {}
        self._windows: WindowBlob | None = None

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[np.void]], windows: WindowBlob | None = None) -> Tables:
        """Make tables of arrays in the layouts of `TABLE_DTYPES`; ValueError on another name or layout."""
        tables = cls({})
        for name, array in arrays.items():
            if name not in TABLE_DTYPES or array.dtype != TABLE_DTYPES[name] or array.ndim != 1:
                raise ValueError(f"table {name} is not a one-dimensional array in the layout of that table")
            tables._arrays[name] = array
        tables._windows = windows
        return tables

    @property
    def flows(self) -> NDArray[np.void]:
        """FLOW records of the flows that had packets."""
        return self._table("flows")

    @property
    def messages(self) -> NDArray[np.void]:
        """MESSAGE records."""
        return self._table("messages")

    @property
    def controls(self) -> NDArray[np.void]:
        """CONTROL records."""
        return self._table("controls")

    @property
    def bursts(self) -> NDArray[np.void]:
        """BURST records."""
        return self._table("bursts")

    @property
    def markers(self) -> NDArray[np.void]:
        """MARKER records."""
        return self._table("markers")

    @property
    def events(self) -> NDArray[np.void]:
        """EVENT records."""
        return self._table("events")

    @property
    def histograms(self) -> NDArray[np.void]:
        """HISTOGRAM records."""
        return self._table("histograms")

    @property
    def window_blob(self) -> WindowBlob:
        """Windows, still encoded; empty when none were sent."""
        if self._windows is None:
            self._windows = _unpack_windows(self._sections)
        return self._windows

    def pieces(self) -> NDArray[np.void]:
        """Return PIECE records, decoded anew each time: they may be many."""
        return self.window_blob.decode()

    def windows(self) -> NDArray[np.void]:
        """Return WINDOW records; what is known only by sums is spread evenly, and the sums stay exact."""
        pieces = self.pieces()
        if pieces["windows"].sum(dtype=np.uint64) > MAX_WINDOWS:
            raise FrameFormatError(f"pieces cover more than {MAX_WINDOWS} windows: spread those of one flow")
        return spread_pieces(pieces, self.window_blob.window_ns)

    def sections(self) -> dict[str, Section]:
        """Return all sections, compressing what has not been yet; sections of unknown names are passed on."""
        sections = dict(self._sections)
        for name, array in self._arrays.items():
            if name not in sections:
                sections[name] = Section.of_parts(len(array), array.nbytes, packed_columns(array))
        windows = self._windows
        if windows not in (None, _NO_WINDOWS) and not {WINDOWS, SERIES} & sections.keys():
            name, content = (SERIES, windows.series) if windows.series else (WINDOWS, windows.blob)
            size = _WINDOW_HEADER_BYTES + len(content)
            sections[name] = Section.of_parts(0, size, (_window_header(windows), content))
        return sections

    def decode_all(self, names: Iterable[str] = (*TABLE_DTYPES, WINDOWS)) -> None:
        """Decode the named tables now, so that damage shows here. Raises FrameFormatError."""
        for name in names:
            if name == WINDOWS:
                self.pieces()
            else:
                self._table(name)

    def is_decoded(self, name: str) -> bool:
        """Whether the section has been decompressed, or never was compressed."""
        return self._windows is not None if name == WINDOWS else name in self._arrays

    def _table(self, name: str) -> NDArray[np.void]:
        array = self._arrays.get(name)
        if array is None:
            dtype = TABLE_DTYPES[name]
            section = self._sections.get(name)
            array = np.empty(0, dtype) if section is None else _unpack_table(name, section, dtype)
            self._arrays[name] = array
        return array


def _unpack_table(name: str, section: Section, dtype: np.dtype[Any]) -> NDArray[np.void]:
    if section.rows * dtype.itemsize != section.raw_bytes:
        raise FrameFormatError(
            f"section {name} claims {section.rows} rows of {dtype.itemsize} bytes, "
            f"and {section.raw_bytes} bytes together"
        )
    return unpack_columns(section.raw(name), dtype, section.rows)


def _window_header(windows: WindowBlob) -> bytes:
    return windows.begin_ns.to_bytes(8, "little", signed=True) + windows.window_ns.to_bytes(8, "little")


def _unpack_windows(sections: Mapping[str, Section]) -> WindowBlob:
    blobs: dict[str, bytes] = {}
    header = None
    for name in (WINDOWS, SERIES):
        if name not in sections:
            continue
        raw = sections[name].raw(name)
        if len(raw) < _WINDOW_HEADER_BYTES:
            raise FrameFormatError(f"section {name} of {len(raw)} bytes is shorter than its header")
        if header is not None:
            raise FrameFormatError(f"there is a section {WINDOWS} and a section {SERIES}")
        header, blobs[name] = raw[:_WINDOW_HEADER_BYTES], raw[_WINDOW_HEADER_BYTES:]
    if header is None:
        return _NO_WINDOWS
    begin_ns, window_ns = (
        int.from_bytes(header[:8], "little", signed=True),
        int.from_bytes(header[8:], "little"),
    )
    return WindowBlob(begin_ns, window_ns, blobs.get(WINDOWS, b""), blobs.get(SERIES, b""))
