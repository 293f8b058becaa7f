# SPDX-License-Identifier: Apache-2.0
"""What the presentation needs of an analysis, whoever made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from host_ctl.align.clock import Alignment
from host_ctl.attribute.dimensions import Dimension
from host_ctl.attribute.features import Features
from host_ctl.attribute.program import Program
from host_ctl.attribute.states import StateTimes
from host_ctl.diagnose.verdict import Health, Verdict
from host_ctl.ingest.series import NicSeries
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic


class AnalysedJob(Protocol):
    """One job with what the stages found about it."""

    @property
    def job(self) -> Job:
        """Its groups and iterations."""

    @property
    def program(self) -> Program:
        """What every NIC does in an iteration."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of operator of each group."""

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The parallel dimension of each group."""

    @property
    def features(self) -> Features:
        """Lost time per iteration and NIC."""

    @property
    def states(self) -> tuple[StateTimes, ...]:
        """Wait states by group; empty where nobody asked for them."""


class Analysed(Protocol):
    """The whole result of an analysis."""

    @property
    def series(self) -> tuple[NicSeries, ...]:
        """What every NIC saw."""

    @property
    def alignment(self) -> Alignment:
        """The clocks of the series."""

    @property
    def traffic(self) -> Traffic:
        """All data on the common clock."""

    @property
    def jobs(self) -> Sequence[AnalysedJob]:
        """The training jobs."""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What is wrong, the gravest first within each job."""

    @property
    def health(self) -> Health:
        """What the exit status tells."""

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be told."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is odd in the data."""
