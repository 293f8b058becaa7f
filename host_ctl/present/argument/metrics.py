# SPDX-License-Identifier: Apache-2.0
"""What every figure of the evidence measures, and what its norm is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """``text``: what is measured; ``norm``: what it is held against; ``unit`` is the report's."""

    text: str
    norm: str


METRICS = {
    "gained_without_it": Metric(
        "what an iteration would gain without the accused, by replaying what every message waited for",
        "what it would gain without any of the others",
    ),
    "host_time": Metric(
        "how much later its host acts per iteration, with input and credit there",
        "the median of the others, taken off already",
    ),
    "late_places": Metric(
        "messages of an iteration before which most of its steady lateness lies",
        "all messages of an iteration that it sends or grants",
    ),
    "steady_lateness": Metric(
        "the share of its lateness that comes back at the same message in the median iteration",
        "all of its lateness; below half it comes now here, now there",
    ),
    "worst_of_all": Metric("how often it lost most of all", "what chance alone would give"),
    "slow_transfer": Metric(
        "how much longer its messages are under way per iteration than is usual",
        "the same of the others",
    ),
    "slow_transfer_in": Metric(
        "how much longer messages to it are under way per iteration than is usual",
        "the median of the others, taken off already",
    ),
    "time_at_sender_tap": Metric(
        "the share of the time under way that is seen at the sender's own tap already",
        "half, from which on the sender is the slow end",
    ),
    "credit_transit_out": Metric("how long its credits travel out of its port", "credits everywhere"),
    "credit_transit_in": Metric("how long credits travel into its port", "credits everywhere"),
    "time_to_acknowledge": Metric("how long it takes to acknowledge", "the median of the others"),
    "credit_wait_in": Metric("how long grants to it are under way", "the median of the others"),
    "congestion_signalled": Metric(
        "the share of the slow time with marks or notifications of congestion", "none where nothing queues"
    ),
    "edges_slow_together": Metric("edges that are slow at the same time", "one, if it were an end's fault"),
    "lost_packets": Metric("packets that were lost and sent again", "a lossless network"),
    "repair_time": Metric("time that sending again took per iteration", "none"),
    "explained_by_this_nic": Metric(
        "the probability that this place explains the losses, of all places there are",
        "every other NIC, direction and pair",
    ),
    "period": Metric("iterations from one pause to the next", "none"),
    "pause": Metric("how long a pause is", "a usual iteration"),
    "pauses": Metric("pauses seen", "none"),
    "machines_late": Metric("machines that are late in each pause", "all machines"),
    "machines_hit": Metric("machines that paused", "all machines"),
    "spread": Metric(
        "how unequal the machines' computing is, another one each time", "what healthy machines show"
    ),
    "lasting_spread": Metric("how unequal it is for good", "the changing part; half of it at most"),
    "same_machine_latest": Metric("how often the same machine is latest", "what chance alone would give"),
    "waiting": Metric("what waiting for the latest costs per iteration", "none"),
    "work_of_stage": Metric("how long the stage computes per micro-batch", "the other stages"),
    "least_replica": Metric("the same in the replica in which it shows least", "the other stages"),
    "replicas_alike": Metric("replicas in which the stage is slow", "all replicas"),
    "unanswered_repeats": Metric("packets sent again that nobody answered", "none"),
    "messages_sent": Metric("messages sent in the iteration of the stop", "the median of all"),
    "members_waiting": Metric("members that wait for somebody, through data and credits", "none"),
    "messages_of_odd_size": Metric("messages of sizes that its group never had before", "none"),
    "silence": Metric("how long nothing has moved", "one iteration"),
}

_UNKNOWN = Metric("", "its peers")


def metric(name: str) -> Metric:
    """The metric of a name; one that is not known here is told by its name."""
    found = METRICS.get(name, _UNKNOWN)
    return found if found.text else Metric(name.replace("_", " "), found.norm)
