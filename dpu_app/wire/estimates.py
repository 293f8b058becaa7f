# SPDX-License-Identifier: Apache-2.0
"""What partial captures say of the whole: windows of a steered one, counts of a sampled one with their error.

A steered capture holds the ends of messages; what lay between is spread evenly over the time between. A
sampled one holds each packet with probability 1/2^k, independently of others: what it counts, times 2^k, is
right on average, and how far a single count strays is known from the counts themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire import records


def steered_windows(
    messages: NDArray[np.void], controls: NDArray[np.void], window_ns: int, max_windows: int = 1 << 24
) -> NDArray[np.void]:
    """Return WINDOW records of a steered capture, ascending by flow and time, from its messages.

    Each message is spread evenly between its start and end. Sums of bytes are exact; `packets` are those
    seen. Raises ValueError when the messages cover more than `max_windows` windows.
    """
    end_ns = np.concatenate([messages["end_ns"], controls["ns"]])
    start_ns = np.minimum(np.concatenate([messages["start_ns"], controls["ns"]]), end_ns)
    size = np.concatenate([messages["bytes"].astype(np.int64), controls["bytes"].astype(np.int64)])
    flow = np.concatenate([messages["flow"], controls["flow"]])
    seen = np.concatenate([messages["packets"].astype(np.int64), np.ones(len(controls), np.int64)])
    first, last = start_ns // window_ns, end_ns // window_ns
    lengths = last - first + 1
    if lengths.sum(dtype=np.float64) > max_windows:
        raise ValueError(f"messages cover more than {max_windows} windows: take those of one flow")
    owner = np.repeat(np.arange(len(first)), lengths)
    window = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    # What has arrived by the begin and by the end of each window, as a share of the message.
    duration = np.maximum(end_ns - start_ns, 1)[owner]
    begin = np.clip(window * window_ns - start_ns[owner], 0, duration) / duration
    end = np.where(window == last[owner], 1.0, ((window + 1) * window_ns - start_ns[owner]) / duration)
    # Shares are rounded at the edges, so those of a message add up.
    shares = [np.rint(all_[owner] * end) - np.rint(all_[owner] * begin) for all_ in (size, seen)]
    return _summed(flow[owner], window, shares[0], shares[1], window_ns)


def _summed(
    flow: NDArray[Any], window: NDArray[Any], size: NDArray[Any], packets: NDArray[Any], window_ns: int
) -> NDArray[np.void]:
    order = np.lexsort((window, flow))
    flow, window = flow[order], window[order]
    is_new = np.ones(len(flow), np.bool_)
    is_new[1:] = (np.diff(flow.astype(np.int64)) != 0) | (np.diff(window) != 0)
    starts = np.flatnonzero(is_new)
    rows = np.zeros(len(starts), records.WINDOW)
    if len(starts):
        rows["flow"], rows["start_ns"] = flow[starts], window[starts] * window_ns
        most = np.iinfo(np.uint32).max  # of one window: saturated, as what no link can carry
        rows["bytes"] = np.minimum(np.add.reduceat(size[order], starts), most)
        rows["packets"] = np.add.reduceat(packets[order], starts)
    return rows[(rows["bytes"] > 0) | (rows["packets"] > 0)]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated values and their standard errors."""

    value: NDArray[np.float64]
    error: NDArray[np.float64]


def sampled_counts(taken: NDArray[Any], sample_shift: int) -> Estimate:
    """Estimate how many packets there were of which `taken` were sampled; unbiased, as is its variance."""
    scale = float(1 << sample_shift)
    counts = np.asarray(taken, np.float64)
    return Estimate(counts * scale, np.sqrt(counts * scale * (scale - 1)))


def sampled_bytes(taken: NDArray[Any], largest_packet: NDArray[Any] | float, sample_shift: int) -> Estimate:
    """Estimate the bytes of packets of which `taken` bytes were sampled; unbiased.

    The error is exact where all packets have `largest_packet` bytes, and too large where some are smaller.
    """
    scale = float(1 << sample_shift)
    sums = np.asarray(taken, np.float64)
    return Estimate(sums * scale, np.sqrt(sums * largest_packet * scale * (scale - 1)))
