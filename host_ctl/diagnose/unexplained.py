# SPDX-License-Identifier: Apache-2.0
"""Says when nothing can be said: too few iterations to judge, or a slowdown that no finding explains."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.features import Features
from host_ctl.diagnose.cases import usable_iterations
from host_ctl.reconstruct.jobs import Job

_MIN_ITERATIONS = 6
_MIN_SIDE = 3
_MIN_RISE = 0.1
_SURE_Z = 6.0
_SIGMA_OF_P90 = 1.645
_MEDIAN_EFFICIENCY = 1.2533
_APART = 0.8


def unexplained(job: Job, features: Features) -> str | None:
    """Why a job without a verdict cannot be called healthy, None when it can."""
    durations = features.duration_ns[usable_iterations(features)].astype(np.float64)
    if len(durations) < _MIN_ITERATIONS:
        return f"{job.id} shows {max(0, len(durations))} whole iterations, too few to say whether it is slow"
    rise = lasting_rise(durations, _MIN_RISE, _SURE_Z)
    if rise is None:
        return None
    onset, before, after = rise
    return (
        f"iterations of {job.id} take {after / 1e6:.1f} ms instead of {before / 1e6:.1f} ms since iteration "
        f"{onset + 1}, and nothing in the traffic tells whose fault it is; a longer capture, or one of every "
        f"machine, may"
    )


def lasting_rise(
    durations: NDArray[np.float64], least: float, sure_z: float
) -> tuple[int, float, float] | None:
    """Onset, time before and time after of a clear and lasting rise of the iteration time, if any.

    ``least`` is the smallest rise that counts, as a share; ``sure_z`` how many standard errors it has to be.
    """
    n = len(durations)
    if n < 2 * _MIN_SIDE:
        return None
    total = np.r_[0.0, np.cumsum(np.minimum(durations, np.quantile(durations, 0.9)))]
    onsets = np.arange(_MIN_SIDE, n - _MIN_SIDE + 1)
    gain = (total[n] - total[onsets]) / (n - onsets) - total[onsets] / onsets
    onset = int(onsets[np.argmax(gain * np.sqrt(onsets * (n - onsets)))])
    before, after = durations[:onset], durations[onset:]
    usual, now = float(np.median(before)), float(np.median(after))
    residual = np.abs(np.r_[before - usual, after - now])
    noise = max(float(np.quantile(residual, 0.9)) / _SIGMA_OF_P90, 1e-3 * usual)
    z = (now - usual) / (_MEDIAN_EFFICIENCY * noise * sqrt(1 / len(before) + 1 / len(after)))
    apart = float(np.mean(after > np.quantile(before, 0.9)))
    if now < (1 + least) * usual or z < sure_z or apart < _APART:
        return None
    return onset, usual, now
