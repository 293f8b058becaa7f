# SPDX-License-Identifier: Apache-2.0
"""Figures of jobs that stand still: what still passes, and what is repeated without an answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.figures.runs import Shown, show
from bench.figures.style import ACCUSED, OTHERS, SECOND, panels, since, titled
from bench.figures.wires import MS, draw_traffic
from bench.scenarios.cases import Case
from host_ctl.reconstruct.transfers import send_start

_BEFORE = 2.0  # iterations shown before the standstill
_AFTER = 6.0


def hang() -> Any:
    """All wait for one that lacks nothing; nothing is repeated."""
    shown = show(Case("hang", "dp", 4, 1, 1))
    figure, (axes,) = panels()
    t = shown.traffic.transfers
    job = shown.analysed.job
    begin_ns, stop_ns = int(job.boundaries_ns[shown.onset]), shown.stop_ns()
    end_ms = 1.6 * (stop_ns - begin_ns) / MS
    reached: dict[int, list[str]] = {}
    for edge, (src, _) in enumerate(shown.traffic.edges):
        sent = np.sort(send_start(t)[(t["edge"] == edge) & (send_start(t) >= begin_ns)])
        mine = shown.traffic.endpoints[src].machine == shown.accused()
        x, y = np.r_[(sent - begin_ns) / MS, end_ms], np.r_[1 : len(sent) + 1, len(sent)]
        axes.step(
            x, y, where="post", color=ACCUSED if mine else OTHERS, linewidth=1.8 if mine else 0.9,
        )  # fmt: skip
        reached.setdefault(len(sent), []).append(shown.traffic.endpoints[src].machine)
    for count, names in reached.items():
        axes.annotate(
            f"{', '.join(names)}: {count}", (end_ms, count), (4, 0), textcoords="offset points", fontsize=8,
            va="center", color=ACCUSED if shown.accused() in names else OTHERS, annotation_clip=False,
        )  # fmt: skip
    since(axes, (stop_ns - begin_ns) / MS, "standstill")
    axes.set_xlim(0, end_ms)
    axes.margins(y=0.15)
    title = f"{shown.accused()} has input and credit, and sends nothing more"
    titled(axes, title, "time since the last iteration began (ms)", "messages sent in it")
    return figure


def crash() -> Any:
    """Packets arrive at a machine that answers none."""
    return _stopped("crash", "arrive at {} and are not answered")


def nic_dead() -> Any:
    """Packets to and from one NIC arrive no more."""
    return _stopped("nic_dead", "to and from {} do not arrive any more")


def op_mismatch() -> Any:
    """One member sends messages of other sizes than ever before."""
    shown = show(Case("op_mismatch", "dp", 4, 1, 1))
    figure, (axes,) = panels()
    t = shown.traffic.transfers
    iteration = shown.iteration_of_transfers()
    edges = np.array(shown.traffic.edges)
    known: set[int] = set(np.unique(t["bytes"][(iteration >= 0) & (iteration < shown.onset)]).tolist())
    cells = np.unique(np.stack([iteration, t["bytes"].astype(np.int64)]), axis=1)
    cells = cells[:, cells[0] >= 1]
    axes.plot(cells[0], cells[1] / 1024, ".", color=OTHERS, markersize=4)
    odd = ~np.isin(t["bytes"], sorted(known)) & (iteration >= 0)
    for row in np.flatnonzero(odd).tolist():
        name = shown.traffic.endpoints[int(edges[t["edge"][row], 0])].machine
        axes.plot(iteration[row], t["bytes"][row] / 1024, "o", color=ACCUSED, markersize=5)
        axes.annotate(
            name, (iteration[row], t["bytes"][row] / 1024), (-6, 0), textcoords="offset points",
            color=ACCUSED, fontsize=8, ha="right", va="center",
        )  # fmt: skip
    axes.set_ylim(0, None)
    titled(axes, f"{shown.accused()} sends sizes that none had before", "iteration", "message size (KiB)")
    return figure


def _stopped(scenario: str, title: str) -> Any:
    shown = show(Case(scenario, "dp", 4, 1, 1))
    figure, (axes,) = panels()
    span = _around(shown)
    draw_traffic(axes, shown, span, f"Repeats {title.format(shown.accused())}")
    axes.axvline((shown.stop_ns() - span[0]) / MS, color=SECOND, linestyle="--", linewidth=1)
    return figure


def _around(shown: Shown) -> tuple[int, int]:
    """A stretch of time around the standstill (common ns)."""
    period, stop_ns = shown.analysed.job.iteration_ns, shown.stop_ns()
    return int(stop_ns - _BEFORE * period), int(stop_ns + _AFTER * period)
