# SPDX-License-Identifier: Apache-2.0
"""Compares what simulated packets look like with captures of real RDMA traffic, distribution by distribution.

Measured on packets alone, by the same code on both sides, so that a difference is one of the traffic.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.frame import CaptureMode
from host_ctl.ingest.capture_file import CaptureFile
from host_ctl.ingest.series import Table
from sim.output.run import run_scenario
from sim.spec import JobSpec, NetworkSpec, NoiseSpec, Scenario, StackSpec, TransportSpec

QUANTILES = (0.1, 0.5, 0.9, 0.99)

_ACK = 0x11
_NAK = 0x60
_FIRSTS = (0x00, 0x06)
_LASTS = (0x02, 0x03, 0x08, 0x09)
_MIDDLES = (0x01, 0x07)
_CREDIT_BYTES = 256
_HALF_PSN = 1 << 23
_PSN_MASK = 0xFFFFFF

# What is kept of a packet; addresses become small numbers.
_SEEN = np.dtype(
    [
        ("ns", "<i8"),
        ("src", "<i4"),
        ("dst", "<i4"),
        ("payload_bytes", "<u4"),
        ("dest_qpn", "<u4"),
        ("psn", "<u4"),
        ("dma_bytes", "<u4"),
        ("opcode", "u1"),
        ("syndrome", "u1"),
        ("outcome", "u1"),
    ]
)

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Samples:
    """Everything measured on the captures of one job; lists of arrays, one per flow or NIC."""

    packets_per_ack: list[Floats] = field(default_factory=list)
    ack_delay_us: list[Floats] = field(default_factory=list)
    credit_after_slot_us: list[Floats] = field(default_factory=list)
    data_after_credit_us: list[Floats] = field(default_factory=list)
    packet_gap_us: list[Floats] = field(default_factory=list)
    message_gap_us: list[Floats] = field(default_factory=list)
    repeats_per_million: list[Floats] = field(default_factory=list)
    naks_per_million: list[Floats] = field(default_factory=list)

    def table(self) -> dict[str, list[float]]:
        """Quantiles of each distribution."""
        names = self.__dataclass_fields__
        joined = {name: np.concatenate(getattr(self, name) or [np.zeros(0)]) for name in names}
        return {
            name: [round(float(q), 3) for q in np.quantile(values, QUANTILES)] if len(values) else []
            for name, values in joined.items()
        }


def measure(paths: Iterable[Path]) -> Samples:
    """Measure all captures of one job, each at its own NIC's tap."""
    samples = Samples()
    for path in paths:
        packets = _packets(path)
        if len(packets):
            _measure_nic(packets, samples)
    return samples


def _packets(path: Path) -> Table:
    parts = [batch.parse() for batch in CaptureFile(path, CaptureMode()).batches()]
    if not parts:
        return np.zeros(0, dtype=_SEEN)
    packets = np.concatenate(parts)
    packets = packets[packets["outcome"] == 0]
    seen = np.zeros(len(packets), dtype=_SEEN)
    for name in set(_SEEN.names or ()) - {"src", "dst"}:
        seen[name] = packets[name]
    ends = [np.ascontiguousarray(packets[name]).view("S16").ravel() for name in ("src", "dst")]
    _, number = np.unique(np.concatenate(ends), return_inverse=True)
    seen["src"], seen["dst"] = np.split(number, 2)
    return seen


def _measure_nic(packets: Table, samples: Samples) -> None:
    # Every packet of a NIC's capture has the NIC's address at one end: the one that all packets share.
    own = int(np.argmax(np.bincount(np.concatenate([packets["src"], packets["dst"]]))))
    received = packets["dst"] == own
    total = max(1, int((packets["payload_bytes"] > 0).sum()))
    repeats = 0
    requests = packets[packets["opcode"] < _ACK]
    for key in np.unique(requests[["src", "dst", "dest_qpn"]]):
        same = (requests["src"] == key["src"]) & (requests["dst"] == key["dst"])
        flow = requests[same & (requests["dest_qpn"] == key["dest_qpn"])]
        step = _psn_steps(flow["psn"])
        if key["src"] == own:
            repeats += int((step < 0).sum())
        _measure_gaps(flow, step, samples)
    samples.repeats_per_million.append(np.array([1e6 * repeats / total]))
    naks = packets[(packets["opcode"] == _ACK) & ((packets["syndrome"] & 0xE0) == _NAK)]
    samples.naks_per_million.append(np.array([1e6 * len(naks) / total]))
    _measure_acks(packets[received], packets[~received], samples)
    _measure_credits(packets, received, samples)


def _psn_steps(psn: NDArray[np.uint32]) -> NDArray[np.int64]:
    wide = psn.astype(np.int64)
    step: NDArray[np.int64] = (wide[1:] - wide[:-1]) & _PSN_MASK
    signed: NDArray[np.int64] = np.where(step >= _HALF_PSN, step - (1 << 24), step)
    return signed


def _measure_gaps(requests: Table, step: NDArray[np.int64], samples: Samples) -> None:
    """Gaps between packets of one message, and between the end of a message and the next one's start."""
    gap_us = np.diff(requests["ns"]) / 1e3
    opcode = requests["opcode"]
    inside = np.isin(opcode[1:], (*_MIDDLES, *_LASTS)) & (step == 1)
    samples.packet_gap_us.append(gap_us[inside])
    data = requests["dma_bytes"] > _CREDIT_BYTES
    between = np.isin(opcode[1:], _FIRSTS) & data[1:] & (step == 1)
    samples.message_gap_us.append(gap_us[between])


