from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from pulse_native.capture_stats import CaptureStats

__version__: str

OUTCOME_NAMES: tuple[str, ...]
"""Name of each value of the ``outcome`` field of a PACKET record."""

class PacketBatch:
    """Captured packets in columns, in the order of capture."""

    def __init__(self) -> None:
        """Make a batch without packets: it says that time has passed."""
    def __len__(self) -> int: ...
    @property
    def ns(self) -> NDArray[np.int64]:
        """Capture times, nanoseconds since 1970; a read-only view that keeps the batch alive."""
    @property
    def wire_bytes(self) -> NDArray[np.uint32]:
        """Lengths on the wire; a read-only view that keeps the batch alive."""
    @property
    def captured_bytes(self) -> NDArray[np.uint32]:
        """Lengths of what was kept; a read-only view that keeps the batch alive."""
    def data(self, index: int) -> bytes:
        """Return the kept bytes of one packet, link-layer header first.

        Raises IndexError when there is no such packet; negative indices count as such.
        """
    def parse(self) -> NDArray[np.void]:
        """Return one PACKET record for each packet."""

class CaptureReader:
    """Push parser for pcap and pcapng files, fed in chunks of any size.

    Keeps the first `keep_bytes` bytes of each packet. May be fed by several threads, one after the other.
    """

    def __init__(self, keep_bytes: int = ...) -> None: ...
    def feed(self, data: Buffer | NDArray[Any]) -> PacketBatch:
        """Return the packets that the next bytes of the file complete.

        A file that turns out to be corrupt yields no more packets and says why in `stats`.
        """
    def finish(self) -> None:
        """Tell that the file has ended, so that an incomplete packet counts as cut off."""
    @property
    def stats(self) -> CaptureStats: ...

def icrc(ip_packet: Buffer) -> int:
    """Return the ICRC of a RoCEv2 packet given from its IP header to the end of the padded payload.

    The packet carries it in little-endian order. Raises ValueError when the bytes are not IP, UDP and BTH.
    """

def record_dtypes() -> dict[str, np.dtype[Any]]:
    """Return the NumPy dtype of every record, by its name in ``dpu_app.wire.records``."""

class Interval:
    """What a meter saw between two cuts; arrays are in the layouts of ``dpu_app.wire.records``."""

    @property
    def begin_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def window_ns(self) -> int:
        """Width of a window."""
    @property
    def flows(self) -> NDArray[np.void]:
        """FLOW records of the flows that had packets, ascending by flow."""
    @property
    def messages(self) -> NDArray[np.void]:
        """MESSAGE records in the order in which the messages ended."""
    @property
    def controls(self) -> NDArray[np.void]: ...
    @property
    def bursts(self) -> NDArray[np.void]:
        """BURST records; a burst that goes on over a cut is one record in each interval."""
    @property
    def markers(self) -> NDArray[np.void]: ...
    @property
    def events(self) -> NDArray[np.void]: ...
    @property
    def histograms(self) -> NDArray[np.void]:
        """HISTOGRAM records, one for each cell that is not empty."""
    @property
    def series(self) -> bytes:
        """Series section: the windows of all flows, to be read by `decode_series`."""
    @property
    def counters(self) -> dict[str, int]: ...

class Meter:
    """Measures the packets of one NIC.

    May be used by several threads, one after the other. Raises ValueError when a setting is out of range.
    """

    def __init__(
        self,
        *,
        window_ns: int = ...,
        burst_gap_ns: int = ...,
        max_flows: int = ...,
        idle_ns: int = ...,
        steered: bool = False,
        sample_shift: int = ...,
        window_budget_bytes: int = ...,
        max_records: int = ...,
        record_budget_bytes: int = ...,
        max_bursts: int = ...,
        max_data_markers: int = ...,
    ) -> None: ...
    def update(self, batch: PacketBatch, start: int = ..., until_ns: int | None = None) -> int:
        """Take packets from index `start` on, up to the first at or after `until_ns`.

        Returns the index of the first packet not taken. Raises IndexError when `start` is outside the batch.
        """
    def update_records(self, records: NDArray[np.void]) -> None:
        """Take PACKET records, a one-dimensional contiguous array."""
    def cut(self, begin_ns: int, end_ns: int) -> Interval:
        """End the interval and return it; messages that have not ended stay for a later one."""
    def finish(self, begin_ns: int, end_ns: int) -> Interval:
        """Like `cut`, with the messages that have not ended, marked NO_END."""
    @property
    def flow_count(self) -> int:
        """Flows in the table now."""
    @property
    def memory_bytes(self) -> int:
        """Memory that the meter has taken, with the interval that it is filling."""

def decode_windows(blob: bytes, begin_ns: int, window_ns: int, max_windows: int = ...) -> NDArray[np.void]:
    """Return the WINDOW records of a windows section, which frames of version 0.1 have.

    Raises ValueError when the section is damaged or holds more than `max_windows` windows.
    """

def decode_series(section: bytes, window_ns: int, max_rows: int = ...) -> NDArray[np.void]:
    """Return the PIECE records of a series section, ascending by flow and time.

    A row of one window is exact; of more the sums are.

    Raises ValueError when the section is damaged or holds more than `max_rows` entries.
    """

def data_marker_hash(psn: int, dest_qpn: int) -> int:
    """Return the hash whose low six bits choose data packets as markers."""

def ack_marker_hash(psn: int, msn: int) -> int:
    """Return the hash whose low three bits choose ACK and NAK as markers."""

def histogram_cell(value: int) -> int:
    """Return the cell that counts `value`, 0 to 63."""

def histogram_lower_bound(cell: int) -> int:
    """Return the smallest value that `cell` counts. Raises IndexError when there is no such cell."""

def replay_dtypes() -> dict[str, np.dtype[np.void]]:
    """Return the dtypes of what `replay` takes: MESSAGE, what each waited for, and CUT, what is shortened."""

def replay(
    messages: NDArray[np.void], cuts: NDArray[np.void], order: NDArray[np.int64], hosts: int
) -> NDArray[np.int64]:
    """Return when each message would have arrived with the cuts (ns).

    `order` lists the rows by their observed start, hosts are numbered from 0. Without cuts the observed
    arrivals return. Raises ValueError when lengths differ or a row or a host is out of range.
    """
