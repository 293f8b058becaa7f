# SPDX-License-Identifier: Apache-2.0
"""NIC series and traffic made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire import records
from host_ctl.align.clock import Alignment
from host_ctl.ingest.local import packed_address
from host_ctl.ingest.series import NicSeries
from host_ctl.reconstruct.groups import Group, find_groups
from host_ctl.reconstruct.jobs import Job, find_jobs
from host_ctl.reconstruct.strands import find_strands
from host_ctl.reconstruct.transfers import MISSING, TRANSFER, Endpoint, Link, Traffic

EPOCH_NS = 1_700_000_000_000_000_000


def table(dtype: np.dtype[Any], count: int, **columns: Any) -> NDArray[np.void]:
    """Rows of a record table; what is not given is zero."""
    rows = np.zeros(count, dtype)
    for name, values in columns.items():
        rows[name] = values
    return rows


def groups_of(made: Traffic) -> tuple[Group, ...]:
    """The groups that are found in traffic."""
    return find_groups(made, find_strands(made))


def jobs_of(made: Traffic) -> tuple[tuple[Job, ...], tuple[Group, ...]]:
    """The jobs that are found in traffic, and the groups set aside."""
    return find_jobs(made, find_strands(made))


def address(number: int) -> str:
    """The address of the n-th machine."""
    return f"10.0.0.{number + 1}"


def flow(index: int, src: int, dst: int, qpn: int, **columns: Any) -> NDArray[np.void]:
    """One row of a flow table."""
    row = table(records.FLOW, 1, flow=index, dest_qpn=qpn, reverse_flow=records.NO_FLOW, **columns)
    row["src"] = np.frombuffer(packed_address(address(src)), "u1")
    row["dst"] = np.frombuffer(packed_address(address(dst)), "u1")
    return row


def series(
    number: int,
    flows: Sequence[NDArray[np.void]],
    markers: Sequence[NDArray[np.void]] = (),
    *,
    addresses: Sequence[str] | None = None,
    ack_cells: Sequence[tuple[int, int, int]] = (),
) -> NicSeries:
    """What the n-th machine saw; ``ack_cells`` are (flow, cell, count) of its data-to-ACK histogram."""
    joined = np.concatenate(markers) if len(markers) else table(records.MARKER, 0)
    joined = joined[np.argsort(joined["ns"], kind="stable")]
    cells = table(records.HISTOGRAM, len(ack_cells), kind=records.HistogramKind.ACK_NS)
    for row, (index, cell, count) in zip(cells, ack_cells, strict=True):
        row["flow"], row["cell"], row["count"] = index, cell, count
    first = int(joined["ns"].min()) if len(joined) else 0
    last = int(joined["ns"].max()) if len(joined) else 0
    return NicSeries(
        machine=f"node{number}",
        nic="",
        addresses=(address(number),) if addresses is None else tuple(addresses),
        mode="all",
        flows=np.concatenate(flows) if len(flows) else table(records.FLOW, 0),
        messages=table(records.MESSAGE, 0),
        controls=table(records.CONTROL, 0),
        markers=joined,
        events=table(records.EVENT, 0),
        ack_histogram=cells,
        packets=len(joined),
        lost=0,
        first_ns=first,
        last_ns=last,
        witness_ns=last,
    )


def traffic(nodes: int, sends: dict[tuple[int, int], Sequence[tuple[int, int]]]) -> Traffic:
    """Traffic of captured machines: per directed pair, when each message left and when it had arrived."""
    edges = tuple(sends)
    parts, links = [], []
    for index, (pair, times) in enumerate(sends.items()):
        rows = table(TRANSFER, len(times), link=index, edge=index, bytes=1000, position=np.arange(len(times)))
        when = np.array(times, dtype=np.int64).reshape(-1, 2)
        rows["tx_start"], rows["rx_end"] = when[:, 0], when[:, 1]
        rows["tx_end"], rows["rx_start"] = (when[:, 0] + when[:, 1]) // 2, (when[:, 0] + when[:, 1]) // 2
        rows["credit_tx"] = rows["credit_rx"] = MISSING
        parts.append(rows)
        links.append(Link(*pair, 16 + index, None, None, None, None, None, None, index, 0, 0))
    return Traffic(
        endpoints=tuple(Endpoint(f"node{n}", None, (address(n),), None) for n in range(nodes)),
        series=(),
        clocks=(),
        links=tuple(links),
        edges=edges,
        transfers=np.concatenate(parts),
        credits=np.empty(0, np.dtype([("tx", "<i8"), ("rx", "<i8"), ("link", "<u4"), ("index", "<u4")])),
    )


@dataclass(frozen=True)
class Clocks:
    """True errors of the NICs' clocks: offset in ns at the epoch, drift in ppm."""

    offset_ns: NDArray[np.int64]
    drift_ppm: NDArray[np.float64]

    def stamp(self, nic: int, since_epoch_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """What a NIC stamps at these times."""
        drifted = np.rint(since_epoch_ns * self.drift_ppm[nic] * 1e-6).astype(np.int64)
        return EPOCH_NS + since_epoch_ns + self.offset_ns[nic] + drifted

    def error_ns(self, alignment: Alignment, nic: int, span_ns: int) -> float:
        """The largest difference, over the span, of a NIC's corrected clock from that of the first NIC."""
        at = np.linspace(0, span_ns, 50).astype(np.int64)
        common = alignment.clocks[nic].to_common(self.stamp(nic, at))
        return float(np.abs(common - alignment.clocks[0].to_common(self.stamp(0, at))).max())


def captured(
    clocks: Clocks,
    edges: dict[tuple[int, int], int],
    *,
    seed: int,
    span_ns: int,
    packets: int = 400,
    queue_ns: float = 3000.0,
    own_address: bool = True,
) -> list[NicSeries]:
    """What NICs see of packets over ``edges`` (sender, receiver) -> least delay in ns."""
    rng = np.random.default_rng(seed)
    n = len(clocks.offset_ns)
    flows: list[list[NDArray[np.void]]] = [[] for _ in range(n)]
    markers: list[list[NDArray[np.void]]] = [[] for _ in range(n)]
    for qpn, ((a, b), delay) in enumerate(edges.items()):
        sent = np.sort(rng.integers(0, span_ns, packets))
        # Some packets meet no queue, most do.
        queue = rng.exponential(queue_ns, packets) * (rng.random(packets) < 0.8)
        for nic, when in ((a, sent), (b, sent + delay + queue.astype(np.int64))):
            index = len(flows[nic])
            flows[nic].append(flow(index, a, b, qpn, packets=packets))
            markers[nic].append(
                table(
                    records.MARKER,
                    packets,
                    ns=clocks.stamp(nic, when),
                    flow=index,
                    psn=np.arange(packets) * 16 + 5,
                    kind=records.MarkerKind.FIRST,
                )
            )
    return [series(i, flows[i], markers[i], addresses=None if own_address else ()) for i in range(n)]


def both_ways(n: int, delay_ns: int) -> dict[tuple[int, int], int]:
    """Neighbours of a ring, data one way and something the other way."""
    return {pair: delay_ns for i in range(n) for pair in ((i, (i + 1) % n), ((i + 1) % n, i))}
