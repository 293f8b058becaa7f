# SPDX-License-Identifier: Apache-2.0
"""What an instrumented collective library reports of a run, and nothing else.

One row per operation of a rank and one per peer that it sends to. Left out on purpose: the fault, its
culprit, the counterfactual run, wait states, clock errors. Times are those of one perfect clock, which no
real library has: methods that compare entry times between machines gain by it. The steps are those of the
job; real tools must find them first, for instance by the period of the operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.void]
NEVER = -1
NO_NUMBER = -1

OPERATION = np.dtype(
    [
        ("rank", "<u4"),
        ("group", "<u4"),  # index into OperatorLog.groups
        ("number", "<i4"),  # counts the group's collectives; NO_NUMBER: point to point
        ("kind", "<u4"),  # index into OperatorLog.kinds
        ("step", "<i4"),
        ("place", "<u4"),  # of the operation among its rank's operations of the step
        ("bytes", "<i8"),
        ("enter_ns", "<i8"),
        ("end_ns", "<i8"),  # NEVER: entered and not left
    ]
)
REQUEST = np.dtype(
    [
        ("operation", "<u4"),  # row of the operation
        ("peer", "<u4"),
        ("bytes", "<i8"),  # that the operation asks to be sent to this peer
        ("requests", "<u4"),
        ("completions", "<u4"),
        ("completed_bytes", "<i8"),
        ("busy_ns", "<i8"),  # while any completed request was under way
    ]
)


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where a rank runs, and what its process reported besides operations; ``ended_ns`` None = it lives."""

    machine: str
    job: int
    ended_ns: int | None
    failed_connections: int


@dataclass(frozen=True, slots=True)
class OperatorLog:
    """The log of a run up to ``until_ns``; operations by rank, each rank's in the order of entry."""

    operations: Table
    requests: Table
    groups: tuple[str, ...]
    kinds: tuple[str, ...]
    ranks: Mapping[int, RankPlace]
    until_ns: int

    @property
    def jobs(self) -> list[int]:
        """The jobs that ran."""
        return sorted({place.job for place in self.ranks.values()})

    def job(self, number: int) -> OperatorLog:
        """The part of the log that concerns one job."""
        ranks = {rank: place for rank, place in self.ranks.items() if place.job == number}
        chosen = np.isin(self.operations["rank"], list(ranks))
        kept = np.isin(self.requests["operation"], np.flatnonzero(chosen))
        requests = self.requests[kept].copy()
        requests["operation"] = (np.cumsum(chosen) - 1)[requests["operation"]]
        return OperatorLog(self.operations[chosen], requests, self.groups, self.kinds, ranks, self.until_ns)

    def machine(self, rank: int) -> str:
        """The machine on which a rank runs."""
        return self.ranks[rank].machine

    def of_rank(self, rank: int) -> Table:
        """The operations of one rank."""
        rows: Table = self.operations[self.operations["rank"] == rank]
        return rows

    def collectives(self) -> Iterator[Table]:
        """The rows of one collective at a time, in the order of first entry."""
        rows = self.operations[self.operations["number"] != NO_NUMBER]
        rows = rows[np.lexsort((rows["number"], rows["group"]))]
        changes = (np.diff(rows["group"].astype(np.int64)) != 0) | (np.diff(rows["number"]) != 0)
        parts = np.split(rows, np.flatnonzero(changes) + 1) if len(rows) else []
        yield from sorted(parts, key=lambda part: int(part["enter_ns"].min()))

    def members(self, group: int) -> set[int]:
        """The ranks that ever took part in a collective of the group."""
        mine = (self.operations["group"] == group) & (self.operations["number"] != NO_NUMBER)
        return set(self.operations["rank"][mine].tolist())

    def partners(self) -> dict[int, set[int]]:
        """Whom each rank sends to or receives from point to point."""
        found: dict[int, set[int]] = {}
        for one in self.requests:
            operation = self.operations[one["operation"]]
            if operation["number"] == NO_NUMBER:
                found.setdefault(int(operation["rank"]), set()).add(int(one["peer"]))
                found.setdefault(int(one["peer"]), set()).add(int(operation["rank"]))
        return found


def operator_log(truth: Mapping[str, Any]) -> OperatorLog:
    """The log of a simulated run, from the content of its ``truth.json``."""
    groups: dict[str, int] = {}
    kinds: dict[str, int] = {}
    operations: list[tuple[int, ...]] = []
    requests: list[tuple[int, ...]] = []
    ranks = {
        rank["number"]: RankPlace(
            f"node{rank['node']}", rank["job"], rank["process_end_ns"], len(rank["verbs_errors"])
        )
        for rank in truth["ranks"]
    }
    for rank in truth["ranks"]:
        for step in rank["steps"]:
            for place, one in enumerate(step["operations"]):
                for sent in one["sends"]:
                    figures = (sent[name] for name in (REQUEST.names or ())[1:])
                    requests.append((len(operations), *figures))
                number = NO_NUMBER if one["number"] is None else one["number"]
                group = groups.setdefault(one["group"], len(groups))
                kind = kinds.setdefault(one["kind"], len(kinds))
                end = NEVER if one["end_ns"] is None else one["end_ns"]
                operations.append(
                    (
                        rank["number"], group, number, kind, step["step"], place, one["bytes"],
                        one["enter_ns"], end,
                    )
                )  # fmt: skip
    return OperatorLog(
        np.array(operations, dtype=OPERATION),
        np.array(requests, dtype=REQUEST),
        tuple(groups),
        tuple(kinds),
        ranks,
        truth["capture"]["end_ns"],
    )
