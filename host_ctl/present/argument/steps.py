# SPDX-License-Identifier: Apache-2.0
"""The argument of one verdict, step by step, from nothing but the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from host_ctl.present.argument.causes import REASONING, UNKNOWN
from host_ctl.present.argument.metrics import metric
from host_ctl.present.units import digits, duration, share

SCHEMA = "pulse.explanation/1"
_SURE, _LIKELY = 0.9, 0.7


@dataclass(frozen=True, slots=True)
class Figure:
    """One number beside its norm."""

    name: str
    text: str
    value: str
    norm: str
    against: str


@dataclass(frozen=True, slots=True)
class Step:
    """One question of the argument, its answer, and the figures that it rests on."""

    question: str
    answers: tuple[str, ...]
    figures: tuple[Figure, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Argument:
    """The steps for one verdict, or for there being none (``verdict`` is None then)."""

    verdict: str | None
    claim: str
    steps: tuple[Step, ...]

    def plain(self) -> dict[str, Any]:
        """As plain data, ready for JSON."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "claim": self.claim,
            "steps": [
                {
                    "question": step.question,
                    "answers": list(step.answers),
                    "figures": [
                        {
                            "metric": f.name,
                            "measures": f.text,
                            "value": f.value,
                            "norm": f.norm,
                            "compared_with": f.against,
                        }
                        for f in step.figures
                    ],
                }
                for step in self.steps
            ],
        }


def argue(report: dict[str, Any], verdict_id: str | None) -> Argument:
    """The argument of one verdict of a report; of the gravest without an id.

    Raises KeyError when there is no such verdict.
    """
    verdicts = {v["id"]: v for v in report["verdicts"]}
    if verdict_id is None:
        if not verdicts:
            return _without_verdict(report)
        verdict_id = next(iter(verdicts))
    verdict = verdicts[verdict_id]
    reasoning = REASONING.get(verdict["cause"], UNKNOWN)
    against = [f"{other[0].upper()}{other[1:]}? No: {why}." for other, why in reasoning.against]
    steps = (
        Step("Who was compared with whom?", tuple(_compared(report, verdict))),
        Step("What was measured, against which norm?", (), tuple(_figure(e) for e in verdict["evidence"])),
        Step("Why does it mean this?", (f"{_sentence(reasoning.why)}",)),
        Step("What else could explain it?", (*against, f"Not to be told apart: {reasoning.alike}.")),
        Step("How sure is it?", tuple(_certainty(report, verdict))),
        Step("What does it cost?", (_cost(verdict),)),
        Step("What would settle it?", (_sentence(reasoning.settle), *_own_doubts(report, verdict))),
    )
    return Argument(verdict_id, verdict["summary"], steps)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _compared(report: dict[str, Any], verdict: dict[str, Any]) -> list[str]:
    job = next((j for j in report["jobs"] if j["id"] == verdict["job"]), None)
    if job is None:
        return [f"The report holds no job {verdict['job']}."]
    where = place(verdict)
    groups = [g for g in job["groups"] if any(_same(m, verdict) for m in g["members"])]
    size = f"{count(len(job['nics']), 'NIC')} of {count(len(job['machines']), 'machine')}"
    seen = f"{job['iterations']} iterations of {duration(job['iteration_s'] * 1e9)}"
    found = [f"{job['id']} has {size}; {seen} were seen."]
    if groups:
        names = ", ".join(f"{g['id']} ({g['algorithm']}, {len(g['members'])} members)" for g in groups[:4])
        more = f" and {len(groups) - 4} more" if len(groups) > 4 else ""
        found.append(f"{where} is a member of {names}{more}; its peers are the other members.")
    onset, detected = verdict["onset_iteration"], verdict["detected_iteration"]
    before = f"with the {onset} iterations before" if onset > 0 else "with its peers only: it has no before"
    found.append(
        f"Iterations from {onset} on were compared {before}; it was certain at iteration {detected}."
    )
    return found


def _same(member: str, verdict: dict[str, Any]) -> bool:
    machine, nic = verdict["machine"], verdict["nic"]
    if machine is None:
        return False
    return member == f"{machine}/{nic}" if nic else member == machine or member.startswith(f"{machine}/")


def _figure(item: dict[str, Any]) -> Figure:
    known = metric(item["metric"])
    unit = item["unit"]
    peers = "" if item["peers"] is None else in_unit(item["peers"], unit)
    return Figure(item["metric"], known.text, in_unit(item["value"], unit), peers, known.norm)


def in_unit(value: float, unit: str) -> str:
    """A figure of the report with its unit, as people read it."""
    scale = {"us": 1e3, "ms": 1e6, "s": 1e9}.get(unit)
    if scale is not None:
        return duration(value * scale)
    if unit in ("share", "probability"):
        return share(value)
    number = f"{value:,.0f}" if value == round(value) else digits(value)
    return f"{number} {unit}"


