# SPDX-License-Identifier: Apache-2.0
"""Makes incidents of the verdicts of look after look; does no input or output, and knows no clock of its own.

Looks overlap, so a verdict at the edge of what noise allows comes and goes from one to the next: it has to
persist. A look at a job whose health is unsure tells nothing either way, and neither does one that does not
see the NICs of whom an incident accuses: silence is no proof that a fault has gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from host_ctl.diagnose.verdict import Severity, Verdict
from host_ctl.incidents.identity import Sighting, is_part_of, match, sightings_of
from host_ctl.incidents.plain import build
from host_ctl.incidents.records import Change, Identity, Incident
from host_ctl.live.findings import Findings, JobState

_TOLD_CONFIDENCE = 0.1
_TOLD_COST = 2.0
_LEAST_COST_S = 60.0
_DETAILS = (
    "cause", "scope", "machine", "nic", "peer", "candidates", "evidence", "slowdown", "confidence", "summary"
)  # fmt: skip
_PHASE_ORDER = {"open": 0, "ended": 1, "new": 2}


@dataclass(frozen=True, slots=True)
class Persistence:
    """How long a verdict must be there before an incident opens, and be gone before it ends."""

    open_looks: int = 3
    open_of: int = 5
    open_iterations: int = 20
    stop_looks: int = 2
    stop_of: int = 3
    end_looks: int = 5
    end_s: float = 30.0
    end_iterations: int = 20
    reopen_s: float = 300.0
    gone_s: float = 600.0

    def needed(self, severity: Severity) -> tuple[int, int]:
        """In how many of how many looks a verdict must be seen."""
        if severity == "fail_stop":
            return self.stop_looks, self.stop_of
        return self.open_looks, self.open_of

    def is_apart(self, between_ns: int, iteration_ns: int) -> bool:
        """Whether two looks in a row have so little in common that they are enough."""
        return 0 < self.open_iterations * iteration_ns <= between_ns

    def absence_ns(self, iteration_ns: int) -> int:
        """For how long an open incident must not be seen before it ends."""
        return max(round(self.end_s * 1e9), self.end_iterations * iteration_ns)


@dataclass(slots=True)
class Track:
    """What is followed from look to look: not an incident yet, one that is open, or one that may come back.

    ``recent`` tells of the last looks whether it was seen. ``idle_ns`` is the time since then, ``absent_ns``
    and ``gone_ns`` are those parts of it in which it would have been seen, or its job was not there.
    """

    serial: int
    identity: Identity
    phase: Literal["new", "open", "ended"] = "new"
    recent: tuple[bool, ...] = ()
    started_ns: int = 0
    idle_ns: int = 0
    absent_looks: int = 0
    absent_ns: int = 0
    gone_looks: int = 0
    gone_ns: int = 0
    incident: Incident | None = None
    told_confidence: float = 0.0
    told_cost: float = 0.0

    def unseen(self, most: int) -> None:
        """Note a look in which it was not there."""
        self.recent = (*self.recent, False)[-most:]


@dataclass(slots=True)
class TrackerState:
    """All that a tracker remembers."""

    serial: int = 0
    number: int = 0
    last_ns: int = 0
    tracks: list[Track] = field(default_factory=list)


class Tracker:
    """Follows verdicts; `look` tells what changed. One made of another's state goes on as that."""

    def __init__(self, persistence: Persistence, state: TrackerState | None = None) -> None:
        self._persistence = persistence
        self.state = state or TrackerState()

    @staticmethod
    def restored(plain: Any) -> TrackerState:
        """Return a state that was written as JSON. Raises TypeError, KeyError or ValueError."""
        return build(TrackerState, plain)

    @property
    def open(self) -> list[Incident]:
        """The incidents that are open, the oldest first."""
        return [t.incident for t in self.state.tracks if t.phase == "open" and t.incident is not None]

    def look(self, findings: Findings) -> list[Change]:
        """Take the verdicts of a look; return what has changed, in a fixed order."""
        state = self.state
        # Time that a clock was set back by is no time; none of what ends by time ends by that alone.
        elapsed_ns = max(0, findings.end_ns - state.last_ns) if state.last_ns else 0
        state.last_ns = findings.end_ns
        for track in state.tracks:
            track.idle_ns += elapsed_ns
        jobs = {job.key: job for job in findings.jobs}
        visible = _visible(findings)
        changes: list[Change] = []
        for key in sorted(jobs):
            if jobs[key].health != "unsure":
                changes += self._look_at(jobs[key], findings, elapsed_ns, visible)
        for track in list(state.tracks):
            if track.identity.job not in jobs:
                changes += self._miss(track, findings, elapsed_ns, visible)
        self._forget()
        return changes

    def end(self, number: int, at_ns: int, reason: str) -> Change | None:
        """End an incident because somebody says so; None when no such one is open."""
        for track in self.state.tracks:
            if track.phase == "open" and track.incident is not None and track.incident.number == number:
                return self._end(track, at_ns, reason)
        return None

    def _look_at(
        self, job: JobState, findings: Findings, elapsed_ns: int, visible: frozenset[str]
    ) -> list[Change]:
        kept = [track for track in self.state.tracks if track.identity.job == job.key]
        kept.sort(key=lambda track: (_PHASE_ORDER[track.phase], track.serial))
        sightings = sightings_of(job.key, job.verdicts)
        goes_on = match(sightings, kept, lambda track: track.identity)
        changes: list[Change] = []
        for position, sighting in enumerate(sightings):
            track = goes_on.get(position)
            open_already = track is not None and track.phase == "open"
            stop = sighting.verdict.severity == "fail_stop"
            # That a machine stopped its peers can tell; how slow it is now they cannot.
            if not open_already and not stop and _is_hidden(sighting.identity, job, visible):
                continue
            changes += self._see(track or self._new(sighting.identity), sighting, job, findings)
        seen = {track.serial for track in goes_on.values()}
        for track in kept:
            if track.serial not in seen:
                changes += self._not_see(track, job, findings, elapsed_ns, visible)
        return changes

    def _new(self, identity: Identity) -> Track:
        self.state.serial += 1
        track = Track(self.state.serial, identity)
        self.state.tracks.append(track)
        return track

    def _see(self, track: Track, sighting: Sighting, job: JobState, findings: Findings) -> list[Change]:
        verdict, before = sighting.verdict, track.incident
        needed, of = self._persistence.needed(verdict.severity)
        onset_ns = min(verdict.onset_ns, findings.end_ns) if verdict.onset_ns > 0 else findings.begin_ns
        if not any(track.recent) and track.phase != "open":
            track.started_ns = onset_ns
        again = track.recent[-1:] == (True,) and self._persistence.is_apart(track.idle_ns, job.iteration_ns)
        track.identity = sighting.identity
        track.recent = (*track.recent, True)[-of:]
        added = _added_cost(verdict, onset_ns, track.idle_ns, findings)
        track.idle_ns = track.absent_looks = track.absent_ns = track.gone_looks = track.gone_ns = 0
        if track.phase == "open" and before is not None:
            now = _seen(before, sighting, job, findings.end_ns, before.lost_gpu_seconds + added)
            track.incident = now
            return self._updated(track, before, now)
        if sum(track.recent) < needed and not again:
            return []
        text = f"seen in {sum(track.recent)} of {len(track.recent)} looks: {verdict.summary}"
        track.phase = "open"
        if before is not None:
            now = _seen(before, sighting, job, findings.end_ns, before.lost_gpu_seconds + added)
            now = replace(now, state="open", ended_ns=None, end_reason=None, reopened=before.reopened + 1)
            return [self._told(track, Change("reopened", now, findings.end_ns, text))]
        self.state.number += 1
        now = _opened(self.state.number, track, sighting, job, findings.end_ns)
        return [self._told(track, Change("opened", now, findings.end_ns, text))]

    def _updated(self, track: Track, before: Incident, now: Incident) -> list[Change]:
        said = [
            f"{name} {old or 'none'} -> {new or 'none'}"
            for name, old, new in (
                ("cause", before.cause, now.cause),
                ("machine", before.machine, now.machine),
                ("nic", before.nic, now.nic),
                ("peer", before.peer, now.peer),
            )
            if old != new
        ]
        if abs(now.confidence - track.told_confidence) >= _TOLD_CONFIDENCE:
            said.append(f"confidence {track.told_confidence:.2f} -> {now.confidence:.2f}")
        if now.lost_gpu_seconds >= max(_TOLD_COST * track.told_cost, track.told_cost + _LEAST_COST_S):
            said.append(f"lost GPU seconds {track.told_cost:.0f} -> {now.lost_gpu_seconds:.0f}")
        if not said:
            return []
        return [self._told(track, Change("updated", now, now.last_seen_ns, ", ".join(said)))]

    @staticmethod
    def _told(track: Track, change: Change) -> Change:
        track.incident = change.incident
        track.told_confidence = change.incident.confidence
        track.told_cost = change.incident.lost_gpu_seconds
        return change

    def _not_see(
        self, track: Track, job: JobState, findings: Findings, elapsed_ns: int, visible: frozenset[str]
    ) -> list[Change]:
        """A look that saw the job, and the verdict was not there."""
        if _is_hidden(track.identity, job, visible):
            return []
        track.unseen(self._persistence.needed(track.identity.severity)[1])
        if track.phase != "open":
            return []
        track.absent_looks += 1
        track.absent_ns += elapsed_ns
        track.gone_looks = track.gone_ns = 0
        enough_ns = self._persistence.absence_ns(job.iteration_ns)
        if track.absent_looks < self._persistence.end_looks or track.absent_ns < enough_ns:
            return []
        reason = f"not seen in {track.absent_looks} looks and {track.absent_ns / 1e9:.0f} s"
        return [self._end(track, findings.end_ns, reason)]

    def _miss(
        self, track: Track, findings: Findings, elapsed_ns: int, visible: frozenset[str]
    ) -> list[Change]:
        """A look in which the job was not there; it has gone if its NICs are heard nevertheless."""
        incident = track.incident
        if track.phase != "open" or incident is None:
            track.unseen(self._persistence.needed(track.identity.severity)[1])
            return []
        if 2 * len(visible.intersection(incident.nics)) < len(incident.nics):
            return []
        track.gone_looks += 1
        track.gone_ns += elapsed_ns
        gone_s = track.gone_ns / 1e9
        if track.gone_looks < self._persistence.end_looks or gone_s < self._persistence.gone_s:
            return []
        return [self._end(track, findings.end_ns, f"the job has not been there for {gone_s:.0f} s")]

    def _end(self, track: Track, at_ns: int, reason: str) -> Change:
        incident = track.incident
        assert incident is not None
        track.phase, track.recent = "ended", ()
        track.idle_ns = track.absent_looks = track.absent_ns = track.gone_looks = track.gone_ns = 0
        track.incident = replace(incident, state="ended", ended_ns=incident.last_seen_ns, end_reason=reason)
        return Change("ended", track.incident, at_ns, reason)

    def _forget(self) -> None:
        """Let go what is no incident and is not seen any more, and what has ended for good."""
        kept: list[Track] = []
        for track in self.state.tracks:
            if track.phase == "ended" and track.idle_ns > self._persistence.reopen_s * 1e9:
                # What is seen again meanwhile, but not for long enough, may become another incident.
                track.phase, track.incident = "new", None
            lapsed = track.idle_ns > self._persistence.gone_s * 1e9 or not any(track.recent)
            if track.phase != "new" or not lapsed:
                kept.append(track)
        self.state.tracks = kept


