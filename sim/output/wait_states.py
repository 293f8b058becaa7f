# SPDX-License-Identifier: Apache-2.0
"""Where the time of every operation went, on every lane that its rank sends on, from what really happened.

Between entering and leaving an operation each instant of a lane is in one state: ``transfer`` (a slot is
between posting and delivery), ``host`` (input and credit are there, the proxy has not posted yet),
``wait_credit`` (the GPU has filled a slot, no credit), ``wait_input`` (nothing to send yet). What comes first
in this list counts where several slots differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.output.records import NEVER, Records
from sim.planning.plan import Table
from sim.planning.world import World

STATES = ("transfer", "host", "wait_credit", "wait_input")

Times = NDArray[np.int64]
_LATER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class LaneStates:
    """Time per state (ns, in the order of STATES) of one lane within one operation of its sender."""

    lane: int
    tag: int
    state_ns: tuple[int, int, int, int]


def wait_states(world: World, records: Records) -> dict[int, list[LaneStates]]:
    """States of all operations that have ended, by the sending rank."""
    entered = {
        (rank, operation.tag): (operation.enter_ns, operation.end_ns)
        for rank, steps in records.steps.items()
        for step in steps
        for operation in step.operations
        if operation.end_ns != NEVER
    }
    credit_ns = credit_times(records)
    found: dict[int, list[LaneStates]] = {}
    slots = records.slots
    starts = np.flatnonzero(
        np.r_[True, (np.diff(slots["lane"]) != 0) | (np.diff(slots["tag"].astype(np.int64)) != 0)]
    )
    for first, end in zip(starts.tolist(), [*starts[1:].tolist(), len(slots)], strict=True):
        part = slots[first:end]
        if not len(part):
            continue
        lane, tag = int(part["lane"][0]), int(part["tag"][0])
        sender = world.lanes[lane].sender
        span = entered.get((sender, tag))
        if span is not None:
            states = _states(part, credit_ns[first:end], span)
            found.setdefault(sender, []).append(LaneStates(lane, tag, states))
    return found


def credit_times(records: Records) -> Times:
    """When the credit of each slot was there; the beginning of time without credits."""
    slots, credits_ = records.slots, records.credits
    here = np.zeros(len(slots), dtype=np.int64)
    if not len(credits_):
        return here
    # Slots come lane by lane, in order; the n-th credit of a lane is for its n-th slot.
    first = np.searchsorted(slots["lane"], np.arange(int(slots["lane"].max(initial=0)) + 2))
    here[:] = _LATER
    row = first[np.minimum(credits_["lane"], len(first) - 2)] + credits_["number"]
    known = (credits_["lane"] < len(first) - 1) & (credits_["arrived_ns"] != NEVER)
    known &= row < first[np.minimum(credits_["lane"] + 1, len(first) - 1)]
    here[row[known]] = credits_["arrived_ns"][known]
    return here


def _states(slots: Table, credit_ns: Times, span: tuple[int, int]) -> tuple[int, int, int, int]:
    staged, posted, delivered = (_or_later(slots[f"{name}_ns"]) for name in ("staged", "posted", "delivered"))
    ready = np.maximum(staged, credit_ns)
    covered = 0
    found = []
    begins: list[Times] = []
    ends: list[Times] = []
    for begin, end in ((posted, delivered), (ready, posted), (staged, credit_ns)):
        begins.append(begin)
        ends.append(end)
        total = _length(np.concatenate(begins), np.concatenate(ends), span)
        found.append(total - covered)
        covered = total
    return found[0], found[1], found[2], span[1] - span[0] - covered


def _or_later(times: Times) -> Times:
    return np.where(times == NEVER, _LATER, times)


def _length(begin: Times, end: Times, span: tuple[int, int]) -> int:
    """Length of the union of intervals within ``span``."""
    begin, end = np.clip(begin, *span), np.clip(end, *span)
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(begin[1:] - end[:-1], 0)
    return int(end[-1] - begin[0] - gaps.sum()) if len(end) else 0
