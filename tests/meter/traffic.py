# SPDX-License-Identifier: Apache-2.0
"""Random RDMA traffic for property tests, as PACKET records."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpu_app.wire.records import PACKET

WRAP = 1 << 24
MTU = 1024

Packets = list[dict[str, Any]]


def packet(opcode: int, psn: int, **fields: Any) -> dict[str, Any]:
    """Return the fields of one packet; address and time come later."""
    return {"opcode": opcode, "psn": psn % WRAP, "payload_bytes": 0, "dma_bytes": 0, "immediate": 0, "msn": 0,
            "syndrome": 0, "ecn": 0, "ack_req": 0, **fields}  # fmt: skip


def write(psn: int, packets: int, immediate: int | None = None) -> Packets:
    """An RDMA WRITE of several packets."""
    body = [packet(0x07, psn + i, payload_bytes=MTU) for i in range(packets)]
    body[0] |= {"opcode": 0x06, "dma_bytes": (packets - 1) * MTU + 700}
    body[-1] |= {"opcode": 0x08, "payload_bytes": 700, "ack_req": 1}
    if immediate is not None:
        body[-1] |= {"opcode": 0x09, "immediate": immediate}
    return body


def send(psn: int, packets: int) -> Packets:
    """A SEND of several packets."""
    body = [packet(0x01, psn + i, payload_bytes=MTU) for i in range(packets)]
    body[0] |= {"opcode": 0x00}
    body[-1] |= {"opcode": 0x02, "payload_bytes": 5, "ack_req": 1}
    return body


def response(psn: int, packets: int) -> Packets:
    """The response of a READ."""
    if packets == 1:
        return [packet(0x10, psn, payload_bytes=MTU)]
    body = [packet(0x0E, psn + i, payload_bytes=MTU) for i in range(packets)]
    body[0] |= {"opcode": 0x0D}
    body[-1] |= {"opcode": 0x0F}
    return body


def damage(body: Packets, kind: str, at: int) -> Packets:
    """What a view shows of `body` when the path or the capture misbehaves at index `at`."""
    at %= len(body)
    if kind == "go_back":  # one packet lost before the view, then everything from there again
        return body[:at] + body[at + 1 :] + body[at:]
    if kind == "repeat":  # an ACK was lost: everything from `at` again
        return body + body[at:]
    if kind == "stutter":  # goes back before the message has ended
        return body[: at + 1] + body[at // 2 :]
    if kind == "swap" and at + 1 < len(body):
        return [*body[:at], body[at + 1], body[at], *body[at + 2 :]]
    if kind == "missing":  # lost by the capture alone
        return body[:at] + body[at + 1 :]
    return body


@st.composite
def flow_packets(draw: st.DrawFn) -> Packets:
    """All packets of one flow, in order."""
    start = draw(st.sampled_from([0, 5, 1000, WRAP - 3, WRAP - 40, WRAP // 2]))
    psn, answered = start, draw(st.integers(0, WRAP - 1))
    result: Packets = []
    for _ in range(draw(st.integers(1, 12))):
        action = draw(
            st.sampled_from(
                [
                    "write",
                    "send",
                    "only",
                    "control",
                    "atomic",
                    "read",
                    "response",
                    "ack",
                    "nak",
                    "cnp",
                    "restart",
                ]
            )
        )
        count = draw(st.integers(2, 6))
        kind = draw(st.sampled_from(["", "", "", "go_back", "repeat", "stutter", "swap", "missing"]))
        body: Packets = []
        if action == "write":
            body = write(psn, count, draw(st.none() | st.integers(0, 2**32 - 1)))
        elif action == "send":
            body = send(psn, count)
        elif action == "only":
            body = [
                packet(0x0A, psn, payload_bytes=MTU, dma_bytes=MTU),
                packet(0x04, psn + 1, payload_bytes=900),
            ]
        elif action == "control":
            body = [packet(0x0A, psn, payload_bytes=64, dma_bytes=64), packet(0x0B, psn + 1, immediate=count)]
        elif action == "atomic":
            body = [packet(0x13, psn), packet(0x14, psn + 1)]
        elif action == "response":
            answered += draw(st.integers(0, 3))
            result += damage(response(answered, count - 1), kind, count)
            answered += count - 1
        elif action == "ack":
            acked = draw(st.integers(-3, 3))
            result.append(packet(0x11, answered + acked, msn=draw(st.integers(0, 20)), syndrome=0x1F))
        elif action == "nak":
            syndrome = draw(st.sampled_from([0x20, 0x60, 0x61, 0x62, 0x63, 0x64]))
            result.append(packet(0x11, answered, msn=draw(st.integers(0, 20)), syndrome=syndrome))
        elif action == "cnp":
            result.append(packet(0x81, 0))
        if action == "read":
            taken = draw(st.sampled_from([1, 3, 6000]))
            result.append(packet(0x0C, psn, dma_bytes=taken * 256))
            psn += taken
        elif action == "restart":  # the life before must have been longer than a go-back
            result.append(packet(0x0C, psn, dma_bytes=6000 * 256))
            result.append(packet(0x0B, psn + 6000, immediate=1))
            psn = start + 2
            result += write(start, 2)
        elif body:
            result += damage(body, kind, draw(st.integers(0, 7)))
            psn += len(body)
    return result


@st.composite
def traffic(draw: st.DrawFn) -> NDArray[np.void]:
    """Several flows, mixed, in order of time."""
    flows = draw(st.lists(flow_packets().filter(bool), min_size=1, max_size=4))
    queues = [(number, list(packets)) for number, packets in enumerate(flows)]
    pause = st.sampled_from([0, 1, 300, 7_000, 40_000, 60_000, 2_000_000, 1_500_000_000, 11_000_000_000])
    ns = draw(st.integers(0, 10**6)) + 1_700_000_000_000_000_000
    rows: Packets = []
    while queues:
        number, packets = queues[draw(st.integers(0, len(queues) - 1))]
        run = draw(st.integers(1, 8))
        for _ in range(min(run, len(packets))):
            rows.append(
                packets.pop(0) | {"ns": ns, "flow": number, "ecn": draw(st.sampled_from([0, 2, 2, 3]))}
            )
            ns += draw(pause) if draw(st.integers(0, 3)) == 0 else 250
        queues = [queue for queue in queues if queue[1]]
    return to_records(rows)


def to_records(rows: Packets) -> NDArray[np.void]:
    """Return PACKET records of packets with `ns` and `flow`."""
    records = np.zeros(len(rows), PACKET)
    for record, row in zip(records, rows, strict=True):
        for name, value in row.items():
            if name != "flow":
                record[name] = value
        record["src"][10:] = [255, 255, 10, 0, 0, 1 + row["flow"] % 2]
        record["dst"][10:] = [255, 255, 10, 0, 0, 2 - row["flow"] % 2]
        record["dest_qpn"] = 100 + row["flow"]
        record["wire_bytes"] = row["payload_bytes"] + 58
        record["family"] = 4
    return records
