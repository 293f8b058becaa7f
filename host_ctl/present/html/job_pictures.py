# SPDX-License-Identifier: Apache-2.0
"""Pictures of a whole job: iteration times, lost time by NIC and iteration, wait states, blame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from host_ctl.diagnose.verdict import Verdict
from host_ctl.ingest.series import Table
from host_ctl.present.analysed import AnalysedJob
from host_ctl.present.attribution import Attribution
from host_ctl.present.evidence.accused import by_interest, pointed_at
from host_ctl.present.evidence.lost_time import Known, LostTime, in_columns, lost_time
from host_ctl.present.evidence.waits import state_sums
from host_ctl.present.html.parts import details, figure, scroll, table
from host_ctl.present.html.states import NAMES, look, present
from host_ctl.present.markup import Markup, join
from host_ctl.present.svg.bars import Row, columns, rows
from host_ctl.present.svg.heatmap import Heat, heatmap
from host_ctl.present.units import digits, duration, share

_COLUMNS, _HEAT_ROWS, _BAR_ROWS, _TABLE_ROWS = 120, 128, 24, 16
_BOUNDS = (0.0, 0.005, 0.02, 0.1, 0.3)
_STEPS = ("nothing", "below 0.5 %", "0.5 to 2 %", "2 to 10 %", "10 to 30 %", "more")

Numbered = Sequence[tuple[str, Verdict]]
"""Verdicts of one job with their ids."""


def job_pictures(
    analysed: AnalysedJob, found: Attribution, stretches: tuple[Table, ...], verdicts: Numbered
) -> Markup:
    """All pictures of one job."""
    pointed = [pointed_at(v, analysed.job, found.traffic) for _, v in verdicts]
    accused = tuple(dict.fromkeys(e for one in pointed for e in one.all))
    lost = lost_time(analysed, found.traffic)
    return join(
        (
            _iterations(analysed, verdicts),
            _heat(analysed, found, lost, accused, verdicts),
            _waits(analysed, found, stretches, accused),
            _blame(analysed, found, lost, accused, verdicts),
        )
    )


def onsets(verdicts: Numbered) -> list[tuple[float, str]]:
    """Where verdicts begin, those of one iteration together."""
    at: dict[int, list[str]] = {}
    for name, verdict in verdicts:
        at.setdefault(max(0, verdict.onset_iteration), []).append(name)
    return [(float(k), f"onset {', '.join(names)}") for k, names in sorted(at.items())]


def _iterations(analysed: AnalysedJob, verdicts: Numbered) -> Markup:
    ms = analysed.features.duration_ns / 1e6
    since = min((v.onset_iteration for _, v in verdicts if v.severity != "notice"), default=len(ms))
    median = float(np.median(ms)) if len(ms) else 0.0
    told = (
        f"{len(ms)} iterations, median {duration(median * 1e6)}, longest {duration(float(ms.max()) * 1e6)}."
    )
    if 0 < since < len(ms):
        before, after = float(np.median(ms[:since])), float(np.median(ms[since:]))
        told += f" Median before the onset {duration(before * 1e6)}, since then {duration(after * 1e6)}."
    values, each = _joined(ms)
    marked = frozenset(k for k in range(len(values)) if k * each >= since)
    axis = "iteration" if each == 1 else f"iteration / {each} (each column: the longest of {each})"
    job = analysed.job.id
    picture = columns(
        f"times-{job}", values, marked, f"Iteration times of {job}", told, (axis, "ms"),
        [(at / each, text) for at, text in onsets(verdicts)],
    )  # fmt: skip
    return figure("Iteration times", told, scroll(picture, "Iteration times"))


def _joined(ms: np.ndarray) -> tuple[np.ndarray, int]:
    """The longest of as many neighbours as leave no more columns than can be told apart."""
    each = max(1, -(-len(ms) // (4 * _COLUMNS)))
    return np.maximum.reduceat(ms, np.arange(0, len(ms), each)), each


def _heat(
    analysed: AnalysedJob, found: Attribution, lost: LostTime, accused: tuple[int, ...], verdicts: Numbered
) -> Markup:
    job, usual = analysed.job, max(1.0, float(np.median(analysed.features.duration_ns)))
    chosen = sorted(by_interest(accused, job, found.traffic, _HEAT_ROWS), key=lost.members.index)
    places = [lost.members.index(m) for m in chosen]
    value, known, each = in_columns(lost, _COLUMNS)
    names = tuple(found.traffic.endpoints[m].name for m in chosen)
    marked = frozenset(k for k, m in enumerate(chosen) if m in accused)
    heat = Heat(names, marked, value[:, places].T / usual, known[:, places].T,
                0, each, job.iterations, _BOUNDS, _STEPS)  # fmt: skip
    told = _told(lost, found, analysed)
    picture = heatmap(f"heat-{job.id}", heat, f"Lost time by NIC and iteration of {job.id}", told,
                      "iteration", onsets(verdicts))  # fmt: skip
    caption = (
        f"Time per iteration charged to each NIC, as a share of an iteration ({duration(usual)}): what its "
        "host held up, slow messages from or to it, repeats. A slow message shows at both of its ends. "
        "▶ marks whom a verdict points at."
    )
    if len(chosen) < len(job.members):
        caption += f" Of {len(job.members)} NICs {len(chosen)} are shown."
    return figure("Lost time: NIC by iteration", caption, scroll(picture, "Lost time by NIC and iteration"),
                  details("The same in numbers", _heat_table(lost, found)))  # fmt: skip


def _told(lost: LostTime, found: Attribution, analysed: AnalysedJob) -> str:
    total = lost.ns.sum(axis=0)
    order = np.argsort(-total)[:3]
    most = [
        f"{found.traffic.endpoints[lost.members[k]].name} {duration(float(total[k]))}"
        for k in order.tolist()
        if total[k] > 0
    ]
    unseen = int((lost.known == Known.MISSING).all(axis=0).sum())
    tail = f" Of {unseen} NICs there is no capture." if unseen else ""
    return (f"Most is charged to {', '.join(most)}." if most else "Nothing is charged to anybody.") + tail


def _heat_table(lost: LostTime, found: Attribution) -> Markup:
    total = lost.ns.sum(axis=0)
    order = np.argsort(-total, kind="stable")[:_TABLE_ROWS].tolist()
    unseen = {k for k in order if (lost.known[:, k] == Known.MISSING).all()}
    body = [
        (
            found.traffic.endpoints[lost.members[k]].name,
            *(("no capture",) * 4 if k in unseen else (duration(float(v)) for v in lost.by_kind[:, k])),
            "no capture" if k in unseen else duration(float(total[k])),
        )
        for k in order
    ]
    head = ("NIC", "host", "messages sent", "messages got", "repeats", "charged in all")
    return table(f"Time charged, the {len(body)} NICs with most", head, body, (1, 2, 3, 4, 5))


def _waits(
    analysed: AnalysedJob, found: Attribution, stretches: tuple[Table, ...], accused: tuple[int, ...]
) -> Markup:
    job = analysed.job
    chosen = sorted(by_interest(accused, job, found.traffic, _BAR_ROWS), key=job.members.index)
    sums = state_sums(found, stretches, chosen, int(job.boundaries_ns[0]), int(job.boundaries_ns[-1]))
    states = present(sums)
    total = np.maximum(sums.ns.sum(axis=1), 1)
    entries = [
        Row(
            found.traffic.endpoints[m].name,
            tuple(float(sums.ns[k, s]) / float(total[k]) for s in states),
            m in accused,
            f"{share(_own(sums.ns[k], total[k]))} its own",
        )
        for k, m in enumerate(chosen)
    ]
    told = "; ".join(f"{row.name}: {row.text}" for row in entries[:8])
    looks = [(look(s), NAMES[s]) for s in states]
    picture = rows(f"waits-{job.id}", entries, looks, f"Wait states by NIC of {job.id}", told, 1.0)
    body = [(row.name, *(share(part) for part in row.parts)) for row in entries]
    head = ("NIC", *(NAMES[s] for s in states))
    caption = (
        "What the sends of every NIC did while an operator of theirs was under way, as shares of that time. "
        "“Its own” is what it could have sent and did not."
    )
    if len(chosen) < len(job.members):
        caption += f" Of {len(job.members)} NICs {len(chosen)} are shown, those near the accused first."
    return figure("Wait states", caption, scroll(picture, "Wait states by NIC"),
                  details("The same in numbers", table("Shares of the time of operators", head, body,
                                                       range(1, len(head)))))  # fmt: skip


def _own(ns: np.ndarray, total: float) -> float:
    names = [s for s in NAMES if s.name in ("NOT_STARTED", "WAIT_SENDER")]
    return float(sum(int(ns[s]) for s in names)) / float(total)


def _blame(
    analysed: AnalysedJob, found: Attribution, lost: LostTime, accused: tuple[int, ...], verdicts: Numbered
) -> Markup:
    """What verdicts cost the whole job: everybody waits for a fault together."""
    members = len(analysed.job.members)
    spent = float(analysed.features.duration_ns.sum()) / 1e9 * members
    entries = [
        Row(f"{name} {_where(v)}", (v.lost_gpu_seconds,), bool(v.machine),
            f"{digits(v.lost_gpu_seconds)} GPU-seconds")
        for name, v in verdicts
    ]  # fmt: skip
    told = f"The iterations seen took {digits(spent)} GPU-seconds of {members} NICs, one GPU per NIC."
    if not entries:
        return figure("Blame in GPU-seconds", f"{told} None of them is blamed on anybody.", None)
    each = max(v.lost_gpu_seconds for _, v in verdicts) / members
    caption = f"{told} Of the largest loss each NIC of the job waits for {digits(each)} seconds."
    picture = rows(f"blame-{analysed.job.id}", entries, [("column shown", "lost")],
                   f"Lost GPU-seconds by verdict of {analysed.job.id}", told)  # fmt: skip
    return figure("Blame in GPU-seconds", caption, scroll(picture, "Blame in GPU-seconds"))


def _where(verdict: Verdict) -> str:
    return "/".join(p for p in (verdict.machine, verdict.nic) if p) or "no machine"
