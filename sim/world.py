# SPDX-License-Identifier: Apache-2.0
"""The assembled simulation: machines, rails, connections, jobs, all driven by one event loop."""

from __future__ import annotations

from functools import partial

import numpy as np

from sim.communicators import Communicator
from sim.compute import ComputeModel
from sim.events import EventLoop
from sim.lanes import HostThread, Lane
from sim.network import Address, Fabric, Nic
from sim.ranks import Coupling, Rank
from sim.spec import FaultKind, JobSpec, Scenario, Workload, stream
from sim.transport import QueuePair
from sim.workloads import Part, program

START_NS = 30_000_000


class World:
    """Everything that exists in one run of a scenario.

    ``ranks`` are numbered machine-major: rank = machine x NICs + rail.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.loop = EventLoop()
        seed = scenario.seed
        self.fabrics = [
            Fabric(self.loop, scenario.network, stream(seed, "uplinks", rail))
            for rail in range(scenario.nics_per_machine)
        ]
        self._qpn_next: dict[int, int] = {}
        self.shared_sport = bool(stream(seed, "sport").random() < 0.5)
        self.nics: list[Nic] = []
        for machine in range(scenario.machines):
            for rail in range(scenario.nics_per_machine):
                self.nics.append(self.add_nic(machine, rail))
        self.lanes: list[Lane] = []
        machine_of_rank = [nic.address.machine for nic in self.nics]
        self.compute = ComputeModel(seed, scenario.noise, machine_of_rank)
        self.ranks = [self._make_rank(number, nic) for number, nic in enumerate(self.nics)]
        self.parts: dict[int, Part] = {}
        self.onsets_ns: dict[FaultKind, int] = {}
        self.candidates: list[int] = []  # machines at the ends of a fault that is nobody's own
        self.recovery_ns: int | None = None
        for number, job in enumerate(scenario.jobs):
            self._place_job(number, job)

    # ---- construction

    def add_nic(self, machine: int, rail: int, external: bool = False) -> Nic:
        """A new NIC on the rail's fabric; an external one belongs to no captured machine."""
        scenario = self.scenario
        rng = stream(scenario.seed, "nic", machine, rail, int(external))
        shared = stream(scenario.seed, "addresses")
        subnet = (10 << 24) | (int(shared.integers(1, 250)) << 16) | (int(shared.integers(0, 100)) << 8)
        host = int(shared.integers(1, 60)) + machine
        oui = (b"\xb8\x3f\xd2", b"\x04\x3f\x72", b"\x94\x6d\xae", b"\xa0\x88\xc2")[int(shared.integers(0, 4))]
        ipv6 = b"\xfd" + shared.bytes(5) + bytes([0, rail]) + bytes(6) + host.to_bytes(2, "big")
        address = Address(machine, rail, oui + rng.bytes(3), subnet + (rail << 8) + host, ipv6, external)
        fetch_ns = rng.exponential(scenario.transport.fetch_jitter_ns, 4093).astype(np.int64).tolist()
        nic = Nic(self.loop, address, scenario.network, scenario.transport.quantum_packets, fetch_ns)
        nic.next_ip_id = int(rng.integers(0, 1 << 16))
        self._qpn_next[id(nic)] = int(rng.integers(0x40, 0x4000))
        network = scenario.network
        block = min(machine * network.leaves // scenario.machines, network.leaves - 1)
        self.fabrics[rail].attach(nic, machine % network.leaves if network.interleaved else block)
        return nic

    def _make_rank(self, number: int, nic: Nic) -> Rank:
        host = HostThread(self.loop, self.scenario.stack, stream(self.scenario.seed, "proxy", number))
        rank = Rank(self.loop, number, -1, -1, nic, host, self.scenario.stack)
        rank.compute_time = partial(self.compute.duration_ns, number)
        rank.pause_time = partial(self.compute.pause_ns, number)
        return rank

    def connect(self, a: Nic, b: Nic, label: str, number: int = 0) -> tuple[QueuePair, QueuePair]:
        """A new connection between two NICs of one rail."""
        rng = stream(
            self.scenario.seed, "pair", a.address.machine, b.address.machine, a.address.rail, label, number
        )
        sports = rng.integers(49_152, 65_536, 2)
        ends = []
        for place, nic in enumerate((a, b)):
            qpn = self._qpn_next[id(nic)]
            self._qpn_next[id(nic)] = qpn + 1 + int(rng.random() < 0.1)
            start_psn = 0 if self.scenario.transport.zero_start_psn else int(rng.integers(0, 1 << 24))
            sport = int(sports[0 if self.shared_sport else place])
            pair_rng = stream(self.scenario.seed, "ack", nic.address.machine, nic.address.rail, qpn)
            ends.append(QueuePair(self.loop, nic, qpn, sport, start_psn, self.scenario.transport, pair_rng))
        ends[0].connect(ends[1])
        return ends[0], ends[1]

    def make_lane(self, sender: int, receiver: int, kind: str, channel: int) -> Lane:
        """A lane between two ranks with its queue pairs."""
        a, b = self.ranks[sender], self.ranks[receiver]
        pairs = [
            self.connect(a.nic, b.nic, f"{kind}{channel}", number)
            for number in range(self.scenario.stack.qps_per_lane)
        ]
        for end_a, end_b in pairs:
            end_a.on_error = partial(self._connection_failed, a)
            end_b.on_error = partial(self._connection_failed, b)
        rng = stream(self.scenario.seed, "lane", sender, receiver, kind, channel)
        lane = Lane(
            self.loop, self.scenario.stack, sender, receiver, (a.host, b.host), pairs, kind, channel, rng
        )
        self.lanes.append(lane)
        return lane

    @staticmethod
    def _connection_failed(rank: Rank, queue_pair: QueuePair) -> None:
        rank.errors.append(f"qp {queue_pair.qpn}: retry limit reached")
        rank.stop()

    def _place_job(self, number: int, job: JobSpec) -> None:
        rails = self.scenario.nics_per_machine
        if job.workload is Workload.NONE:
            return
        couplings = {machine: Coupling(self.loop, rails) for machine in job.machines}
        for rail in range(rails):
            members = [machine * rails + rail for machine in job.machines]
            group = Communicator(f"job{number}.rail{rail}", members, self.scenario.stack, self.make_lane)
            stage_groups = self._stage_groups(number, rail, job, members, group)
            for position, member in enumerate(members):
                rank = self.ranks[member]
                rank.job, rank.job_rank = number, position * rails + rail
                rank.coupling = couplings[job.machines[position]]
                stage_group = stage_groups[position] if job.stages > 1 else None
                part = Part(
                    job, self.scenario.seed + 7919 * number, position, rail, group, stage_group, rails > 1
                )
                self.parts[member] = part
                begin = START_NS + int(stream(self.scenario.seed, "begin", member).integers(0, 3_000_000))
                rank.begin(program(part), begin)

    def _stage_groups(
        self, number: int, rail: int, job: JobSpec, members: list[int], whole: Communicator
    ) -> list[Communicator]:
        """The data-parallel group of each position: its stage's replicas, or the whole job if alone."""
        replicas = len(members) // job.stages
        if replicas == 1:
            return [whole] * len(members)
        groups = [
            Communicator(
                f"job{number}.rail{rail}.stage{stage}",
                members[stage * replicas : (stage + 1) * replicas],
                self.scenario.stack,
                self.make_lane,
            )
            for stage in range(job.stages)
        ]
        return [groups[position // replicas] for position in range(len(members))]

    # ---- running

    @property
    def training_ranks(self) -> list[Rank]:
        """Ranks that have a job."""
        return [rank for rank in self.ranks if rank.job >= 0]

    @property
    def onset_ns(self) -> int | None:
        """When the first fault took hold."""
        return min(self.onsets_ns.values(), default=None)

    def mark_onset(self, kind: FaultKind) -> None:
        """The fault takes hold now."""
        self.onsets_ns.setdefault(kind, self.loop.now)

    def run(self, stops_job: bool) -> int:
        """Run to the end of all jobs, or ``watch_ns`` past the onset when the fault stops them.

        Returns the true time at which the capture ends.
        """
        watch = self.scenario.watch_ns
        limit = START_NS + self._longest_ns()

        def busy() -> bool:
            if stops_job and self.onset_ns is not None and self.loop.now > self.onset_ns + watch:
                return False
            return not all(rank.finished for rank in training)

        training = self.training_ranks
        if training:
            self.loop.run_while(busy, limit)
        else:
            self.loop.run(START_NS + watch)
        tail = int(stream(self.scenario.seed, "tail").integers(5_000_000, 30_000_000))
        end = self.loop.now + tail
        if stops_job and self.onset_ns is not None:
            end = max(end, self.onset_ns + watch)
        self.loop.run(end)
        return end

    def _longest_ns(self) -> int:
        """A generous bound on the run time, so that a job that never ends is cut off."""
        jobs = self.scenario.jobs
        per_step = max(
            job.compute_ns + 200 * int(job.collective_bytes * 8 / self.scenario.network.rate_gbps)
            for job in jobs
        )
        pauses = max((job.pause_ns for job in jobs), default=0)
        steps = max(job.steps for job in jobs) + 2
        return steps * (5 * per_step + pauses) + 20 * self.scenario.transport.timeout_ns * steps
