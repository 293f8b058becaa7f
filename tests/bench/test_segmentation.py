# SPDX-License-Identifier: Apache-2.0
"""The rules that cut traffic into operators, on sequences whose operators are known."""

from __future__ import annotations

import numpy as np

from bench.segmentation import silence_cuts, volume_cuts

OPERATORS = 5
START = np.array([o * 100 + m * 10 for o in range(OPERATORS) for m in range(4)], dtype=np.int64)
SIZES = np.full(len(START), 64, dtype=np.uint64)


def test_silence_finds_the_operators_between_whose_parts_nothing_pauses() -> None:
    assert silence_cuts(START, START + 9, 5) == OPERATORS


def test_a_late_rank_inside_an_operator_is_one_operator_more_for_silence_and_none_for_volume() -> None:
    late = START + np.where(np.arange(len(START)) >= 10, 50, 0)
    assert silence_cuts(late, late + 9, 5) == OPERATORS + 1
    assert volume_cuts(SIZES, 4 * 64, late, late + 9) == OPERATORS
