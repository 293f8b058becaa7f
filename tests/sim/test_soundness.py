# SPDX-License-Identifier: Apache-2.0
"""What no tap may ever show, whatever travels as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pulse_native import PacketBatch
from sim.scenarios.catalogue import Order, build
from sim.scenarios.presets import DEFAULT_CLUSTER
from sim.simulate import simulate
from sim.spec import FaultKind, FaultSpec, JobSpec, Scenario

_FIRST_RESPONSE = 0x11
_PSNS = 1 << 24


class Packets:
    """Everything that the taps captured, parsed, by NIC."""

    def __init__(self) -> None:
        self._parts: dict[int, list[np.ndarray]] = {}

    def take(self, nic: int, batch: PacketBatch) -> None:
        if len(batch):
            self._parts.setdefault(nic, []).append(batch.parse())

    def close(self, end_ns: int) -> None:
        pass

    def of(self, nic: int) -> np.ndarray:
        return np.concatenate(self._parts[nic])

    @property
    def nics(self) -> list[int]:
        return sorted(self._parts)


def flows(packets: np.ndarray) -> list[np.ndarray]:
    """Requests of every flow, in the order of capture."""
    requests = packets[packets["opcode"] < _FIRST_RESPONSE]
    keys = requests["dest_qpn"].astype(np.int64) << 32 | requests["dst"][:, 12:].view(">u4").ravel()
    return [requests[keys == key] for key in np.unique(keys)]


def test_no_connection_overtakes_itself_where_its_rate_is_cut_between_trains() -> None:
    site = replace(DEFAULT_CLUSTER, machines=4, nics_per_machine=2)
    sink = Packets()
    outcome = simulate(build(Order("gpu_slow", 3, site, "tree", 8)), sink)
    assert outcome.simulation.counters["notifications"] > 0
    for nic in sink.nics:
        for flow in flows(sink.of(nic)):
            assert (np.diff(flow["psn"].astype(np.int64)) % _PSNS == 1).all()


@pytest.mark.parametrize("train_packets", [1, 8, 32])
@pytest.mark.parametrize("kind", [FaultKind.NIC_DEAD, FaultKind.LINK_DOWN])
@pytest.mark.parametrize("seed", range(4))
def test_nobody_receives_what_a_failed_nic_has_not_sent(
    kind: FaultKind, seed: int, train_packets: int
) -> None:
    job = JobSpec((0, 1, 2, 3), steps=4, collective_bytes=4 << 20, compute_ns=2_000_000)
    fault = FaultSpec(kind, 1, onset_step=2)
    sink = Packets()
    simulate(
        Scenario("dead", seed, 4, (job,), fault=fault, watch_ns=20_000_000, train_packets=train_packets), sink
    )
    mine = sink.of(1)
    own = _common(mine)
    sent = int((mine["src"] == own).all(axis=1).sum())
    arrived = sum(int((sink.of(nic)["src"] == own).all(axis=1).sum()) for nic in (0, 2, 3))
    assert 0 < arrived <= sent


def _common(packets: np.ndarray) -> np.ndarray:
    """The NIC's own address: the one at an end of every packet."""
    ends, counts = np.unique(np.concatenate([packets["src"], packets["dst"]]), axis=0, return_counts=True)
    own: np.ndarray = ends[np.argmax(counts)]
    return own
