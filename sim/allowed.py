# SPDX-License-Identifier: Apache-2.0
"""What a report must and may say of each fault; which machine it may name follows from the culprit."""

from __future__ import annotations

from dataclasses import dataclass

from sim.spec import FaultKind


@dataclass(frozen=True, slots=True)
class Allowed:
    """Allowed severities, causes and scopes, the best first; ``separable`` = the right machine is expected.

    The severity ``none`` stands for a report without a verdict.
    """

    severities: tuple[str, ...]
    causes: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    separable: bool = False


def _slow(causes: tuple[str, ...], *scopes: str) -> Allowed:
    return Allowed(("fail_slow",), causes, scopes, separable=True)


def _stop(causes: tuple[str, ...], *scopes: str) -> Allowed:
    return Allowed(("fail_stop",), causes, scopes, separable=True)


def _shared(causes: tuple[str, ...], *scopes: str) -> Allowed:
    """Something is wrong, and no machine is to blame."""
    return Allowed(("fail_slow",), causes, scopes)


def _remark(cause: str, scope: str = "none") -> Allowed:
    return Allowed(("notice", "none"), (cause,), (scope,))


ALLOWED: dict[FaultKind, Allowed] = {
    FaultKind.SLOW_COMPUTE: _slow(("compute_slow",), "gpu", "machine"),
    FaultKind.POWER_CAP: _slow(("compute_slow",), "gpu", "machine"),
    FaultKind.SLOW_MEMORY: _slow(("compute_slow",), "gpu", "machine"),
    FaultKind.SLOW_NVLINK: _slow(("compute_slow",), "machine"),
    FaultKind.SLOW_PCIE: _slow(("nic_slow", "receiver_slow"), "nic"),
    FaultKind.SLOW_NIC: _slow(("nic_slow", "link_slow"), "nic", "link"),
    FaultKind.SLOW_RECEIVER: _slow(("receiver_slow", "nic_slow"), "nic", "machine"),
    FaultKind.PACKET_LOSS: _slow(("link_loss",), "nic", "link"),
    FaultKind.LINK_DOWN: _stop(("link_down", "nic_dead"), "nic", "link"),
    FaultKind.LINK_FLAP: Allowed(
        ("fail_slow", "notice"), ("link_down", "nic_dead"), ("nic", "link"), separable=True
    ),
    FaultKind.NIC_DEAD: _stop(("nic_dead", "link_down"), "nic"),
    FaultKind.HANG: _stop(("hang", "crash"), "machine", "gpu"),
    FaultKind.CRASH: _stop(("crash", "nic_dead"), "machine"),
    FaultKind.OP_MISMATCH: _stop(("op_mismatch", "hang"), "machine", "gpu"),
    FaultKind.CPU_CONTENTION: _slow(("cpu_contention", "compute_slow"), "machine"),
    FaultKind.MEMORY_PRESSURE: _slow(("cpu_contention", "compute_slow"), "machine"),
    FaultKind.INPUT_STALL: _slow(("input_stall", "compute_slow"), "machine", "gpu"),
    FaultKind.FABRIC_LOSS: _shared(("link_loss",), "link", "path"),
    FaultKind.CONGESTION: _shared(("congestion",), "path"),
    FaultKind.PATH_COLLISION: _shared(("path_collision", "congestion"), "path"),
    FaultKind.SWITCH_PORT: _shared(("switch_port", "link_slow", "congestion"), "path"),
    FaultKind.RANDOM_PAUSES: _remark("random_pauses"),
    FaultKind.PERIODIC_PAUSE: _remark("periodic_pause"),
    FaultKind.IMBALANCE: _remark("data_imbalance"),
    FaultKind.STAGE_IMBALANCE: _remark("stage_imbalance", "stage"),
    FaultKind.CLOCK_ERROR: Allowed(("none",)),
}
