# SPDX-License-Identifier: Apache-2.0
"""What the server takes from its peers, and what it counts of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpu_app.wire.transport import Limits
from host_ctl.ingest.peer_clock import PeerClock


@dataclass(frozen=True, slots=True)
class IngestLimits:
    """Bounds; what lies beyond is refused, or read more slowly."""

    connections: int = 1024
    connections_per_machine: int = 32
    handshakes: int = 256
    handshake_s: float = 10.0
    message_s: float = 30.0
    nics_per_machine: int = 64
    nics: int = 4096
    frame_bytes: int = 16 << 20
    table_bytes: int = 256 << 20
    frames_per_s: float = 100.0
    bytes_per_s: float = 32 << 20
    pending_bytes: int = 256 << 20
    unacknowledged_frames: int = 64
    unacknowledged_bytes: int = 32 << 20
    silence_s: float = 15.0

    def told(self) -> Limits:
        """Return what the peers are told."""
        return Limits(
            self.frame_bytes,
            self.unacknowledged_frames,
            self.unacknowledged_bytes,
            round(self.silence_s * 1e9),
        )


@dataclass(slots=True)
class NicState:
    """One NIC since the start of the controller; counts only grow."""

    machine: str
    nic: str
    boot_id: str = ""
    software: str = ""
    connected: bool = False
    connections: int = 0
    frames: int = 0
    bytes: int = 0
    duplicates: int = 0
    late: int = 0
    reordered: int = 0
    missing: int = 0
    restarts: int = 0
    refused: int = 0
    last_sequence: int = -1
    last_received_ns: int = 0
    clock: PeerClock = field(default_factory=PeerClock)
    allowance: Allowance = field(default_factory=lambda: Allowance(0.0, 0.0))


@dataclass(slots=True)
class Allowance:
    """Two token buckets in one, frames and bytes, each worth two seconds of its rate."""

    frames_per_s: float
    bytes_per_s: float
    _frames: float = 0.0
    _bytes: float = 0.0
    _at_s: float = float("-inf")

    def pause_s(self, size: int, now_s: float) -> float:
        """Take a frame; return how long to wait before the next one is read."""
        past_s = min(now_s - self._at_s, 2.0)
        self._at_s = now_s
        self._frames = min(self._frames + past_s * self.frames_per_s, 2 * self.frames_per_s) - 1
        self._bytes = min(self._bytes + past_s * self.bytes_per_s, 2 * self.bytes_per_s) - size
        return max(0.0, -self._frames / self.frames_per_s, -self._bytes / self.bytes_per_s)


@dataclass(slots=True)
class IngestCounts:
    """The server since its start."""

    accepted: int = 0
    refused_full: int = 0
    failed_handshakes: int = 0
    refused_identity: int = 0
    refused_schema: int = 0
    refused_frame: int = 0
    refused_busy: int = 0
    protocol_errors: int = 0
    too_slow: int = 0
    silent: int = 0
    replaced: int = 0
