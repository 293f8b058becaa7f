# SPDX-License-Identifier: Apache-2.0
"""How wait states look and what they are called."""

from __future__ import annotations

from host_ctl.attribute.states import WaitState
from host_ctl.present.evidence.waits import StateTable

NAMES = {
    WaitState.NOT_STARTED: "not started, though it could",
    WaitState.WAIT_SENDER: "stalled, though it could send",
    WaitState.WAIT_CREDIT: "waits for credit",
    WaitState.REPAIR: "sends again what was lost",
    WaitState.PACED: "held back by congestion",
    WaitState.TRANSFER: "under way",
    WaitState.WAIT_UPSTREAM: "waits for its input",
    WaitState.UNKNOWN: "unknown",
    WaitState.COMPLETE: "done, others are not",
}
"""In the order in which bars stack them: what a NIC itself is charged with comes first."""


def look(state: int) -> str:
    """The CSS class of a state."""
    return f"s-{WaitState(state).name.lower().replace('_', '-')}"


def present(table: StateTable) -> list[WaitState]:
    """The states that occur, in the order of bars."""
    return [state for state in NAMES if int(table.ns[:, state].sum()) > 0]
