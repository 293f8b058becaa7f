# SPDX-License-Identifier: Apache-2.0
"""From cause to victim: whose wait for input ended with the message that somebody else had held up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from host_ctl.attribute.charges import Charge
from host_ctl.attribute.states import WaitState
from host_ctl.ingest.series import Table
from host_ctl.present.attribution import Attribution
from host_ctl.reconstruct.transfers import send_start

_OWN = (WaitState.NOT_STARTED, WaitState.WAIT_SENDER)

Place = tuple[int, int]
"""A stretch: the number of its lane, and its own in the lane."""


@dataclass(frozen=True, slots=True)
class Flows:
    """Numbers of the flows that begin and that end at stretches."""

    begins: dict[Place, list[int]]
    ends: dict[Place, list[int]]

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(len(numbers) for numbers in self.ends.values())


def find_flows(
    found: Attribution, stretches: tuple[Table, ...], begin_ns: int, end_ns: int, most: int
) -> Flows:
    """The flows of the longest charges in a time, to each that waited for the message."""
    charges = found.charges
    inside = (charges["start"] < end_ns) & (charges["end"] > begin_ns)
    inside &= np.isin(charges["kind"], (Charge.HOST, Charge.TRANSFER, Charge.REPAIR))
    chosen = charges[inside]
    chosen = chosen[np.argsort(chosen["start"] - chosen["end"], kind="stable")][:most]
    cause, waiting = _rows(found), _waiting(found)
    flows, number = Flows({}, {}), 0
    for one in chosen:
        row = int(one["row"])
        origin = cause.get(row)
        if origin is None:
            continue
        own = one["kind"] == Charge.HOST
        at = int(send_start(found.traffic.transfers[row : row + 1])[0]) - (1 if own else 0)
        source = _stretch(stretches[origin], at, _OWN if own else tuple(WaitState))
        for lane, ready_ns in waiting.get(row, ()):
            target = _stretch(stretches[lane], ready_ns - 1, (WaitState.WAIT_UPSTREAM,))
            if source is None or target is None or number >= most:
                continue
            number += 1
            flows.begins.setdefault((origin, source), []).append(number)
            flows.ends.setdefault((lane, target), []).append(number)
    return flows


def _rows(found: Attribution) -> dict[int, int]:
    """The lane of every transfer."""
    return {row: k for k, lane in enumerate(found.program.lanes) for row in lane.rows.tolist()}


def _waiting(found: Attribution) -> dict[int, list[tuple[int, int]]]:
    """By transfer, the lanes whose messages needed it, and when they had it."""
    out: dict[int, list[tuple[int, int]]] = {}
    for gate in found.gates:
        for row, ns in zip(gate.input_row.tolist(), gate.input_ns.tolist(), strict=True):
            if row >= 0:
                out.setdefault(row, []).append((gate.lane, ns))
    return out


def _stretch(part: Table, ns: int, states: tuple[WaitState, ...]) -> int | None:
    """The stretch of a lane that a time lies in, if it is in one of some states."""
    place = int(np.searchsorted(part["start"], ns, side="right")) - 1
    if place < 0 or ns >= int(part["end"][place]) or int(part["state"][place]) not in states:
        return None
    return place
