# SPDX-License-Identifier: Apache-2.0
"""Pieces: windows of a flow of which only the sums are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire import records


def spread_pieces(windows: NDArray[np.void], pieces: NDArray[np.void], window_ns: int) -> NDArray[np.void]:
    """Return WINDOW records of both, ascending by flow and time; a piece is spread evenly over its windows.

    What does not divide is spread as evenly as whole bytes and packets allow, so sums stay what they were.
    """
    if len(pieces) == 0:
        return windows
    lengths = pieces["windows"].astype(np.int64)
    owner = np.repeat(np.arange(len(pieces)), lengths)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    spread = np.zeros(len(owner), records.WINDOW)
    spread["start_ns"] = pieces["start_ns"][owner] + place * window_ns
    spread["flow"] = pieces["flow"][owner]
    spread["bytes"] = _share(pieces["bytes"], lengths, owner, place)
    spread["packets"] = _share(pieces["packets"], lengths, owner, place)
    both = np.concatenate([windows, spread[spread["packets"] > 0]])
    return both[np.lexsort((both["start_ns"], both["flow"]))]


def _share(
    sums: NDArray[Any], lengths: NDArray[np.int64], owner: NDArray[np.int64], place: NDArray[np.int64]
) -> NDArray[np.uint32]:
    whole, rest = np.divmod(sums.astype(np.int64), lengths)
    # The rest goes to every (length / rest)th window.
    extra = (place + 1) * rest[owner] // lengths[owner] - place * rest[owner] // lengths[owner]
    return np.minimum(whole[owner] + extra, np.iinfo(np.uint32).max).astype(np.uint32)
