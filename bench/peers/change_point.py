# SPDX-License-Identifier: Apache-2.0
"""Bayesian online change-point detection (Adams and MacKay, 2007), mean and variance unknown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Floats = NDArray[np.float64]


def run_lengths(values: Floats, hazard: float, spread: float) -> list[int]:
    """The most probable number of values since the last change, after each value.

    ``hazard`` is the prior probability of a change per value; ``spread`` the prior standard deviation of
    values about their mean. The prior mean is the first value.
    """
    mean, strength = np.array([values[0]]), np.array([0.1])
    shape, scale = np.array([1.0]), np.array([spread**2])
    weight = np.array([1.0])
    found = []
    for value in values.tolist():
        likelihood = _student(value, mean, strength, shape, scale)
        grown = weight * likelihood * (1 - hazard)
        weight = np.r_[(weight * likelihood * hazard).sum(), grown]
        weight /= max(float(weight.sum()), np.finfo(float).tiny)
        scale = np.r_[spread**2, scale + strength * (value - mean) ** 2 / (2 * (strength + 1))]
        mean = np.r_[values[0], (strength * mean + value) / (strength + 1)]
        strength = np.r_[0.1, strength + 1]
        shape = np.r_[1.0, shape + 0.5]
        found.append(int(weight.argmax()))
    return found


def _student(value: float, mean: Floats, strength: Floats, shape: Floats, scale: Floats) -> Floats:
    """Density of the next value under each run length."""
    freedom = 2 * shape
    variance = scale * (strength + 1) / (shape * strength)
    log_density = (
        gammaln((freedom + 1) / 2)
        - gammaln(freedom / 2)
        - 0.5 * np.log(freedom * np.pi * variance)
        - (freedom + 1) / 2 * np.log1p((value - mean) ** 2 / (freedom * variance))
    )
    density: Floats = np.exp(log_density)
    return density


def change_points(values: Floats, hazard: float, spread: float) -> list[int]:
    """Places at which a new regime begins: the most probable run length falls behind by more than one."""
    if not len(values):
        return []
    found: list[int] = []
    before = 0
    for place, length in enumerate(run_lengths(values, hazard, spread)):
        if length < before:
            found.append(place - length + 1)
        before = length
    return found
