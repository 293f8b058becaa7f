# SPDX-License-Identifier: Apache-2.0
"""Figures of machines that are late: what each iteration would gain, and at which messages they are late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.figures.runs import Shown, show
from bench.figures.style import ACCUSED, OTHERS, SECOND, dashes, panels, since, titled
from bench.scenarios.cases import Case
from host_ctl.diagnose.data_imbalance import late_at_computing
from host_ctl.diagnose.notices import held_up_by_hosts
from host_ctl.diagnose.stage_imbalance import replica_work
from host_ctl.diagnose.suspects import Suspect, gains

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MS = 1e6
_LONG_PAUSE = 0.25  # of an iteration


def machine_gains(shown: Shown) -> dict[str, NDArray[np.float64]]:
    """What every iteration would gain without the lateness of each machine (ms)."""
    members = shown.analysed.job.members
    hosts = [
        Suspect("host", tuple(members.index(m) for m in own), shown.replayed.hosts(own))
        for own in shown.machines.values()
    ]
    gained = gains(shown.replayed, hosts, []) / MS
    return dict(zip(shown.machines, gained.T, strict=True))


def lateness(shown: Shown, machine: str) -> NDArray[np.float64]:
    """How late a machine sends its k-th message, the largest of its lanes (ms), (iteration, k)."""
    r = shown.replayed
    table = np.zeros((r.iterations, int(r.place.max()) + 1))
    mine = np.isin(r.src, shown.machines[machine])
    np.maximum.at(table, (r.iteration[mine], r.place[mine]), r.excess["host"][mine] / MS)
    return table


def compute_slow() -> Any:
    """One machine is worth time in every iteration since the onset."""
    shown = show(Case("gpu_slow", "dp", 4, 1, 1))
    figure, (axes,) = panels()
    _draw_gains(axes, shown, f"Without {shown.accused()} every iteration would be shorter")
    since(axes, shown.onset)
    return figure


def input_stall() -> Any:
    """Late before the first message only, against late wherever it computes."""
    stalled, slow = show(Case("input_stall", "pp", 4, 1, 3)), show(Case("gpu_slow", "pp", 4, 1, 3))
    figure, axes = panels(2)
    _draw_places(axes[0], stalled, "Input stall: late before the first message")
    _draw_places(axes[1], slow, "Slow processor: before every micro-batch")
    axes[1].set_ylabel("")
    return figure


def cpu_contention() -> Any:
    """Late at changing messages, against late at the same ones."""
    busy, slow = show(Case("cpu_contention", "dp", 4, 1, 1)), show(Case("gpu_slow", "dp", 4, 1, 1))
    figure, axes = panels(2, sharey=True, sharex=True)
    _draw_where(axes[0], busy, "Busy CPU: now here, now there as well")
    _draw_where(axes[1], slow, "Slow processor: only where it computes")
    axes[1].set_ylabel("")
    return figure


def random_pauses() -> Any:
    """Pauses of other machines each time."""
    shown = show(Case("gc_pauses", "dp", 8, 1, 1))
    figure, (axes,) = panels()
    base = float(np.median(shown.analysed.features.duration_ns)) / MS
    for machine, gained in machine_gains(shown).items():
        whole = np.arange(1, len(gained))
        axes.plot(whole, gained[1:], ".", color=OTHERS, markersize=3)
        for k in whole[gained[1:] > _LONG_PAUSE * base].tolist():
            axes.plot(k, gained[k], "o", color=ACCUSED, markersize=5)
            axes.annotate(
                machine.removeprefix("node"), (k, gained[k]), (0, 5), textcoords="offset points",
                fontsize=8, ha="center",
            )  # fmt: skip
    axes.axhline(_LONG_PAUSE * base, color=SECOND, linestyle="--", linewidth=1)
    axes.margins(y=0.12)
    titled(
        axes, "Long pauses hit one machine after another (numbers: which)", "iteration",
        "gained without a machine (ms)",
    )  # fmt: skip
    return figure


def periodic_pause() -> Any:
    """Every k-th iteration is held up by all hosts."""
    shown = show(Case("checkpoint", "dp", 4, 1, 1))
    held = held_up_by_hosts(shown.replayed, shown.analysed.job) / MS
    figure, (axes,) = panels()
    found = shown.verdict
    period = int(found.evidence[0].value) if found and found.cause == "periodic_pause" else 0
    planned = np.arange(shown.onset, len(held), period) if period else np.empty(0, np.int64)
    whole = range(1, len(held))
    axes.bar(whole, held[1:], color=[ACCUSED if k in planned else OTHERS for k in whole], width=0.7)
    titled(axes, f"All machines pause every {period} iterations", "iteration", "held up by hosts (ms)")
    return figure


def data_imbalance() -> Any:
    """Who is latest changes, and it is later than in a healthy job."""
    figure, axes = panels(2, sharey=True)
    names = ("Unequal data: now this one is latest, now that", "Healthy: hardly any difference")
    for one, scenario, title in zip(axes, ("imbalance", "healthy"), names, strict=True):
        shown = show(Case(scenario, "dp", 8, 1, 1))
        late = late_at_computing(shown.replayed, list(shown.machines.values()))[1:-1] / MS
        rows = np.arange(1, len(late) + 1)
        dashes(one, np.repeat(rows, late.shape[1]), late.ravel(), OTHERS)
        one.plot(rows, late.max(axis=1), "o", color=ACCUSED, markersize=4)
        if scenario == "imbalance":
            for k, worst in zip(rows.tolist(), late.argmax(axis=1).tolist(), strict=True):
                one.annotate(
                    str(worst), (k, late[k - 1, worst]), (0, 4), textcoords="offset points",
                    fontsize=7, ha="center",
                )  # fmt: skip
        titled(one, title, "iteration", "late after computing (ms)")
    axes[1].set_ylabel("")
    return figure


def stage_imbalance() -> Any:
    """One stage of both replicas computes longer per micro-batch."""
    shown = show(Case("stage_imbalance", "pp", 8, 1, 1))
    figure, (axes,) = panels()
    works = replica_work(shown.traffic, shown.program, shown.analysed.dimensions) or []
    for number, work in enumerate(works):
        usual = np.r_[
            np.median(work.ahead[:, 0]),
            np.median(work.ahead[:, 1:] + work.back, axis=0),
            np.median(work.both),
        ]
        spots = np.arange(len(usual)) + (number - (len(works) - 1) / 2) * 0.35
        heavy = int(np.argmax(usual))
        colors = [ACCUSED if s == heavy else OTHERS for s in range(len(usual))]
        axes.bar(spots, usual / MS, width=0.3, color=colors)
    axes.set_xticks(range(4), ["1 (forward only)", "2", "3", "4"])
    titled(
        axes, "The last stage computes longest, in both replicas", "stage of the pipeline",
        "computing per micro-batch (ms)",
    )  # fmt: skip
    return figure


def _draw_gains(axes: Axes, shown: Shown, title: str) -> None:
    for machine, gained in machine_gains(shown).items():
        mine = machine == shown.accused()
        axes.plot(
            range(1, len(gained)), gained[1:], color=ACCUSED if mine else OTHERS,
            linewidth=1.8 if mine else 0.9,
            label=machine if mine else None, zorder=3 if mine else 2,
        )  # fmt: skip
    axes.plot([], [], color=OTHERS, linewidth=0.9, label="others")
    axes.legend(loc="upper left")
    titled(axes, title, "iteration", "gained without it (ms)")


def _draw_places(axes: Axes, shown: Shown, title: str) -> None:
    """The usual lateness of the accused before each of its messages, in order of the iteration."""
    late = lateness(shown, shown.accused() or next(iter(shown.machines)))[shown.onset : -1]
    usual = np.median(late, axis=0)
    axes.bar(np.arange(len(usual)), usual, width=1.6, color=ACCUSED)
    titled(axes, title, "number of the message in the iteration", "late, median (ms)")


def _draw_where(axes: Axes, shown: Shown, title: str) -> None:
    """Where the accused was clearly late: a dot per message and iteration."""
    late = lateness(shown, shown.accused() or next(iter(shown.machines)))[shown.onset : -1]
    iteration, place = np.nonzero(late > 0.1 * late.max())
    size = 4 + 60 * late[iteration, place] / late.max()
    axes.scatter(place, iteration + shown.onset, s=size, color=ACCUSED, alpha=0.7, linewidths=0)
    titled(axes, title, "number of the message in the iteration", "iteration")
