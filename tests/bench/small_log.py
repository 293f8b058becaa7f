# SPDX-License-Identifier: Apache-2.0
"""Operator logs and port activity by hand: a ring of machines that compute and then sum up, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bench.peers.activity import MESSAGE, Activity, Port
from bench.peers.operator_log import NEVER, NO_NUMBER, OPERATION, REQUEST, OperatorLog, RankPlace

MS = 1_000_000
TRANSFER_NS = 2 * MS
BYTES = 10_000_000


@dataclass(slots=True)
class SmallJob:
    """Ranks 0, 1, ... on machines node0, node1, ...; each step computes, then runs one AllReduce.

    All of the AllReduce's ranks leave it together, ``TRANSFER_NS`` after the last has entered. Functions of
    (rank, step) change that: ``compute`` gives ns, ``network`` how long requests of the operation are under
    way. ``standing`` ranks enter the last step's AllReduce and never leave it, ``missing`` ones never enter.
    """

    ranks: int = 4
    steps: int = 16
    compute: Callable[[int, int], int] = lambda rank, step: 10 * MS
    network: Callable[[int, int], int] = lambda rank, step: TRANSFER_NS
    transfer: Callable[[int], int] = lambda step: TRANSFER_NS
    size: Callable[[int, int], int] = lambda rank, step: BYTES
    missing: frozenset[int] = frozenset()
    stands: bool = False
    completed: Callable[[int], tuple[int, int]] = lambda rank: (10, 10)
    ended: dict[int, int] = field(default_factory=dict)
    ready: list[int] = field(default_factory=list)
    rows: list[tuple[int, ...]] = field(default_factory=list)

    def log(self) -> OperatorLog:
        """The log of the run."""
        self.ready, self.rows = [0] * self.ranks, []
        for step in range(self.steps):
            self._step(step)
        self.rows.sort(key=lambda row: (row[0], row[7]))
        operations = np.array(self.rows, dtype=OPERATION)
        requests = np.array([self._request(n, row) for n, row in enumerate(self.rows)], dtype=REQUEST)
        places = {r: RankPlace(f"node{r}", 0, self.ended.get(r), 0) for r in range(self.ranks)}
        until = max(max(row[7:]) for row in self.rows) + 100 * MS
        return OperatorLog(operations, requests, ("g",), ("all_reduce",), places, until)

    def _step(self, step: int) -> None:
        last = self.stands and step == self.steps - 1
        here = [r for r in range(self.ranks) if not (last and r in self.missing)]
        enter = {r: self.ready[r] + self.compute(r, step) for r in here}
        end = NEVER if last else max(enter.values()) + self.transfer(step)
        for rank in here:
            self.rows.append((rank, 0, step, 0, step, 0, self.size(rank, step), enter[rank], end))
            self.ready[rank] = end

    def _request(self, row: int, operation: tuple[int, ...]) -> tuple[int, ...]:
        rank, step, ended = operation[0], operation[4], operation[8] != NEVER
        requests, completions = (10, 10) if ended else self.completed(rank)
        sent = BYTES * completions // 10
        return row, (rank + 1) % self.ranks, BYTES, requests, completions, sent, self.network(rank, step)


def point_to_point(standing: dict[int, tuple[int, int]], partners: dict[int, int]) -> OperatorLog:
    """Ranks that exchange with ``partners`` in two steps; ``standing`` ranks (requests, completions) stay."""
    rows: list[tuple[int, ...]] = []
    requests: list[tuple[int, ...]] = []
    for rank, peer in partners.items():
        requests.append((len(rows), peer, BYTES, 10, 10, BYTES, MS))
        rows.append((rank, 0, NO_NUMBER, 0, 0, 0, BYTES, MS, 2 * MS))
        if rank in standing:
            asked, done = standing[rank]
            requests.append((len(rows), peer, BYTES, asked, done, BYTES * done // 10, MS))
            rows.append((rank, 0, NO_NUMBER, 0, 1, 0, BYTES, 3 * MS, NEVER))
    places = {rank: RankPlace(f"node{rank}", 0, None, 0) for rank in partners}
    return OperatorLog(
        np.array(rows, dtype=OPERATION),
        np.array(requests, dtype=REQUEST),
        ("g",),
        ("send_recv",),
        places,
        100 * MS,
    )


def sent_messages(log: OperatorLog, messages: Callable[[int, int], list[tuple[int, int, int]]]) -> Activity:
    """Every rank's port; messages of (rank, step): begin after the step's last entry, length, bytes."""
    rows: list[tuple[int, ...]] = []
    for step in np.unique(log.operations["step"]).tolist():
        begin = int(log.operations["enter_ns"][log.operations["step"] == step].max())
        for rank in log.ranks:
            rows += [(rank, True, rank, begin + b, begin + b + n, s) for b, n, s in messages(rank, step)]
    ports = tuple(Port(f"node{rank}", "mlx5_0", frozenset({0})) for rank in log.ranks)
    table = np.array(rows, dtype=MESSAGE)
    return Activity(ports, table[np.argsort(table["begin_ns"], kind="stable")])
