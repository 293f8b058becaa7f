# SPDX-License-Identifier: Apache-2.0
"""For every cause: why what is seen means that, what else might, and what would settle it.

The rules behind are in docs/diagnosis.md; what is said here must not go beyond them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reasoning:
    """``why`` it means this; ``against``: (something else, why it is not that); ``alike``: what nobody can
    tell from it by the wire alone; ``settle``: what to look at."""

    why: str
    against: tuple[tuple[str, str], ...]
    alike: str
    settle: str


_NETWORK = (
    "a slow network",
    "that would make its input late, and lateness is counted from when input and credit were there",
)
_VICTIM = (
    "it only waits for another machine",
    "the iterations gain by taking away its lateness, and not by taking away that of others",
)
_ENDS_HOST = (
    "a late host",
    "its messages leave on time and then are long under way",
)
_SHARED_PORT = ("many messages sharing its port", "what shares a port has been taken out")
_STOP_FINISHED = ("the run has simply ended", "an operation is visibly unfinished")
_STOP_PAUSE = ("a long pause, such as a checkpoint", "the silence is longer than three of the longest seen")
_GPU = "clocks, power and memory of its GPUs (DCGM: clock throttle reasons, power, ECC), NVLink errors"
_PORT = "port counters of both ends of its cable (symbol errors, FEC, link width and speed) and PCIe width"
_LONGER = "a longer capture, or one of every machine of the job"

REASONING = {
    "compute_slow": Reasoning(
        "computing comes before operators: it is late before the same few messages of every iteration, "
        "though their input and credit were there",
        (_NETWORK, _VICTIM, ("a busy CPU", "that delays now this message, now that one")),
        "a slow clock, a power cap, slow memory or a slow NVLink, and which GPU of the machine it is",
        _GPU,
    ),
    "input_stall": Reasoning(
        "it is late before the first message of iterations and on time later in them",
        (_NETWORK, _VICTIM, ("a slow processor", "that would be late wherever it computes")),
        "anything that holds up the begin of an iteration alone",
        "the data loader: queue depth, storage latency, CPU use of its workers",
    ),
    "cpu_contention": Reasoning(
        "it stalls at places that change from iteration to iteration, as a scheduler takes a thread away",
        (_NETWORK, _VICTIM, ("a slow GPU", "that is late before the same messages each time")),
        "a busy CPU that mainly stretches computing is told as compute slow",
        "processes and their CPU time, steal time, swapping and NUMA placement on the machine",
    ),
    "receiver_slow": Reasoning(
        "messages queue in front of it and it is late to grant and to send what it has got",
        (
            ("a slow port alone", "then its host would be on time"),
            ("a slow host alone", "then messages to it would not queue"),
        ),
        "where its host is on time, a slow reader looks like a slow port and is told as nic slow",
        f"pause frames that it sends, PCIe back-pressure counters, and {_PORT}",
    ),
    "nic_slow": Reasoning(
        "messages of one NIC are long under way whoever is at the other end, and only its port lies on all "
        "of these ways",
        (_ENDS_HOST, _SHARED_PORT, ("a slow peer", "no single peer has most of the slowness")),
        "slow PCIe, a port at a part of its rate, a cable that lost lanes",
        _PORT,
    ),
    "link_slow": Reasoning(
        "one edge is slow and its ends are on time",
        (_ENDS_HOST, _SHARED_PORT),
        "which of the two ends it is: an edge has two",
        f"{_PORT}; or captures with stamps of sent packets, and traffic of either end with others",
    ),
    "link_loss": Reasoning(
        "packets are sent again, and the receivers say that some are missing; the places where that happens "
        "have one thing in common",
        (
            ("the capture lost them", "packets that a capture left out are seen by the other end"),
            ("congestion", "a lossless network pauses senders instead of dropping"),
            ("another place", "the likelihood of every place was compared"),
        ),
        "loss towards a NIC and loss in the fabric of one pair, with one peer only",
        _PORT,
    ),
    "link_down": Reasoning(
        "nothing passes between some ends, repeats are lost like what they repeat, and others pass meanwhile",
        (
            ("a lossy path", "that loses now this packet, now that one"),
            ("a dead process", "repeats to it would still arrive"),
        ),
        "a dead NIC, its cable and its switch port",
        f"link state of the NIC and of its switch port; {_PORT}",
    ),
    "congestion": Reasoning(
        "packets were marked on their way, so they had left their sender, and the queue that marked them "
        "does not stand in front of one NIC",
        (_ENDS_HOST, ("a slow receiver", "it would be slow in every iteration, and grants to it too")),
        "other tenants' traffic and a slow uplink: both queue where no capture is",
        "queue, mark and drop counters of the switches on the path; who else used it at the time",
    ),
    "path_collision": Reasoning(
        "edges without a common end are slow at the same time, and only the network joins them",
        (("a slow NIC", "it would be an end of all of these edges"), _ENDS_HOST),
        "other traffic on the path that nobody marks, or a slow uplink",
        "which uplink these flows hash to, and its load and speed",
    ),
    "hang": Reasoning(
        "all others wait, through data and credits, and the reasons end at it: it lacks neither and sends "
        "nothing",
        (
            _STOP_FINISHED,
            _STOP_PAUSE,
            ("a dead link", "nothing is sent again without an answer"),
        ),
        "a process that died while its NIC went on, if nobody repeats",
        "its process: stack traces of all ranks (py-spy, cuda-gdb), kernel log, GPU errors (Xid)",
    ),
    "crash": Reasoning(
        "repeats arrive at it and it answers none: its NIC lives and its queue pairs do not",
        (_STOP_FINISHED, _STOP_PAUSE, ("a dead link", "the repeats did arrive")),
        "which of its processes",
        "whether its processes live; kernel log (out of memory), job log",
    ),
    "op_mismatch": Reasoning(
        "before all stood still it sent messages of sizes that its group never had",
        (_STOP_FINISHED, _STOP_PAUSE, ("a hang", "it did send, but something else than the others")),
        "another collective of the same sizes is told as hang",
        "the sequence of collectives of its ranks against the others (flight recorder)",
    ),
    "random_pauses": Reasoning(
        "long pauses hit one machine after another and nobody is late as a rule",
        (("one slow machine", "no machine has most of the pauses"),),
        "garbage collection, page faults, other processes",
        "logs of the machines at the times of the pauses",
    ),
    "periodic_pause": Reasoning(
        "every few iterations hosts are late together",
        (("a slow machine", "the pauses keep their period and are not one machine's"),),
        "whatever stops a job by a plan: a checkpoint, an evaluation",
        "the schedule of checkpoints and evaluations",
    ),
    "data_imbalance": Reasoning(
        "machines compute for unequal times and another one is latest each time",
        (("a slow machine", "it would be latest more often than chance has it"),),
        "processors whose speed changes from iteration to iteration",
        "the lengths of the sequences that the ranks get",
    ),
    "stage_imbalance": Reasoning(
        "one stage computes longer per micro-batch in all replicas",
        (("one slow machine", "the same stage is slow in every replica"),),
        "all machines of one stage slow for the same reason",
        "how the layers are spread over the stages",
    ),
}

UNKNOWN = Reasoning(
    "the figures say so",
    (),
    "not known for this cause",
    _LONGER,
)
