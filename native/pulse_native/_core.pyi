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
    def feed(self, data: Buffer) -> PacketBatch:
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
