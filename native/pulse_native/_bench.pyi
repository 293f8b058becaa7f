# SPDX-License-Identifier: Apache-2.0
"""Traffic and loops of `pulse bench measure`; nothing that runs on a DPU loads this module."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pulse_native._core import PacketBatch

class Traffic:
    """RDMA WRITE messages at line rate in both directions of a port, and their ACKs.

    `config` may hold flows, mtu, train_packets, message_bytes, gigabits, steered, snap and seed. Raises
    ValueError when that makes no sense.
    """

    def __init__(self, config: dict[str, Any]) -> None: ...
    def next_batch(self, packets: int) -> PacketBatch:
        """Return at least `packets` packets that follow those before."""
    @property
    def now_ns(self) -> int:
        """Time of the next packet."""

def keep_windows(
    slots: NDArray[np.uint32],
    indices: NDArray[np.int64],
    sizes: NDArray[np.uint64],
    packets: NDArray[np.uint32],
    flows: int,
    budget_bytes: int,
) -> tuple[NDArray[np.void], int]:
    """Return what a window store of that budget keeps of windows in the order of time, and its bytes.

    `sizes` are bytes. Rows are PIECE records whose `start_ns` is the number of the window. Raises ValueError
    when a window has no packets or its slot is not below `flows`.
    """

def measure_path(
    traffic: dict[str, Any], window_ns: int, batch_packets: int, repetitions: int
) -> dict[str, float]:
    """Return floor_ns, parse_ns, meter_ns, cut_ns, median_ratio and packets.

    Nanoseconds of processor time per packet, the quickest of the repetitions; `median_ratio` is that of meter
    to floor. Raises RuntimeError when the meter did not see what was made.
    """
