# SPDX-License-Identifier: Apache-2.0
"""A whole run of the benchmark: cases, campaign, tables and figure in a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.scenarios.campaign import run_campaign
from bench.scenarios.data import Campaign, as_data
from bench.scenarios.figure import draw
from bench.scenarios.real import real_rows
from bench.scenarios.score import judged
from bench.scenarios.sets import ablation_cases, cases_of
from bench.scenarios.tables import markdown


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, and where results go."""

    set_name: str
    seeds: str
    folder: Path
    jobs: int = 2
    resume: bool = True
    ablations: bool = False
    real: Path | None = None
    traces: Path | None = None


def report(request: Request) -> tuple[str, dict[str, Any]]:
    """Run what is left, write ``report.md``, ``report.json``, ``recall.svg``; gives the tables both ways."""
    cases = cases_of(request.set_name, request.seeds)
    varied = ablation_cases(request.seeds) if request.ablations else []
    results = run_campaign([*cases, *varied], request.folder, request.jobs, resume=request.resume)
    campaign = Campaign(
        request.set_name,
        request.seeds,
        cases,
        results[: len(cases)],
        varied,
        results[len(cases) :],
        real_rows(request.real, request.traces),
    )
    text, data = markdown(campaign), as_data(campaign)
    (request.folder / "report.md").write_text(text, encoding="utf-8")
    (request.folder / "report.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    drawn = draw(judged(cases, campaign.results), request.folder / "recall.svg")
    figure = "recall.svg" if drawn else "no figure: pip install 'pulse-rdma[bench]' brings matplotlib"
    return f"{text}\n{request.folder}: report.md, report.json, {figure}\n", data