def _visible(findings: Findings) -> frozenset[str]:
    """The NICs that were heard."""
    heard = {nic for job in findings.jobs for nic in job.nics}
    for each in findings.report.get("inputs", ()):
        heard.add(f"{each['machine']}/{each['nic']}" if each["nic"] else each["machine"])
    return frozenset(heard - set(findings.silent))


def _is_hidden(identity: Identity, job: JobState, visible: frozenset[str]) -> bool:
    """Whether nothing is heard of whom an identity accuses."""
    accused = [nic for nic in job.nics if any(is_part_of(nic, place) for place in identity.place)]
    return bool(accused) and not visible.intersection(accused)


def _added_cost(verdict: Verdict, onset_ns: int, idle_ns: int, findings: Findings) -> float:
    """What the time since the last look has cost: its part of what the whole look has."""
    spanned_ns = findings.end_ns - max(findings.begin_ns, onset_ns)
    share = min(1.0, idle_ns / spanned_ns) if spanned_ns > 0 else 0.0
    return verdict.lost_gpu_seconds * share


def _opened(number: int, track: Track, sighting: Sighting, job: JobState, at_ns: int) -> Incident:
    verdict = sighting.verdict
    return Incident(
        number=number,
        identity=sighting.identity,
        state="open",
        started_ns=min(track.started_ns, at_ns),
        opened_ns=at_ns,
        last_seen_ns=at_ns,
        ended_ns=None,
        end_reason=None,
        reopened=0,
        **_details(verdict),
        lost_gpu_seconds=verdict.lost_gpu_seconds,
        machines=job.machines,
        nics=job.nics,
    )


def _seen(incident: Incident, sighting: Sighting, job: JobState, at_ns: int, cost: float) -> Incident:
    return replace(
        incident,
        identity=sighting.identity,
        last_seen_ns=max(incident.last_seen_ns, at_ns),
        **_details(sighting.verdict),
        lost_gpu_seconds=max(cost, sighting.verdict.lost_gpu_seconds),
        machines=job.machines,
        nics=job.nics,
    )


def _details(verdict: Verdict) -> dict[str, Any]:
    return {name: getattr(verdict, name) for name in _DETAILS}
