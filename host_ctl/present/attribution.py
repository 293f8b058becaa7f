# SPDX-License-Identifier: Apache-2.0
"""What pictures need of the attribution in between its stages, made again from an analysis.

An analysis keeps sums; pictures and traces show the stretches of time behind them, which are many and which
only who looks at them has to pay for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.charges import charge_all, transfer_excess
from host_ctl.attribute.gates import Gates, Grants, find_gates, find_grants, send_actions
from host_ctl.attribute.needs import Sharing, learn_needs, share_needs
from host_ctl.attribute.program import Program
from host_ctl.attribute.roles import find_sharing
from host_ctl.attribute.states import state_stretches
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.repairs import mend
from host_ctl.reconstruct.transfers import Traffic


@dataclass(frozen=True, slots=True)
class Attribution:
    """One job's attribution; ``gates`` and ``grants`` by lane, ``charges`` and ``repairs`` by time."""

    traffic: Traffic
    program: Program
    repairs: Table
    sharing: Sharing
    gates: tuple[Gates, ...]
    grants: tuple[Grants, ...]
    slow_ns: NDArray[np.int64]
    charges: Table

    def stretches(self) -> tuple[Table, ...]:
        """The states of every lane over time (STRETCH), each lane's in order of time."""
        found = state_stretches(self.traffic, self.program, self.gates, self.sharing, self.repairs)
        return tuple(part[np.argsort(part["start"], kind="stable")] for part in found)


def attribute(traffic: Traffic, program: Program) -> Attribution:
    """The same stages as the analysis itself goes through."""
    traffic, repairs = mend(traffic)
    actions = send_actions(traffic, program)
    own = learn_needs(actions, program.arrivals, traffic)
    sharing = find_sharing(program, own.needs)
    needs = share_needs(own, actions, program.arrivals, sharing)
    gates, grants = find_gates(traffic, program, needs, sharing), find_grants(traffic, program, sharing)
    slow_ns = transfer_excess(traffic, program, sharing)
    charges = charge_all(traffic, program, gates, grants, sharing, repairs, slow_ns)
    return Attribution(traffic, program, repairs, sharing, gates, grants, slow_ns, charges)
