# SPDX-License-Identifier: Apache-2.0
"""How all figures look: transparent, in colours that can be read on light and on dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from host_ctl.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TEXT, GRID = "#848d97", "#848d9740"
ACCUSED, OTHERS, SECOND = "#e8590c", "#8b949e", "#1c7ed6"
_WIDTH_IN, _HEIGHT_IN = 7.2, 2.7
_MOST_POINTS = 160
_HALF_ROW, _ROW_POINTS, _HALF_DASH = 0.35, 9.0, 0.2
_INTEGER = "iteration"

Points = Sequence[float] | np.ndarray


def panels(count: int = 1, *, height_in: float = _HEIGHT_IN, **options: Any) -> tuple[Any, list[Axes]]:
    """A figure with panels side by side. Raises UsageError without matplotlib."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("figures need matplotlib: pip install 'pulse-rdma[bench]'") from None
    mpl.rcParams.update(
        {
            "svg.fonttype": "none",  # text stays text: small, and in the reader's font
            "svg.hashsalt": "pulse",  # equal results, equal files
            "font.size": 9,
            "axes.titlesize": 10,
            "text.color": TEXT,
            "axes.labelcolor": TEXT,
            "axes.titlecolor": TEXT,
            "axes.edgecolor": TEXT,
            "xtick.color": TEXT,
            "ytick.color": TEXT,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "legend.fontsize": 8,
        }
    )
    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
    made = figure.subplots(**{"nrows": 1, "ncols": count} | options)
    axes = np.atleast_1d(np.asarray(made)).tolist()
    for one in axes:
        one.set_facecolor("none")
    return figure, axes


def save(figure: Any, path: Path) -> None:
    """Write the figure as SVG, the same bytes for the same run."""
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def titled(axes: Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Title at the left, since that is what the panel says; labels carry units."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, loc="left")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    for name, axis in ((xlabel, axes.xaxis), (ylabel, axes.yaxis)):
        if name == _INTEGER:
            axis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def since(axes: Axes, onset: float, text: str = "onset") -> None:
    """A dashed line where the fault begins."""
    axes.axvline(onset, color=SECOND, linestyle="--", linewidth=1)
    axes.annotate(
        text, (onset, 1), (3, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
        color=SECOND, fontsize=8, va="top",
    )  # fmt: skip


def sampled(x: Points, y: Points, most: int = _MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Evenly chosen points where there are too many to tell apart, so that files stay small."""
    xs, ys = np.asarray(x), np.asarray(y)
    if len(xs) <= most:
        return xs, ys
    chosen = np.linspace(0, len(xs) - 1, most).astype(np.int64)
    return xs[chosen], ys[chosen]


def ticks(axes: Axes, x: Points, y: float, color: str) -> None:
    """A short upright stroke per point in one row, all of them one path."""
    xs, _ = sampled(x, x)
    if len(xs):
        line_y = np.tile([y - _HALF_ROW, y + _HALF_ROW, np.nan], len(xs))
        axes.plot(np.repeat(xs, 3), line_y, color=color, linewidth=0.8, solid_capstyle="butt")


def dashes(axes: Axes, x: Points, y: Points, color: str) -> None:
    """A short level stroke per point, all of them one path."""
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    line_x = np.column_stack([xs - _HALF_DASH, xs + _HALF_DASH, np.full(len(xs), np.nan)]).ravel()
    axes.plot(line_x, np.repeat(ys, 3), color=color, linewidth=1.5, solid_capstyle="butt")


def stretches(axes: Axes, begin: Points, end: Points, y: float, color: str, join: float) -> None:
    """Stretches in one row as one path; those with gaps of less than ``join`` are one."""
    if not len(begin):
        return
    order = np.argsort(begin)
    begins, ends = np.asarray(begin)[order], np.maximum.accumulate(np.asarray(end)[order])
    fresh = np.r_[True, begins[1:] > ends[:-1] + join]
    first, last = begins[fresh], np.r_[ends[:-1][fresh[1:]], ends[-1]]
    last = np.maximum(last, first + join)
    x = np.column_stack([first, last, np.full(len(first), np.nan)]).ravel()
    axes.plot(x, np.full(len(x), y), color=color, linewidth=_ROW_POINTS, solid_capstyle="butt")