def _measure_acks(received: Table, sent: Table, samples: Samples) -> None:
    """At the receiver's tap: how many packets an ACK answers, and how long after the last it leaves."""
    for peer in np.unique(received["src"]):
        acks = sent[(sent["dst"] == peer) & (sent["opcode"] == _ACK) & (sent["syndrome"] < 0x20)]
        data = received[(received["src"] == peer) & (received["opcode"] < _ACK)]
        for qpn in np.unique(acks["dest_qpn"]):
            mine = acks[acks["dest_qpn"] == qpn]
            flow = _flow_answered(data, mine)
            if flow is None:
                continue
            step = _psn_steps(mine["psn"])
            samples.packets_per_ack.append(step[step > 0].astype(np.float64))
            order = np.argsort(flow["psn"], kind="stable")
            at = np.searchsorted(flow["psn"][order], mine["psn"])
            found = at < len(order)
            rows = order[at[found]]
            hit = flow["psn"][rows] == mine["psn"][found]
            delay = (mine["ns"][found][hit] - flow["ns"][rows[hit]]) / 1e3
            samples.ack_delay_us.append(delay[delay > 0].astype(np.float64))


def _flow_answered(data: Table, acks: Table) -> Table | None:
    """The flow whose PSNs the ACKs name: the one with most of them, if that is nearly all."""
    best, share = None, 0.9
    for qpn in np.unique(data["dest_qpn"]):
        flow = data[data["dest_qpn"] == qpn]
        hits = float(np.isin(acks["psn"], flow["psn"]).mean())
        if hits > share:
            best, share = flow, hits
    return best


def _measure_credits(packets: Table, received: NDArray[np.bool_], samples: Samples) -> None:
    """From a slot's end to the next credit of that pair of NICs, and from a credit to the next data."""
    peer = np.where(received, packets["src"], packets["dst"])
    small = (packets["dma_bytes"] > 0) & (packets["dma_bytes"] <= _CREDIT_BYTES) & (packets["opcode"] < _ACK)
    first = np.isin(packets["opcode"], _FIRSTS) & (packets["dma_bytes"] > _CREDIT_BYTES)
    last = np.isin(packets["opcode"], _LASTS)
    for one in np.unique(peer):
        here = peer == one
        ns = packets["ns"]
        slots, granted = ns[here & received & last], ns[here & ~received & small]
        samples.credit_after_slot_us.append(_delay_to_next(slots, granted))
        grants, data = ns[here & received & small], ns[here & ~received & first]
        samples.data_after_credit_us.append(_delay_to_next(grants, data))


def _delay_to_next(causes: NDArray[np.int64], effects: NDArray[np.int64]) -> Floats:
    """From each effect back to the latest cause before it."""
    if not len(causes) or not len(effects):
        return np.zeros(0)
    causes = np.sort(causes)
    at = np.searchsorted(causes, effects) - 1
    return np.asarray((effects[at >= 0] - causes[at[at >= 0]]) / 1e3, dtype=np.float64)


def softroce_twin() -> Scenario:
    """The Soft-RoCE job as the simulator would have it: four emulated machines with one busy CPU each.

    Rate, reaction times and their spread are set from medians of the captures; everything else follows.
    """
    job = JobSpec((0, 1, 2, 3), steps=30, collective_bytes=1 << 20, compute_ns=415_000_000)
    return Scenario(
        name="softroce-twin",
        seed=1,
        machines=4,
        jobs=(job,),
        network=NetworkSpec(rate_gbps=1.0, propagation_ns=2_000, switch_ns=3_000),
        transport=TransportSpec(
            coalesce_acks=False,
            ack_latency_ns=270_000,
            ack_jitter_ns=5_000_000,
            timeout_ns=1 << 32,
            fetch_jitter_ns=40_000,
        ),
        stack=StackSpec(proxy_ns=1_300_000, proxy_jitter_ns=8_000_000, reduce_bytes_per_ns=0.1),
        noise=NoiseSpec(jitter=0.03, static_spread=0.005, launch_ns=1_000_000),
    )


def report_reality(folders: Sequence[Path], *, twin: bool, as_json: bool) -> int:
    """Print one table per folder of captures, and one of the simulated twin if asked for; 0 = done."""
    tables = {folder.name: measure(sorted(folder.glob("*.pcap*"))).table() for folder in folders}
    if twin:
        with tempfile.TemporaryDirectory(prefix="pulse-twin-") as scratch:
            run_scenario(softroce_twin(), Path(scratch))
            tables["simulated twin"] = measure(sorted(Path(scratch).glob("*.pcap"))).table()
    if as_json:
        print(json.dumps({"quantiles": QUANTILES, "captures": tables}, indent=1))
        return 0
    head = " ".join(f"{f'p{q * 100:g}':>12}" for q in QUANTILES)
    for name, table in tables.items():
        print(f"{name}\n  {'':24}{head}")
        for metric, values in table.items():
            print(f"  {metric:24}" + " ".join(f"{v:12,.3f}" for v in values))
    return 0
