# SPDX-License-Identifier: Apache-2.0
"""What is remembered of jobs from look to look: who they are, how they were when healthy, what is wrong.

A fault that has lasted longer than the window has nothing healthy beside it any more. Its verdict is kept,
with the onset and the evidence that it was found with, as long as iterations take nearly as long as they did
with the fault; when they are back to where they were before it, it is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from host_ctl.diagnose.verdict import Verdict
from host_ctl.live.intake import NicName

_SAME_JOB = 0.5  # of the NICs of both
_SETTLED = 3
"""Looks in a row in which a job must be without a fault to be taken for healthy."""
_HEALTHY_MOVES = 0.2
_STILL_SLOW = 0.5  # of the way from the healthy iteration to that with the fault
_NEAR_BEGIN = 3  # iterations
_PAUSES = 3
_LEAST_ITERATIONS = 8
_LATEST = 8


@dataclass(slots=True)
class KeptVerdict:
    """A verdict that holds, since when, and the iteration times before it and with it (0: unknown)."""

    verdict: Verdict
    seen_ns: int
    before_ns: int
    during_ns: int


@dataclass(slots=True)
class JobMemory:
    """One job: iteration time when nothing is wrong, longest pause ever seen, verdicts that hold."""

    key: str
    nics: tuple[str, ...]
    connections: frozenset[str]
    seen_ns: int
    iteration_ns: int = 0
    healthy_ns: int = 0
    healthy_looks: int = 0
    pause_ns: int = 0
    kept: list[KeptVerdict] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A job as one look saw it; times are of the controller's clock.

    ``connections`` are those in use at its end, ``iterations_ns`` begin and length of every iteration but the
    first and the last, which may be in part; ``silence_ns`` is how long it has been silent at the end.
    """

    nics: tuple[str, ...]
    connections: frozenset[str]
    begin_ns: int
    end_ns: int
    iterations_ns: tuple[tuple[int, int], ...]
    pause_ns: int
    silence_ns: int
    verdicts: tuple[Verdict, ...]

    @property
    def iteration_ns(self) -> int:
        """The usual length of an iteration, 0 when there is no whole one."""
        return _median([length for _, length in self.iterations_ns])

    @property
    def latest_ns(self) -> int:
        """The usual length of the latest ones."""
        return _median([length for _, length in self.iterations_ns][-_LATEST:])


class Memory:
    """All jobs that are not forgotten."""

    def __init__(self, jobs: Iterable[JobMemory] = (), count: int = 0) -> None:
        self.jobs = list(jobs)
        self.count = count

    @property
    def iteration_ns(self) -> int:
        """The longest iteration of any job, 0 when none is known."""
        return max((job.iteration_ns for job in self.jobs), default=0)

    @property
    def onset_ns(self) -> int | None:
        """When the oldest fault began that is under way."""
        onsets = [
            k.verdict.onset_ns for job in self.jobs for k in job.kept if k.verdict.severity == "fail_slow"
        ]
        return min(onsets, default=None)

    def longest_pause_ns(self, nics: Sequence[str]) -> int:
        """The longest pause that was ever seen of the job on these NICs."""
        job = self._find(nics)
        return 0 if job is None else job.pause_ns

    def is_restart(self, nics: Sequence[str], connections: frozenset[str]) -> bool:
        """Whether a job on these NICs has none of the connections that it had: it was started again."""
        job = self._find(nics)
        return job is not None and not job.connections & connections

    def see(self, seen: Sighting) -> tuple[JobMemory, tuple[Verdict, ...]]:
        """Take what a look saw of a job; return what is remembered of it, and the verdicts that hold now."""
        job = self._find(seen.nics)
        if job is not None and not job.connections & seen.connections:
            self.jobs.remove(job)
            job = None
        if job is None:
            self.count += 1
            job = JobMemory(f"job-{self.count}", seen.nics, seen.connections, seen.end_ns)
            self.jobs.append(job)
        verdicts = _hold(job, seen)
        job.nics, job.connections, job.seen_ns = seen.nics, seen.connections, seen.end_ns
        if seen.iteration_ns:
            job.iteration_ns = seen.iteration_ns
        if seen.silence_ns <= seen.iteration_ns:
            # What lies before a stop may be part of it.
            job.pause_ns = max(job.pause_ns, seen.pause_ns)
        _learn(job, seen, verdicts)
        return job, verdicts

    def stopped(self, seen: Sequence[JobMemory]) -> list[JobMemory]:
        """Jobs that have stopped and are out of sight; what runs on their NICs now has taken their place."""
        taken = {nic for job in seen for nic in job.nics}
        still = []
        for job in self.jobs:
            if job in seen or not any(k.verdict.severity == "fail_stop" for k in job.kept):
                continue
            if taken & set(job.nics):
                job.kept = []
            else:
                still.append(job)
        return still

    def forget_before(self, ns: int) -> None:
        """Forget jobs that were not seen since a time."""
        self.jobs = [job for job in self.jobs if job.seen_ns >= ns]

    def _find(self, nics: Sequence[str]) -> JobMemory | None:
        best, most = None, _SAME_JOB
        for job in self.jobs:
            common = len(set(job.nics) & set(nics)) / max(len(set(job.nics) | set(nics)), 1)
            if common >= most:
                best, most = job, common
        return best


