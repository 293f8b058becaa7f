# SPDX-License-Identifier: Apache-2.0
"""Pulse's windows beside WaveSketch and plain counters, at equal bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.measure.rows import Row
from bench.windows.contenders import CONTENDERS, exact_bytes
from bench.windows.curves import WINDOW_NS, Curves, all_curves
from bench.windows.metrics import Errors, errors
from bench.windows.wavesketch import UNIT_BYTES
from dpu_app.meter.metering import MeteringConfig

SMALLER = 10
_PART = "windows at equal bytes; relative error/cosine/energy (* over the bytes) of " + "; ".join(CONTENDERS)


def window_rows(*, quick: bool) -> Iterator[Row]:
    """Yield a row per traffic and budget: Pulse's relative error, and beside it all errors of all ways."""
    for curves in all_curves(quick=quick):
        seconds = curves.bytes.shape[1] * WINDOW_NS / 1e9
        default = int(MeteringConfig().window_budget_bytes * seconds)
        exact = exact_bytes(curves)
        budgets = {"default budget": default, "default budget / 10": default // SMALLER}
        for name, budget in (budgets | {"a tenth of exact": exact // SMALLER}).items():
            yield _row(curves, name, budget, exact)


def _row(curves: Curves, name: str, budget: int, exact: int) -> Row:
    found: dict[str, tuple[Errors, int]] = {}
    for contender, keep in CONTENDERS.items():
        estimate, size = keep(curves, budget)
        found[contender] = errors(curves.bytes / UNIT_BYTES, estimate), size
    ours, size = found["pulse"]
    # One that cannot be made so small is no rival at these bytes; its figures stand there with a star.
    others = [
        scores for contender, (scores, took) in found.items() if contender != "pulse" and took <= budget
    ]
    better = all(
        ours.are <= other.are and ours.cosine >= other.cosine and ours.energy >= other.energy
        for other in others
    )
    details: dict[str, Any] = {"budget_bytes": budget, "exact_bytes": exact, "flows": len(curves.bytes)}
    details |= {
        contender: {"are": e.are, "cosine": e.cosine, "energy": e.energy, "bytes": b}
        for contender, (e, b) in found.items()
    }
    beside = " ".join(
        f"{e.are:.3g}/{e.cosine:.3f}/{e.energy:.3f}{'' if took <= budget else '*'}"
        for e, took in found.values()
    )
    return Row(
        part=_PART,
        case=f"{curves.name}, {name} ({budget} bytes)",
        goal="exact" if name == "default budget" else "better in all three",
        measured=ours.are,
        unit="ARE",
        reference=beside,
        met=(ours.are == 0 if name == "default budget" else better) and size <= budget,
        details=details,
    )
