# SPDX-License-Identifier: Apache-2.0
"""Pieces: windows of a flow of which only the sums are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire import records


def pieces_of(windows: NDArray[np.void]) -> NDArray[np.void]:
    """Return WINDOW records as PIECE records of one window each."""
    pieces = np.zeros(len(windows), records.PIECE)
    for name in ("start_ns", "bytes", "flow", "packets"):
        pieces[name] = windows[name]
    pieces["windows"] = 1
    return pieces


def spread_pieces(pieces: NDArray[np.void], window_ns: int) -> NDArray[np.void]:
    """Return WINDOW records, ascending by flow and time; a piece is spread evenly over its windows.

    What does not divide is spread as evenly as whole bytes and packets allow, so sums stay what they were.
    """
    lengths = pieces["windows"].astype(np.int64)
    if (lengths == 1).all():
        owner, place = np.arange(len(pieces)), np.zeros(len(pieces), np.int64)
    else:
        owner = np.repeat(np.arange(len(pieces)), lengths)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    windows = np.zeros(len(owner), records.WINDOW)
    windows["start_ns"] = pieces["start_ns"][owner] + place * window_ns
    windows["flow"] = pieces["flow"][owner]
    windows["bytes"] = _share(pieces["bytes"], lengths, owner, place)
    windows["packets"] = _share(pieces["packets"], lengths, owner, place)
    return windows[(windows["packets"] > 0) | (windows["bytes"] > 0)]


def _share(
    sums: NDArray[Any], lengths: NDArray[np.int64], owner: NDArray[np.int64], place: NDArray[np.int64]
) -> NDArray[np.uint32]:
    whole, rest = np.divmod(sums.astype(np.int64), lengths)
    # The rest goes to every (length / rest)th window.
    extra = (place + 1) * rest[owner] // lengths[owner] - place * rest[owner] // lengths[owner]
    share: NDArray[np.uint32] = np.minimum(whole[owner] + extra, np.iinfo(np.uint32).max).astype(np.uint32)
    return share