def _learn(job: JobMemory, seen: Sighting, verdicts: Sequence[Verdict]) -> None:
    """Learn how the job is when nothing is wrong, of windows without a fault, and by little at a time."""
    if any(v.severity != "notice" for v in verdicts) or len(seen.iterations_ns) < _LEAST_ITERATIONS:
        job.healthy_looks = 0
        return
    job.healthy_looks += 1
    if not job.healthy_ns:
        job.healthy_ns = seen.iteration_ns
    elif job.healthy_looks >= _SETTLED:
        job.healthy_ns += round((seen.iteration_ns - job.healthy_ns) * _HEALTHY_MOVES)


def _hold(job: JobMemory, seen: Sighting) -> tuple[Verdict, ...]:
    """The verdicts of a look with what is remembered: onsets carried over, lasting faults kept."""
    found = [v for v in seen.verdicts if _stands(job, seen, v)]
    kept: list[KeptVerdict] = []
    for old in job.kept:
        again = next((v for v in found if _same(old.verdict, v)), None)
        if again is not None:
            found.remove(again)
            kept.append(_renewed(old, again, seen))
        elif _lasts(old, seen):
            kept.append(old)
    accused = bool(kept)
    for verdict in found:
        # Beside a fault that has become usual, what has no before of its own may be its shadow.
        if accused and verdict.severity == "fail_slow" and _from_begin(verdict, seen):
            continue
        kept.append(_new(job, verdict, seen))
    job.kept = kept
    return tuple(each.verdict for each in kept)


def _new(job: JobMemory, verdict: Verdict, seen: Sighting) -> KeptVerdict:
    """A fault with the iteration times before it and with it, of the window if it shows both."""
    before = [n for at, n in seen.iterations_ns if at + n <= verdict.onset_ns]
    during = [n for at, n in seen.iterations_ns if at >= verdict.onset_ns]
    before_ns = _median(before) if len(before) >= _NEAR_BEGIN else job.healthy_ns
    return KeptVerdict(verdict, seen.end_ns, before_ns, _median(during) or seen.latest_ns)


def _median(lengths: Sequence[int]) -> int:
    return sorted(lengths)[len(lengths) // 2] if lengths else 0


def _stands(job: JobMemory, seen: Sighting, verdict: Verdict) -> bool:
    if verdict.severity == "fail_stop":
        # Pauses count that were longer than any in the window.
        return seen.silence_ns > _PAUSES * job.pause_ns
    return len(seen.iterations_ns) >= _LEAST_ITERATIONS


def _same(old: Verdict, new: Verdict) -> bool:
    if old.severity != new.severity:
        return False
    if old.machine is None and new.machine is None:
        return old.cause == new.cause
    return old.machine == new.machine and (old.nic == new.nic or old.cause == new.cause)


def _from_begin(verdict: Verdict, seen: Sighting) -> bool:
    return verdict.onset_ns <= seen.begin_ns + _NEAR_BEGIN * seen.iteration_ns


def _renewed(old: KeptVerdict, new: Verdict, seen: Sighting) -> KeptVerdict:
    """The same fault seen again: what was known of its begin holds, and of its cost what is more."""
    if new.severity == "notice" or old.verdict.onset_ns > new.onset_ns:
        return KeptVerdict(new, seen.end_ns, old.before_ns, seen.latest_ns)
    if old.verdict.onset_ns < seen.begin_ns or _from_begin(new, seen):
        # Only the look that saw the begin could compare with before.
        lost = max(old.verdict.lost_gpu_seconds, new.lost_gpu_seconds)
        held = replace(old.verdict, lost_gpu_seconds=lost)
        return KeptVerdict(held, seen.end_ns, old.before_ns, max(old.during_ns, seen.latest_ns))
    onset = {"onset_ns": old.verdict.onset_ns, "onset_iteration": old.verdict.onset_iteration}
    return KeptVerdict(replace(new, **onset), seen.end_ns, old.before_ns, seen.latest_ns)  # type: ignore[arg-type]  # ints both


def _lasts(old: KeptVerdict, seen: Sighting) -> bool:
    """Whether a fault that a look does not show is still there."""
    verdict = old.verdict
    if verdict.severity != "fail_slow" or not old.before_ns or old.during_ns <= old.before_ns:
        return False
    if not seen.latest_ns or verdict.onset_ns > seen.begin_ns:
        return False  # its begin is in sight, and yet it does not show
    return seen.latest_ns >= old.before_ns + _STILL_SLOW * (old.during_ns - old.before_ns)


def nic_names(names: Iterable[NicName]) -> tuple[str, ...]:
    """NICs as reports name them."""
    return tuple(f"{machine}/{nic}" if nic else machine for machine, nic in names)
