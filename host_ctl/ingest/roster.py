# SPDX-License-Identifier: Apache-2.0
"""Who is connected: one connection per NIC, and bounded numbers of NICs and connections per machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from dpu_app.wire.transport import Hello
from host_ctl.ingest.identity import IdentityError, usable_name
from host_ctl.ingest.limits import Allowance, IngestCounts, IngestLimits, NicState


class Member(Protocol):
    """A connection as the roster sees it."""

    def replace(self) -> None:
        """End, since the NIC has connected anew."""


class Roster:
    """All NICs since the start. NICs of which frames were kept before are not in it until they come back."""

    def __init__(self, limits: IngestLimits, counts: IngestCounts) -> None:
        self._limits = limits
        self._counts = counts
        self._nics: dict[tuple[str, str], NicState] = {}
        self._members: dict[tuple[str, str], Member] = {}
        self._of_machine: Counter[str] = Counter()

    def __iter__(self) -> Iterator[NicState]:
        """Yield every NIC."""
        return iter(self._nics.values())

    def join(self, hello: Hello, member: Member) -> NicState:
        """Return the state of the NIC that greets; its connection before ends. Raises IdentityError."""
        machine, nic = usable_name(hello.machine, "machine"), usable_name(hello.nic, "NIC")
        state = self._nics.get((machine, nic)) or self._add(machine, nic)
        before = self._members.get((machine, nic))
        self._members[machine, nic] = member
        if before is not None:
            self._counts.replaced += 1
            before.replace()
        state.restarts += state.boot_id not in ("", hello.boot_id)
        if state.boot_id != hello.boot_id:
            state.boot_id, state.last_sequence = hello.boot_id, -1
        state.software = hello.software[:64]
        state.connections += 1
        state.connected = True
        return state

    def leave(self, state: NicState, member: Member) -> None:
        """Take a connection out, unless another one has its place."""
        if self._members.get((state.machine, state.nic)) is member:
            del self._members[state.machine, state.nic]
            state.connected = False

    def _add(self, machine: str, nic: str) -> NicState:
        limits = self._limits
        if self._of_machine[machine] >= limits.nics_per_machine or len(self._nics) >= limits.nics:
            raise IdentityError(
                f"{machine} has named {self._of_machine[machine]} NICs, all machines {len(self._nics)}; "
                f"{limits.nics_per_machine} and {limits.nics} are allowed"
            )
        self._of_machine[machine] += 1
        allowance = Allowance(limits.frames_per_s, limits.bytes_per_s)
        state = self._nics[machine, nic] = NicState(machine, nic, allowance=allowance)
        return state