def _certainty(report: dict[str, Any], verdict: dict[str, Any]) -> list[str]:
    confidence = verdict["confidence"]
    word = "almost certain" if confidence >= _SURE else "likely" if confidence >= _LIKELY else "open"
    found = [f"Confidence {share(confidence)}: {word}."]
    names = [f"{_name(c)} {share(c['probability'])}" for c in verdict["candidates"]]
    if names:
        found.append(f"Candidates: {', '.join(names)}.")
    else:
        found.append("No machine is a candidate.")
    errors = [i["clock"]["uncertainty_ns"] for i in report["inputs"]]
    known = [e for e in errors if e is not None]
    effect = next((e["value"] * 1e3 for e in verdict["evidence"] if e["unit"] == "us"), None)
    if known:
        text = f"Clocks are certain to {duration(max(known)) if max(known) else 'the nanosecond'}"
        # The first figure in us is what the verdict rests on.
        compare = (
            "" if effect is None or max(known) == 0 else f", {effect / max(known):,.0f} times less than it"
        )
        found.append(f"{text}{compare if effect and effect > max(known) else ''}.")
    loose = len(errors) - len(known)
    if loose:
        found.append(f"The clocks of {count(loose, 'capture')} are tied to no other.")
    return found


def _cost(verdict: dict[str, Any]) -> str:
    lost = f"{digits(verdict['lost_gpu_seconds'])} GPU-seconds so far, at one GPU per NIC"
    if verdict["severity"] == "fail_stop":
        return f"The job stands still: {lost}."
    if verdict["slowdown"] is None:
        return f"{lost[0].upper()}{lost[1:]}."
    return f"Iterations take {verdict['slowdown']:.2f} times as long as without it: {lost}."


def _own_doubts(report: dict[str, Any], verdict: dict[str, Any]) -> list[str]:
    found = []
    unseen = [m for m in _members(report, verdict) if m.startswith("ip:")]
    if unseen:
        found.append(f"A capture of {', '.join(unseen[:4])}: nothing was captured there.")
    lost = sum(i["lost"] for i in report["inputs"])
    if lost:
        found.append(f"Captures without losses: these lost {lost:,} packets.")
    if verdict["machine"] and verdict["severity"] == "fail_slow":
        found.append(f"It is wrong if the job stays as slow after {place(verdict)} has been drained.")
    return found


def _members(report: dict[str, Any], verdict: dict[str, Any]) -> list[str]:
    return [n for j in report["jobs"] if j["id"] == verdict["job"] for n in j["nics"]]


def _without_verdict(report: dict[str, Any]) -> Argument:
    looked = [
        f"{j['id']}: {count(len(j['nics']), 'NIC')}, {j['iterations']} iterations of "
        f"{duration(j['iteration_s'] * 1e9)}."
        for j in report["jobs"]
    ] or ["No training job was recognised."]
    missing = [_sentence(m) for m in report["data_quality"]["missing"]]
    if report["health"] == "unsure":
        claim = "there is not enough data to say"
        settle = (*missing, _sentence(_settle(report)))
        steps: tuple[Step, ...] = (
            Step("What was looked at?", tuple(looked)),
            Step("Why can nothing be said?", tuple(missing) or ("No reason was given.",)),
            Step("What would settle it?", settle[len(missing) :]),
        )
        return Argument(None, claim, steps)
    nobody = (
        "Nobody's lateness, messages or losses cost 2 % of an iteration for long enough to be no chance.",
        "An excess below that, or below the uncertainty of the clocks, is not a finding.",
    )
    steps = (
        Step("What was looked at?", tuple(looked)),
        Step("Why is nobody to blame?", nobody),
        Step("What would show more?", ("A longer capture shows smaller slowdowns.",)),
    )
    return Argument(None, "no machine is to blame", steps)


def _settle(report: dict[str, Any]) -> str:
    if not report["jobs"]:
        return "captures of RDMA traffic (RoCEv2) at the machines of the job, over some tens of iterations"
    return (
        "a longer capture, or one of every machine; --until TIME where captures ran on after the last packet"
    )


def count(number: int, what: str) -> str:
    """A number of things."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def place(verdict: dict[str, Any]) -> str:
    """Where a verdict points: a NIC, a machine, the ends of a link, or nowhere."""
    where = "/".join(p for p in (verdict["machine"], verdict["nic"]) if p)
    if where:
        return where
    ends = [c["machine"] for c in verdict["candidates"]] if verdict["scope"] == "link" else []
    return " or ".join(dict.fromkeys(ends)) or "no machine"


def _name(candidate: dict[str, Any]) -> str:
    return "/".join(p for p in (candidate["machine"], candidate["nic"]) if p)
