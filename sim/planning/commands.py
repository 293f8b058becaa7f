# SPDX-License-Identifier: Apache-2.0
"""What a rank's program is made of: a generator of these commands, known before the simulation begins."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from sim.planning.collectives import Operation


@dataclass(frozen=True, slots=True)
class Begin:
    """A training step begins."""

    step: int


@dataclass(frozen=True, slots=True)
class End:
    """The training step is over on this rank."""

    step: int


@dataclass(frozen=True, slots=True)
class Compute:
    """Be busy for ``base_ns`` as scaled by the rank's noise; ``first`` marks the step's first phase."""

    base_ns: int
    first: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Be idle or busy for exactly this long: a checkpoint, an evaluation, a recorded compute time."""

    duration_ns: int


@dataclass(frozen=True, slots=True)
class Announce:
    """The host knows that this operation comes next on its stream; early credits may go out."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Start:
    """Put an operation on its stream and go on; operations of one stream run one after the other."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a stream is empty."""

    stream: int = 0


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Wait until an operation that was started is over."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Couple:
    """Wait for other ranks, as tensor parallelism does, without a packet; none named = all of the machine."""

    members: tuple[int, ...] = ()


Command = Begin | End | Compute | Pause | Announce | Start | Wait | WaitFor | Couple
Program = Generator[Command, None, None]
