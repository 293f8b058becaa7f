# SPDX-License-Identifier: Apache-2.0
"""Figures of messages that are long under way, and of packets that are lost: by edge, and over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.figures.runs import Shown, show
from bench.figures.style import ACCUSED, OTHERS, SECOND, panels, sampled, since, stretches, ticks, titled
from bench.scenarios.cases import Case
from dpu_app.wire.records import MessageFlag
from host_ctl.attribute.charges import Charge
from host_ctl.attribute.features import time_covered
from host_ctl.diagnose.suspects import Suspect, gains
from host_ctl.reconstruct.repairs import LossPlace
from host_ctl.reconstruct.transfers import arrival, send_start

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MS, US = 1e6, 1e3
_PER_EDGE = 10
_JOIN_MS = 0.15


def nic_slow() -> Any:
    """To whomever one NIC sends, its messages are long under way."""
    shown = show(Case("rail_slow", "moe", 4, 2, 1))
    figure, (axes,) = panels()
    accused = _accused_nic(shown)
    edges = [e for e, ends in enumerate(shown.traffic.edges) if _same_rail(shown, ends, accused)]
    own = [e for e in edges if shown.traffic.edges[e][0] == accused]
    _draw_edges(axes, shown, edges, own, f"All that NIC {shown.short(accused)} sends is slow, to whomever")
    return figure


def link_slow() -> Any:
    """One edge is slow, and no stamp of sending tells which end."""
    shown = show(Case("rail_slow", "dp", 4, 2, 1, tx_stamp="none"))
    figure, (axes,) = panels()
    found = shown.verdict.candidates if shown.verdict else ()
    rail = {(c.machine, c.nic) for c in found}
    slow = [
        e
        for e, ends in enumerate(shown.traffic.edges)
        if {(shown.traffic.endpoints[x].machine, shown.traffic.endpoints[x].nic) for x in ends} <= rail
    ]
    _draw_edges(
        axes, shown, range(len(shown.traffic.edges)), slow, "One edge is slow: its sender or its receiver"
    )
    return figure


def receiver_slow() -> Any:
    """What is sent to one NIC is slow, and its host is late with what has come."""
    shown = show(Case("slow_receiver", "dp", 8, 1, 2))
    figure, (left, right) = panels(2, width_ratios=(1.7, 1.0))
    accused = _accused_nic(shown)
    edges = range(len(shown.traffic.edges))
    into = [e for e in edges if shown.traffic.edges[e][1] == accused]
    name = shown.short(accused)
    _draw_edges(left, shown, edges, into, f"Messages to node {name} are slow ...")
    column = shown.analysed.job.members.index(accused)
    replayed, got = shown.replayed, shown.replayed.dst == accused
    both = replayed.hosts([accused])
    for name in ("transfer", "host"):
        both[name] = np.maximum(both[name], replayed.transfers(got)[name])
    suspects = [
        Suspect("host", (column,), replayed.hosts([accused])),
        Suspect("ingress", (column,), replayed.transfers(got)),
        Suspect("receiver", (column,), both),
    ]
    worth = np.median(gains(replayed, suspects, [])[shown.onset : -1], axis=0) / MS
    right.bar(range(3), worth, color=[OTHERS, OTHERS, ACCUSED], width=0.6)
    right.set_xticks(range(3), ["its host", "messages\nto it", "both\nat once"])
    titled(right, "... and its host is late", "without", "gained per iteration (ms)")
    return figure


def congestion() -> Any:
    """Slow messages come with marks, whoever sends."""
    shown = show(Case("congestion", "dp", 8, 1, 1))
    figure, (left, right) = panels(2)
    slow = shown.charges[(shown.charges["kind"] == Charge.TRANSFER) & (shown.charges["iteration"] >= 0)]
    iterations = shown.analysed.job.iterations
    for paced, color, label in ((1, ACCUSED, "CNP or mark with it"), (0, OTHERS, "none")):
        mine = slow[slow["paced"] == paced]
        left.plot(time_covered(mine, iterations) / MS, color=color, label=label, linewidth=1.6)
    left.legend(loc="upper left")
    since(left, shown.onset)
    titled(left, "Slow messages come with marks ...", "iteration", "slow messages (ms)")
    pairs = sorted(set(zip(slow["src"].tolist(), slow["dst"].tolist(), strict=True)))
    lost = [slow[(slow["src"] == a) & (slow["dst"] == b) & (slow["paced"] == 1)] for a, b in pairs]
    each = [float(time_covered(x, iterations)[shown.onset :].mean()) / MS for x in lost]
    right.bar(range(len(pairs)), each, color=ACCUSED, width=0.7)
    names = [f"{shown.short(a)} to {shown.short(b)}" for a, b in pairs]
    right.set_xticks(range(len(pairs)), names, rotation=60, fontsize=7)
    titled(right, "... on one way through the network", "sender and receiver", "with marks (ms/iteration)")
    return figure


def path_collision() -> Any:
    """Two edges without a common end are slow at once."""
    shown = show(Case("path_collision", "dp", 8, 1, 3), marks=False)
    figure, (axes,) = panels()
    inside = shown.onset
    excess = {e: _edge_excess(shown, e)[inside:].mean() for e in range(len(shown.traffic.edges))}
    worst = max(excess.values())
    slow = [e for e, x in excess.items() if x >= worst / 3]
    _draw_edges(axes, shown, list(excess), slow, "Edges slow together have no NIC in common")
    return figure


def link_loss() -> Any:
    """Repeats on all edges of one NIC and on no others."""
    shown = show(Case("link_loss", "moe", 4, 1, 1))
    figure, (axes,) = panels(height_in=3.4)
    draw_repeats(axes, shown, f"Packets are lost on the way to one NIC only: {shown.accused()}")
    return figure


def link_down() -> Any:
    """Nothing passes for a while, then senders repeat and all goes on."""
    shown = show(Case("link_flap", "dp", 4, 1, 2))
    figure, (axes,) = panels()
    boundaries = shown.analysed.job.boundaries_ns
    begin, end = int(boundaries[max(0, shown.onset - 1)]), int(boundaries[shown.onset + 2])
    draw_traffic(
        axes, shown, (begin, end), f"Nothing passes at {shown.accused()} for a while, then it goes on"
    )
    return figure


def draw_repeats(axes: Axes, shown: Shown, title: str) -> None:
    """When packets were repeated, an edge per row."""
    lost = shown.repairs[shown.repairs["place"] != LossPlace.NOT_LOST]
    boundaries = shown.analysed.job.boundaries_ns
    links = np.array([link.edge for link in shown.traffic.links])
    for edge in range(len(shown.traffic.edges)):
        mine = lost[(links[lost["link"]] == edge) & (lost["reverse"] == 0)]
        at = np.interp(mine["start"], boundaries, np.arange(len(boundaries)))
        hit = shown.accused() in {shown.traffic.endpoints[x].machine for x in shown.traffic.edges[edge]}
        ticks(axes, at, edge, ACCUSED if hit else OTHERS)
        if len(mine):
            text = f"{int(mine['packets'].sum())} lost"
            axes.annotate(text, (len(boundaries) - 0.8, edge), fontsize=8, va="center")
    _edge_rows(axes, shown, title, "iteration")
    axes.set_xlim(0, len(boundaries) + 1.5)
    axes.set_ylim(len(shown.traffic.edges) - 0.4, -1.2)
    since(axes, shown.onset)


def draw_traffic(axes: Axes, shown: Shown, span_ns: tuple[int, int], title: str) -> None:
    """When messages arrived and packets were repeated in a stretch of time, an edge per row."""
    t = shown.traffic.transfers
    links = np.array([link.edge for link in shown.traffic.links])
    when = arrival(t)
    inside = (when >= span_ns[0]) & (when <= span_ns[1]) & (t["rx_end"] > 0)
    inside &= (t["flags"] & MessageFlag.REPEATED) == 0
    again = (shown.repairs["start"] >= span_ns[0]) & (shown.repairs["start"] <= span_ns[1])
    for edge in range(len(shown.traffic.edges)):
        at = (when[inside & (t["edge"] == edge)] - span_ns[0]) / MS
        stretches(axes, at, at, edge, OTHERS, _JOIN_MS)
        runs = shown.repairs[again & (links[shown.repairs["link"]] == edge)]
        x, y = sampled((runs["start"] - span_ns[0]) / MS, np.full(len(runs), edge + 0.0))
        axes.plot(x, y, "x", color=ACCUSED, markersize=5)
    axes.plot([], [], color=OTHERS, linewidth=6, label="messages arrive")
    axes.plot([], [], "x", color=ACCUSED, markersize=5, label="repeated")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _edge_rows(axes, shown, title, "time (ms)")
    axes.set_xlim(0, (span_ns[1] - span_ns[0]) / MS)
    axes.set_ylim(len(shown.traffic.edges) - 0.4, -0.6)


def _edge_rows(axes: Axes, shown: Shown, title: str, xlabel: str) -> None:
    edges = range(len(shown.traffic.edges))
    titled(axes, title, xlabel, "sender to receiver")
    axes.set_yticks(list(edges), [shown.edge_name(e) for e in edges])
    axes.grid(visible=False)


def _draw_edges(axes: Axes, shown: Shown, edges: Any, slow: list[int], title: str) -> None:
    """How long messages were under way on each edge, before the onset and since."""
    t = shown.traffic.transfers
    iteration = shown.iteration_of_transfers()
    took = (arrival(t) - send_start(t)) / US
    names = []
    for spot, edge in enumerate(edges):
        mine = (t["edge"] == edge) & (iteration >= 1)
        for since_onset, shift in ((False, -0.18), (True, 0.18)):
            times = np.sort(took[mine & ((iteration >= shown.onset) == since_onset)])
            if not len(times):
                continue
            color = (ACCUSED if edge in slow else OTHERS) if since_onset else SECOND
            _, y = sampled(times, times, _PER_EDGE)
            axes.plot(np.full(len(y), spot + shift), y, ".", color=color, markersize=4)
            axes.plot([spot + shift - 0.14, spot + shift + 0.14], [np.median(times)] * 2, color=color)
        names.append(shown.edge_name(edge))
    axes.set_yscale("log")
    axes.set_xticks(range(len(names)), names, rotation=60 if len(names) > 6 else 0, fontsize=7)
    for color, label in ((SECOND, "before onset"), (OTHERS, "since"), (ACCUSED, "since, slow")):
        axes.plot([], [], ".", color=color, label=label)
    axes.legend(loc="upper right", ncols=3, borderaxespad=0.0, columnspacing=1.0, handletextpad=0.2)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 4)
    titled(axes, title, "sender to receiver", "under way (us)")


def _edge_excess(shown: Shown, edge: int) -> NDArray[np.float64]:
    src, dst = shown.traffic.edges[edge]
    slow = shown.charges[(shown.charges["kind"] == Charge.TRANSFER) & (shown.charges["iteration"] >= 0)]
    return time_covered(slow[(slow["src"] == src) & (slow["dst"] == dst)], shown.analysed.job.iterations)


def _accused_nic(shown: Shown) -> int:
    """The endpoint that the verdict names."""
    found = shown.verdict
    if found is None or found.machine is None:
        raise ValueError("the verdict of this run names no machine")
    own = shown.machines[found.machine]
    return next((m for m in own if shown.traffic.endpoints[m].nic == found.nic), own[0])


def _same_rail(shown: Shown, ends: tuple[int, int], accused: int) -> bool:
    return all(shown.traffic.endpoints[e].nic == shown.traffic.endpoints[accused].nic for e in ends)
