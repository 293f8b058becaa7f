# SPDX-License-Identifier: Apache-2.0
"""The meter on captures of real RDMA traffic, against what the programs that sent it know."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpu_app.wire.records import NO_FLOW, EventKind, MessageFlag
from pulse_native import CaptureReader, Interval, Meter, PacketBatch

CAPTURES = Path(__file__).parents[3] / "shared" / "data" / "softroce"
pytestmark = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="the Soft-RoCE captures are not beside the project"
)

STEPS, SLOT_BYTES = 744, 65536


def read(path: Path) -> PacketBatch:
    reader = CaptureReader()
    batch = reader.feed(gzip.decompress(path.read_bytes()))
    reader.finish()
    return batch


def measured(path: Path, **settings: Any) -> Interval:
    batch = read(path)
    meter = Meter(**settings)
    assert meter.update(batch) == len(batch)
    return meter.finish(int(batch.ns[0]), int(batch.ns[-1]) + 1)


def address(field: Any) -> str:
    return ".".join(str(byte) for byte in field[12:].tolist())


@pytest.mark.parametrize("node", range(4))
def test_every_edge_of_the_healthy_ring_moves_744_slots_and_as_many_credits(node: int) -> None:
    interval = measured(CAPTURES / "A_healthy_dp_1" / f"node{node}.pcap.gz")
    senders = interval.flows[interval.flows["messages"] > 0]
    receivers = interval.flows[interval.flows["messages"] == 0]
    assert senders["messages"].tolist() == [STEPS, STEPS]
    assert senders["controls"].tolist() == [STEPS, STEPS]  # zero-length immediates
    assert receivers["controls"].tolist() == [STEPS, STEPS]  # credits
    assert (interval.messages["bytes"] == SLOT_BYTES).all()
    assert (interval.messages["flags"] == MessageFlag.LENGTH_KNOWN).all()
    assert (interval.messages["packets"] == 16).all()
    immediates = (interval.controls["flags"] & MessageFlag.IMMEDIATE) != 0
    assert (interval.controls["bytes"][immediates] == 0).all()
    assert (interval.controls["bytes"][~immediates] == 64).all()
    assert len(interval.events) == 0


def test_loss_repeats_packets_but_no_message() -> None:
    interval = measured(CAPTURES / "D_loss_n2" / "node3.pcap.gz")
    sender = interval.flows[np.argmax(interval.flows["repeat_packets"])]
    assert address(sender["src"]) == "10.77.0.12"
    assert sender["messages"] == sender["controls"] == STEPS
    assert sender["repeat_packets"] > 1000
    assert sender["gap_psns"] == sender["late_packets"] > 50
    events = interval.events[interval.events["flow"] == sender["flow"]]
    assert events["count"][events["kind"] == EventKind.REPEAT].sum() == sender["repeat_packets"]


@pytest.mark.parametrize(
    "capture",
    ["A_healthy_dp_1", "D_loss_n2", "J_moe_slow_n1", "K_pp_healthy", "M_two_jobs_healthy", "R_tree_healthy"],
)
def test_every_acknowledged_connection_is_paired_and_no_pair_is_wrong(capture: str) -> None:
    truth = json.loads((CAPTURES / capture / "truth.json").read_text())
    peers = {
        (rank["ip"], pair["qpn"]): (pair["peer_ip"], pair["peer_qpn"])
        for rank in truth["ranks"]
        for pair in rank["qps"]
    }
    for path in sorted((CAPTURES / capture).glob("*.pcap.gz")):
        flows = {flow["flow"]: flow for flow in measured(path).flows}
        for flow in flows.values():
            if flow["acks"] > 10:
                assert flow["reverse_flow"] != NO_FLOW
            if flow["reverse_flow"] != NO_FLOW:
                reverse = flows[flow["reverse_flow"]]
                here = (address(flow["dst"]), int(flow["dest_qpn"]))
                assert peers[here] == (address(reverse["dst"]), int(reverse["dest_qpn"]))


def test_a_steered_view_gives_the_same_messages_and_controls() -> None:
    batch = read(CAPTURES / "A_healthy_dp_1" / "node0.pcap.gz")
    packets = batch.parse()
    full, steered = Meter(), Meter(steered=True)
    full.update_records(packets)
    steered.update_records(packets[packets["opcode"] != 0x07])  # without WRITE_MIDDLE
    begin, end = int(batch.ns[0]), int(batch.ns[-1]) + 1
    whole, part = full.finish(begin, end), steered.finish(begin, end)
    common = ["start_ns", "end_ns", "bytes", "flow", "psn", "opcode", "flags"]
    assert part.messages[common].tolist() == whole.messages[common].tolist()
    assert part.controls.tolist() == whole.controls.tolist()
    assert part.flows["data_bytes"].tolist() == whole.flows["data_bytes"].tolist()
    assert part.flows["reverse_flow"].tolist() == whole.flows["reverse_flow"].tolist()
    assert len(part.events) == 0
