# SPDX-License-Identifier: Apache-2.0
"""Whom a verdict points at, and whom to hold them against."""

from __future__ import annotations

from dataclasses import dataclass

from host_ctl.diagnose.verdict import Verdict
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic


@dataclass(frozen=True, slots=True)
class Pointed:
    """Endpoints that a verdict blames, and those that it holds for possible only."""

    blamed: tuple[int, ...]
    possible: tuple[int, ...]

    @property
    def all(self) -> tuple[int, ...]:
        """Both together, the blamed ones first."""
        return tuple(dict.fromkeys((*self.blamed, *self.possible)))


def pointed_at(verdict: Verdict, job: Job, traffic: Traffic) -> Pointed:
    """The endpoints of a job that a verdict names. A machine without a NIC stands for all of its NICs."""
    blamed = _named(verdict.machine, verdict.nic, job, traffic) if verdict.machine else ()
    possible = tuple(e for c in verdict.candidates for e in _named(c.machine, c.nic, job, traffic))
    return Pointed(blamed, tuple(e for e in dict.fromkeys(possible) if e not in blamed))


def _named(machine: str, nic: str | None, job: Job, traffic: Traffic) -> tuple[int, ...]:
    return tuple(
        e
        for e in job.members
        if traffic.endpoints[e].machine == machine and nic in (None, traffic.endpoints[e].nic)
    )


def by_interest(first: tuple[int, ...], job: Job, traffic: Traffic, most: int) -> list[int]:
    """Members worth showing: those named, then who shares a group with them, then the others."""
    groups = [set(t.group.members) for t in job.timelines]
    near = [m for group in groups if group & set(first) for m in sorted(group)]
    machines = {traffic.endpoints[e].machine for e in first}
    far = sorted(job.members, key=lambda m: (traffic.endpoints[m].machine in machines, m))
    return list(dict.fromkeys((*first[: max(1, most // 2)], *near, *far)))[:most]
