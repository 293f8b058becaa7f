# SPDX-License-Identifier: Apache-2.0
"""What the controller knows of itself at an instant, as other threads may read it."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from host_ctl.history.frames import FrameHistory
from host_ctl.ingest.limits import NicState
from host_ctl.ingest.peer_clock import ClockReading
from host_ctl.ingest.server import IngestServer
from host_ctl.live.supervisor import AnalysisStatus


@dataclass(frozen=True, slots=True)
class NicSnapshot:
    """One NIC; counts are those since the start of the controller."""

    machine: str
    nic: str
    boot_id: str
    software: str
    connected: bool
    counts: dict[str, int]
    last_sequence: int
    last_received_ns: int
    clock: ClockReading | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The controller; `problem` is why frames are not acknowledged, if they are not."""

    taken_s: float
    uptime_s: float
    problem: str | None
    connections: int
    pending_bytes: int
    durable_frames: int
    write_failures: int
    ingest: dict[str, int]
    history: dict[str, int]
    certificate_expires_s: float | None
    certificate_problem: str | None
    nics: tuple[NicSnapshot, ...]
    analysis: AnalysisStatus | None

    @property
    def age_s(self) -> float:
        """How old it is: the controller's loop makes a new one every second."""
        return time.monotonic() - self.taken_s


_NIC_COUNTS = (
    "connections",
    "frames",
    "bytes",
    "duplicates",
    "late",
    "reordered",
    "missing",
    "restarts",
    "refused",
)


def take_snapshot(
    server: IngestServer,
    history: FrameHistory,
    begun_s: float,
    certificate: tuple[float | None, str | None],
    analysis: AnalysisStatus | None,
) -> Snapshot:
    """Return what is so now."""
    now_s = time.monotonic()
    committer = server.committer
    return Snapshot(
        taken_s=now_s,
        uptime_s=now_s - begun_s,
        problem=committer.problem,
        connections=server.connections,
        pending_bytes=committer.pending_bytes,
        durable_frames=committer.durable_frames,
        write_failures=committer.failures,
        ingest=asdict(server.counts),
        history=asdict(history.counts),
        certificate_expires_s=certificate[0],
        certificate_problem=certificate[1],
        nics=tuple(_nic(state) for state in server.roster),
        analysis=analysis,
    )


def _nic(state: NicState) -> NicSnapshot:
    return NicSnapshot(
        state.machine,
        state.nic,
        state.boot_id,
        state.software,
        state.connected,
        {name: getattr(state, name) for name in _NIC_COUNTS},
        state.last_sequence,
        state.last_received_ns,
        state.clock.estimate(time.time_ns()),
    )
