# SPDX-License-Identifier: Apache-2.0
"""Compiled part of Pulse: capture reader, RoCEv2 parser and flow meter."""

from pulse_native._core import (
    OUTCOME_NAMES,
    CaptureReader,
    Interval,
    Meter,
    PacketBatch,
    __version__,
    ack_marker_hash,
    data_marker_hash,
    decode_series,
    decode_windows,
    histogram_cell,
    histogram_lower_bound,
    icrc,
    record_dtypes,
    replay,
    replay_dtypes,
)
from pulse_native.capture_stats import CaptureStats

__all__ = [
    "OUTCOME_NAMES",
    "CaptureReader",
    "CaptureStats",
    "Interval",
    "Meter",
    "PacketBatch",
    "__version__",
    "ack_marker_hash",
    "data_marker_hash",
    "decode_series",
    "decode_windows",
    "histogram_cell",
    "histogram_lower_bound",
    "icrc",
    "record_dtypes",
    "replay",
    "replay_dtypes",
]
