# SPDX-License-Identifier: Apache-2.0
"""Errors of a rate curve, defined as by WaveSketch's authors; x is the truth, y the estimate, per window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Errors:
    """Means over flows: relative error (0 is best), cosine and energy similarity (1 is best)."""

    are: float
    cosine: float
    energy: float


def errors(truth: NDArray[np.float64], estimate: NDArray[np.float64]) -> Errors:
    """Score curves of all flows, one per row, that sent something."""
    sent = truth.any(axis=1)
    x, y = truth[sent], estimate[sent]
    are = (np.abs(x - y) / (np.abs(x) + 1)).mean(axis=1)
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    cosine = np.divide((x * y).sum(axis=1), norms, out=np.zeros(len(x)), where=norms > 0)
    ratio = (y**2).sum(axis=1) / (x**2).sum(axis=1)
    energy = np.minimum(ratio, np.divide(1, ratio, out=np.zeros(len(x)), where=ratio > 0))
    return Errors(float(are.mean()), float(cosine.mean()), float(energy.mean()))
