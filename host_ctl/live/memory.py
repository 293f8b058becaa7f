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

_SAME_JOB = 0.5  # of the NICs of the smaller
_SHORTER_LOOKS = 20
"""Looks in a row that must show a shorter iteration before it is believed: short windows show parts."""
_LONGER = 1.5
_SETTLED = 3
"""Looks in a row in which a job must be without a fault to be taken for healthy."""
_HEALTHY_MOVES = 0.2
_STILL_SLOW = 0.5  # of the way from the healthy iteration to that with the fault
_SLOWER = 1.1
_NEAR_BEGIN = 3  # iterations
_PAUSES = 3
_LEAST_ITERATIONS = 8
_ENOUGH_ITERATIONS = 20
_SURE = 0.9
_CONFIRMING = 3  # iterations
"""A slow machine is told at once where that many iterations accuse it so surely. Else a look with some more
iterations must accuse the same: there are many looks, and chance has as many tries."""
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
    """One job: iteration time when nothing is wrong, longest pause ever seen, verdicts that hold.

    ``connections`` are those that it began with.
    """

    key: str
    nics: tuple[str, ...]
    connections: frozenset[str]
    seen_ns: int
    iteration_ns: int = 0
    healthy_ns: int = 0
    looks: int = 0
    healthy_looks: int = 0
    slower_since_ns: int | None = None
    shorter_looks: int = 0
    pause_ns: int = 0
    kept: list[KeptVerdict] = field(default_factory=list)
    suspected: list[tuple[Verdict, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A job as one look saw it; times are of the controller's clock.

    ``late`` are its connections in the last third of its time in the window, ``iterations_ns`` begin and
    length of every iteration but the first and the last, which may be in part; ``silence_ns`` is how long it
    has been silent at the end.
    """

    nics: tuple[str, ...]
    late: frozenset[str]
    begin_ns: int
    end_ns: int
    iterations_ns: tuple[tuple[int, int], ...]
    pause_ns: int
    silence_ns: int
    verdicts: tuple[Verdict, ...]
    unsure: tuple[str, ...] = ()

    @property
    def iteration_ns(self) -> int:
        """The usual length of an iteration, 0 when there is no whole one."""
        return _median([length for _, length in self.iterations_ns])

    @property
    def latest_ns(self) -> int:
        """The usual length of the latest ones."""
        return _median([length for _, length in self.iterations_ns][-_LATEST:])


class Memory:
    """All jobs that are not forgotten; what is before ``floor_ns`` is of jobs that were started again."""

    def __init__(self, jobs: Iterable[JobMemory] = (), count: int = 0, floor_ns: int = -(2**63)) -> None:
        self.jobs = list(jobs)
        self.count = count
        self.floor_ns = floor_ns

    @property
    def iteration_ns(self) -> int:
        """The longest iteration of any job, 0 when none is known."""
        return max((job.iteration_ns for job in self.jobs), default=0)

    @property
    def onset_ns(self) -> int | None:
        """When the oldest fault began that is under way, or iterations became longer for whatever reason."""
        onsets = [
            k.verdict.onset_ns for job in self.jobs for k in job.kept if k.verdict.severity == "fail_slow"
        ]
        onsets += [job.slower_since_ns for job in self.jobs if job.slower_since_ns is not None]
        return min(onsets, default=None)

    def longest_pause_ns(self, nics: Sequence[str]) -> int:
        """The longest pause that was ever seen of the job on these NICs."""
        job = self._find(nics)
        return 0 if job is None else job.pause_ns

    def is_restart(self, seen: Sighting) -> bool:
        """Whether a job is one that is known, but with none of its connections: it was started again."""
        job = self._find(seen.nics)
        return job is not None and _anew(job, seen)

    def see(self, sightings: Sequence[Sighting]) -> list[tuple[JobMemory, tuple[Verdict, ...]]]:
        """Take what a look saw; return per sighting the job, as remembered, and the verdicts that hold now.

        Parts of a job that a window does not join, since it shows too little, are one job all the same: its
        verdicts come with the first.
        """
        jobs = [self._job(seen) for seen in sightings]
        out: list[tuple[JobMemory, tuple[Verdict, ...]]] = []
        for number, job in enumerate(jobs):
            if job in jobs[:number]:
                out.append((job, ()))
                continue
            parts = [s for s, own in zip(sightings, jobs, strict=True) if own is job]
            out.append((job, self._take(job, _joined(parts))))
        return out

    def _job(self, seen: Sighting) -> JobMemory:
        job = self._find(seen.nics)
        if job is not None and _anew(job, seen):
            self.jobs.remove(job)
            job = None
        if job is None:
            self.count += 1
            job = JobMemory(f"job-{self.count}", seen.nics, seen.late, seen.end_ns)
            self.jobs.append(job)
        return job

    def _take(self, job: JobMemory, seen: Sighting) -> tuple[Verdict, ...]:
        verdicts = _hold(job, seen)
        # A window that is too short for the job shows a part of it.
        job.nics = tuple(sorted({*seen.nics, *(job.nics if set(seen.nics) < set(job.nics) else ())}))
        if job.looks < _SETTLED:
            job.connections = seen.late
        job.looks += 1
        job.seen_ns = seen.end_ns
        _learn_period(job, seen)
        if seen.silence_ns <= seen.iteration_ns:
            # What lies before a stop may be part of it.
            job.pause_ns = max(job.pause_ns, seen.pause_ns)
        job.slower_since_ns = _slower_since(job, seen)
        _learn(job, seen, verdicts)
        return verdicts

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
            common = len(set(job.nics) & set(nics)) / max(min(len(job.nics), len(nics)), 1)
            if common > most:
                best, most = job, common
        return best


def _anew(job: JobMemory, seen: Sighting) -> bool:
    """Whether none of the connections is left that the job began with."""
    if len(seen.iterations_ns) < _LEAST_ITERATIONS or job.looks < _SETTLED:
        return False  # so short a window may show a part of the job only
    return not job.connections & seen.late


def _joined(parts: Sequence[Sighting]) -> Sighting:
    """The parts of a job as one; how long an iteration takes the first one tells."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        nics=tuple(sorted({nic for part in parts for nic in part.nics})),
        late=frozenset().union(*(part.late for part in parts)),
        silence_ns=min(part.silence_ns for part in parts),
        verdicts=tuple(v for part in parts for v in part.verdicts),
    )


def _learn_period(job: JobMemory, seen: Sighting) -> None:
    """Learn how long an iteration takes: longer at once, shorter only when nothing else shows for long."""
    if not seen.iteration_ns:
        return
    shorter = seen.iteration_ns * _LONGER < job.iteration_ns
    job.shorter_looks = job.shorter_looks + 1 if shorter else 0
    if not shorter or job.shorter_looks > _SHORTER_LOOKS:
        job.iteration_ns = seen.iteration_ns


def _slower_since(job: JobMemory, seen: Sighting) -> int | None:
    """Since when iterations take longer than when nothing was wrong, for whatever reason."""
    limit_ns = round(_SLOWER * job.healthy_ns)
    if not job.healthy_ns or seen.latest_ns <= limit_ns:
        return None
    if job.slower_since_ns is not None:
        return job.slower_since_ns
    return min((at for at, length in seen.iterations_ns if length > limit_ns), default=seen.begin_ns)


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
        again = [v for v in found if _same(old.verdict, v)]
        if again:
            found = [v for v in found if v not in again]
            kept.append(_renewed(old, again[0], seen))
        elif _lasts(old, seen):
            kept.append(old)
    accused = bool(kept)
    suspected, job.suspected = job.suspected, []
    for verdict in found:
        if any(_same(each.verdict, verdict) for each in kept):
            continue
        # Beside a fault that has become usual, what has no before of its own may be its shadow.
        if accused and verdict.severity == "fail_slow" and _from_begin(verdict, seen):
            continue
        since_ns = min((at for s, at in suspected if _same(s, verdict)), default=seen.end_ns)
        if verdict.severity == "fail_slow" and not _is_sure(verdict, seen, since_ns):
            job.suspected.append((verdict, since_ns))
            continue
        kept.append(_new(job, verdict, seen))
    job.kept = kept
    return tuple(each.verdict for each in kept)


def _is_sure(verdict: Verdict, seen: Sighting, since_ns: int) -> bool:
    """Whether a look is enough to accuse somebody, or confirms what an earlier one suspected."""
    surely = len(seen.iterations_ns) >= _ENOUGH_ITERATIONS and verdict.confidence >= _SURE
    return surely or seen.end_ns >= since_ns + _CONFIRMING * max(seen.iteration_ns, 1)


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
