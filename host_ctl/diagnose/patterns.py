# SPDX-License-Identifier: Apache-2.0
"""Patterns that cost time and accuse nobody. Each is a notice, and none stands where a fault was found."""

from __future__ import annotations

from collections.abc import Sequence

from host_ctl.attribute.dimensions import Dimension
from host_ctl.attribute.features import Features
from host_ctl.attribute.program import Program
from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.data_imbalance import data_imbalance
from host_ctl.diagnose.periodic_pause import periodic_pause
from host_ctl.diagnose.random_pauses import random_pauses
from host_ctl.diagnose.stage_imbalance import stage_imbalance
from host_ctl.diagnose.verdict import Verdict
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.transfers import Traffic


def find_patterns(
    traffic: Traffic,
    program: Program,
    features: Features,
    replayed: Replay,
    paths: Table,
    dimensions: Sequence[Dimension],
) -> list[Verdict]:
    """The notices about one job without faults.

    What comes by a plan explains pauses before what comes by chance does; machines that are late by turns in
    every iteration are late in some by much.
    """
    job = program.job
    planned = periodic_pause(traffic, job, features, replayed)
    uneven = data_imbalance(traffic, program, features, replayed, paths)
    chance = uneven or (None if planned else random_pauses(traffic, job, features, replayed))
    heavy = stage_imbalance(traffic, program, features, dimensions)
    return [found for found in (planned, chance, heavy) if found is not None]
