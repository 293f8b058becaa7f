# SPDX-License-Identifier: Apache-2.0
"""From a scenario to a plan: NICs, connections, lanes and the compiled program of every rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from sim.planning.collectives import Operation
from sim.planning.commands import Begin, Command, Compute, Pause, Program, Start
from sim.planning.communicators import Communicator
from sim.planning.compute import ComputeModel
from sim.planning.fabric import Fabric
from sim.planning.plan import PS_PER_NS, PlanBuilder, ProgramCompiler
from sim.planning.workloads import Part, program
from sim.spec import CreditPolicy, CreditStyle, DataStyle, JobSpec, Scenario, Workload, stream

START_NS = 30_000_000
_BEGIN_SPREAD_NS = 3_000_000
_TURNS_PER_TRAIN = 4  # connections of one NIC take turns within less than a train
_CREDIT_STYLES = (CreditStyle.NONE, CreditStyle.WRITE, CreditStyle.SEND, CreditStyle.ATOMIC)
_LINK_AND_UDP_BYTES = 14 + 8
_VLAN_BYTES = 4


@dataclass(frozen=True, slots=True)
class NicInfo:
    """A NIC of the plan; an external one belongs to no machine that is captured."""

    number: int
    machine: int
    rail: int
    mac: bytes
    ipv4: int
    ipv6: bytes
    external: bool = False

    @property
    def name(self) -> str:
        """Machine and device, as reports name it."""
        return f"node{self.machine}/mlx5_{self.rail}"


@dataclass(slots=True)
class RankInfo:
    """One GPU: where it sits, which job it works for, and what it does in each step (-1 = warm-up)."""

    number: int
    machine: int
    gpu: int
    nic: int
    job: int = -1
    job_rank: int = -1
    compute_ns: dict[int, int] = field(default_factory=dict)
    pause_ns: dict[int, int] = field(default_factory=dict)
    operations: dict[int, list[Operation]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaneInfo:
    """A lane of the plan: ranks, what it is for, its connections (first, count)."""

    number: int
    sender: int
    receiver: int
    kind: str
    channel: int
    first_connection: int
    connections: int


class World:
    """The plan of a scenario while it grows, and what its numbers stand for.

    Ranks are numbered machine-major: rank = machine x GPUs + GPU; NICs likewise by rail.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.plan = PlanBuilder()
        self.fabric = Fabric(scenario.network, scenario.machines, stream(scenario.seed, "uplinks", 0))
        self.shared_sport = bool(stream(scenario.seed, "sport").random() < 0.5)
        self._qpn_next: dict[int, int] = {}
        self.nics: list[NicInfo] = []
        rails = scenario.nics_per_machine
        for machine in range(scenario.machines):
            for rail in range(rails):
                self.add_nic(machine, rail)
        self.gpus = rails * scenario.gpus_per_nic
        self.ranks = [
            RankInfo(machine * self.gpus + gpu, machine, gpu, machine * rails + gpu // scenario.gpus_per_nic)
            for machine in range(scenario.machines)
            for gpu in range(self.gpus)
        ]
        self.lanes: list[LaneInfo] = []
        self.compute = ComputeModel(scenario.seed, scenario.noise, [rank.machine for rank in self.ranks])
        self.parts: dict[int, Part] = {}
        for number, job in enumerate(scenario.jobs):
            self._place_job(number, job)

    # ---- devices

    def add_nic(self, machine: int, rail: int, external: bool = False) -> int:
        """A new NIC on a rail."""
        scenario = self.scenario
        rng = stream(scenario.seed, "nic", machine, rail, int(external))
        shared = stream(scenario.seed, "addresses")
        subnet = (10 << 24) | (int(shared.integers(1, 240)) << 16)
        host = int(shared.integers(1, 60)) + machine
        oui = (b"\xb8\x3f\xd2", b"\x04\x3f\x72", b"\x94\x6d\xae", b"\xa0\x88\xc2")[int(shared.integers(0, 4))]
        ipv6 = b"\xfd" + shared.bytes(5) + bytes([0, rail]) + bytes(6) + host.to_bytes(2, "big")
        number = len(self.nics)
        ipv4 = subnet + (rail << 12) + host
        self.nics.append(NicInfo(number, machine, rail, oui + rng.bytes(3), ipv4, ipv6, external))
        self._qpn_next[number] = int(rng.integers(0x40, 0x4000))
        network = scenario.network
        self.plan.add(
            "nics",
            8_000 / network.rate_gbps,
            (network.propagation_ns + network.switch_ns) * PS_PER_NS,
            network.switch_jitter_ns * PS_PER_NS,
            self.fabric.attach(machine, rail),
        )
        return number

    def connect(self, a: int, b: int, label: str, number: int = 0) -> int:
        """A new connection between two NICs; its ends are 2 x and 2 x + 1 of what is given back."""
        near, far = self.nics[a], self.nics[b]
        rng = stream(
            self.scenario.seed, "pair", near.machine, far.machine, near.rail, far.rail, label, number
        )
        sports = rng.integers(49_152, 65_536, 2)
        first_end = len(self.plan.rows["ends"])
        qpns = [self._take_qpn(nic, rng) for nic in (a, b)]
        zero = self.scenario.transport.zero_start_psn
        psns = [0 if zero else int(rng.integers(0, 1 << 24)) for _ in (a, b)]
        plane = self.fabric.choose_plane() if not self.fabric.same_leaf(a, b) else 0
        for place, (source, target) in enumerate(((a, b), (b, a))):
            sport = int(sports[0 if self.shared_sport else place])
            other = 1 - place
            self.plan.add("ends", source, target, qpns[other], psns[place], psns[other], sport)
            self.plan.add_path(self.fabric.path(source, target, plane))
        return first_end // 2

    def _take_qpn(self, nic: int, rng: np.random.Generator) -> int:
        qpn = self._qpn_next[nic]
        self._qpn_next[nic] = qpn + 1 + int(rng.random() < 0.1)
        return qpn

    def make_lane(self, sender: int, receiver: int, kind: str, channel: int) -> int:
        """A lane between two ranks with its connections."""
        a, b = self.ranks[sender], self.ranks[receiver]
        count = self.scenario.stack.qps_per_lane
        label = f"{kind}{channel}.{a.gpu}.{b.gpu}"
        first, *_ = [self.connect(a.nic, b.nic, label, number) for number in range(count)]
        rng = stream(self.scenario.seed, "lane", sender, receiver, kind, channel)
        address = int(rng.integers(0x7F00_0000, 0x7FFF_0000)) << 16
        key = int(rng.integers(1, 1 << 16)) << 8 | int(rng.integers(0, 256))
        slot_bytes = self.scenario.stack.slot_bytes
        number = self.plan.add("lanes", sender, receiver, first, count, slot_bytes, address, key)
        self.lanes.append(LaneInfo(number, sender, receiver, kind, channel, first, count))
        return number

    # ---- jobs

    def _place_job(self, number: int, job: JobSpec) -> None:
        if job.workload is Workload.NONE:
            return
        everyone = [machine * self.gpus + gpu for machine in job.machines for gpu in range(self.gpus)]
        whole = Communicator(f"job{number}", everyone, self.scenario.stack, self.make_lane)
        for gpu in range(self.gpus):
            members = [machine * self.gpus + gpu for machine in job.machines]
            group = Communicator(f"job{number}.gpu{gpu}", members, self.scenario.stack, self.make_lane)
            stages = self._stage_groups(number, gpu, job, members, group)
            for position, member in enumerate(members):
                rank = self.ranks[member]
                rank.job, rank.job_rank = number, position * self.gpus + gpu
                if job.workload is Workload.REPLAY:
                    continue  # its programs are given
                stage_group = stages[position] if job.stages > 1 else None
                seed = self.scenario.seed + 7919 * number
                coupled = self.gpus > 1
                self.parts[member] = Part(
                    job, seed, position, gpu, self.gpus, group, whole, stage_group, coupled
                )

    def _stage_groups(
        self, number: int, gpu: int, job: JobSpec, members: list[int], whole: Communicator
    ) -> list[Communicator]:
        """The data-parallel group of each position: its stage's replicas, or the whole job if alone."""
        replicas = len(members) // job.stages
        if replicas == 1:
            return [whole] * len(members)
        groups = [
            Communicator(
                f"job{number}.gpu{gpu}.stage{stage}",
                members[stage * replicas : (stage + 1) * replicas],
                self.scenario.stack,
                self.make_lane,
            )
            for stage in range(job.stages)
        ]
        return [groups[position // replicas] for position in range(len(members))]

    @property
    def training_ranks(self) -> list[RankInfo]:
        """Ranks that have a job."""
        return [rank for rank in self.ranks if rank.job >= 0]

    def compile_programs(self, given: Mapping[int, Program] | None = None) -> None:
        """Fix every rank's compute times and write its program into the plan; call once, faults shaped.

        ``given`` programs, by rank, take the place of those that follow from the jobs.
        """
        compiler = ProgramCompiler(self.plan, self._ranks_beside)
        for rank in self.ranks:
            begin = START_NS + int(
                stream(self.scenario.seed, "begin", rank.number).integers(0, _BEGIN_SPREAD_NS)
            )
            commands: Iterable[Command] = ()
            if given is not None:
                commands = given.get(rank.number, ())
            elif rank.job >= 0:
                commands = program(self.parts[rank.number])
            rows = compiler.compile(rank.number, self._timed(rank, commands))
            self.plan.add_program(rank.nic, begin, rows)

    def _ranks_beside(self, rank: int) -> tuple[int, ...]:
        first = rank // self.gpus * self.gpus
        return tuple(range(first, first + self.gpus))

    def _timed(self, rank: RankInfo, commands: Iterable[Command]) -> Iterator[Command]:
        """The rank's commands with its own compute times."""
        step = -1
        for command in commands:
            if isinstance(command, Begin):
                step = command.step
            if isinstance(command, Start):
                rank.operations.setdefault(step, []).append(command.operation)
            if not isinstance(command, Compute):
                yield command
                continue
            duration = self.compute.duration_ns(rank.number, step, command.base_ns, command.first)
            pause = self.compute.pause_ns(rank.number, step) if command.first else 0
            rank.compute_ns[step] = rank.compute_ns.get(step, 0) + duration
            rank.pause_ns[step] = rank.pause_ns.get(step, 0) + pause
            yield Pause(duration + pause)

    # ---- settings

    def add_settings(self) -> None:
        """The tables that hold one row: network, transport, library; and all switch ports and addresses."""
        for rate_gbps, latency_ns, jitter_ns in self.fabric.ports:
            self.plan.add("ports", 8_000 / rate_gbps, latency_ns * PS_PER_NS, jitter_ns * PS_PER_NS)
        for nic in self.nics:
            self.plan.add("addresses", list(nic.mac), list(nic.ipv6), nic.ipv4)
        self.plan.add("network", *self._network_row())
        self.plan.add("transport", *self._transport_row())
        self.plan.add("library", *self._library_row())

    def _network_row(self) -> tuple[float, ...]:
        network, transport = self.scenario.network, self.scenario.transport
        header = _LINK_AND_UDP_BYTES + (40 if network.ipv6 else 20)
        return (
            header + (_VLAN_BYTES if network.vlan is not None else 0),
            network.mark_from_bytes,
            max(network.mark_all_bytes, network.mark_from_bytes + 1),
            network.mark_probability,
            network.pause_bytes,
            network.pause_bytes * 3 // 4,
            network.queue_bytes,
            max(transport.quantum_packets, self.scenario.train_packets // _TURNS_PER_TRAIN),
            self.scenario.train_packets,
            transport.fetch_jitter_ns * PS_PER_NS,
        )

    def _transport_row(self) -> tuple[float, ...]:
        transport = self.scenario.transport
        return (
            transport.mtu,
            transport.ack_every,
            transport.coalesce_acks,
            transport.ack_latency_ns * PS_PER_NS,
            transport.ack_jitter_ns * PS_PER_NS,
            transport.timeout_ns * PS_PER_NS,
            transport.retry_limit,
            transport.cnp_interval_ns * PS_PER_NS,
            1 / 256,
            transport.alpha_timer_ns * PS_PER_NS,
            transport.increase_timer_ns * PS_PER_NS,
            transport.increase_bytes,
            5,
            transport.additive_share,
            10 * transport.additive_share,
            0.001,
        )

    def _library_row(self) -> tuple[float, ...]:
        stack = self.scenario.stack
        style = CreditStyle.NONE if stack.credit_policy is CreditPolicy.NONE else stack.credit_style
        return (
            stack.depth,
            stack.data_style is DataStyle.WRITE_THEN_IMM,
            stack.split_slots,
            _CREDIT_STYLES.index(style),
            stack.credit_policy is CreditPolicy.EARLY,
            stack.credit_bytes,
            stack.proxy_ns * PS_PER_NS,
            stack.proxy_jitter_ns * PS_PER_NS,
            stack.step_ns * PS_PER_NS,
            1_000 / stack.reduce_bytes_per_ns,
            stack.couple_ns * PS_PER_NS,
        )
