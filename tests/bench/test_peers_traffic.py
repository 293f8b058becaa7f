# SPDX-License-Identifier: Apache-2.0
"""Rules on bytes over time: epochs of 32 us and port counters; and the log that a simulated run leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.contenders import CONTENDERS
from bench.peers import epochs, port_counters
from bench.peers.activity import MESSAGE, Activity, Port, activity, spread
from bench.peers.epochs import EPOCH_NS
from bench.peers.interface import ContenderVerdict
from bench.peers.iterations import stands
from bench.peers.operator_log import NEVER, OperatorLog, operator_log
from bench.peers.report import Tally, count, guilty_machines
from bench.simulator import SMALL_CLUSTER, in_mode
from sim.output.run import OutputForm, run_scenario
from sim.scenarios.catalogue import Order, build
from tests.bench.small_log import BYTES, MS, TRANSFER_NS, SmallJob, sent_messages

Run = tuple[dict[str, Any], list[Path]]

ONSET = 7
PIECES = 16


def bursts(width_ns: int) -> list[tuple[int, int, int]]:
    """Pieces of a transfer, each followed by silence up to the next."""
    return [(n * 120_000, width_ns, BYTES // PIECES) for n in range(PIECES)]


def paced_ring(slow: int) -> tuple[OperatorLog, Activity]:
    """From the onset on one rank sends all the time, and the others in bursts with gaps of 100 us."""
    log = SmallJob(transfer=lambda s: TRANSFER_NS * (3 if s >= ONSET else 1)).log()
    quick = [(n * 20_000, 19_000, BYTES // PIECES) for n in range(PIECES)]
    seen = sent_messages(log, lambda r, s: quick if s < ONSET else bursts(118_000 if r == slow else 19_000))
    return log, seen


def test_the_published_pulse_names_the_rank_that_is_active_longest() -> None:
    verdicts = epochs.judge(*paced_ring(2))
    assert [(v.machine, v.cause) for v in verdicts] == [("node2", "nic_slow")]


def test_the_published_pulse_sees_no_gap_shorter_than_an_epoch() -> None:
    rows = np.array(
        [(0, True, 0, n * EPOCH_NS, n * EPOCH_NS + EPOCH_NS // 2, 100) for n in range(8)], dtype=MESSAGE
    )
    log = SmallJob(ranks=1, steps=1, compute=lambda r, s: 0).log()
    assert epochs.measure(log, Activity((), rows)).epochs.tolist() == [8]


def test_the_published_pulse_names_the_rank_that_starts_late_when_activity_stays_normal() -> None:
    log = SmallJob(compute=lambda r, s: 10 * MS * (2 if r == 1 and s >= ONSET else 1)).log()
    seen = sent_messages(log, lambda r, s: [(0, MS, BYTES)])
    assert [(v.machine, v.cause) for v in epochs.judge(log, seen)] == [("node1", "compute_slow")]


def test_the_published_pulse_says_nothing_of_a_steady_job_or_without_measurements() -> None:
    log = SmallJob().log()
    assert epochs.judge(log, sent_messages(log, lambda r, s: [(0, MS, BYTES)])) == []
    assert epochs.judge(log, Activity((), np.zeros(0, MESSAGE))) == []


def test_bytes_are_spread_evenly_over_the_time_of_a_message() -> None:
    rows = np.array([(0, True, 0, 1000, 2999, 2000), (0, True, 0, 2400, 2400, 7)], dtype=MESSAGE)
    assert spread(rows, 500, 1000, 3) == pytest.approx([500, 1007, 500])
    assert spread(rows[:0], 500, 1000, 3).tolist() == [0, 0, 0]


# ---- port counters: a sample per ms, an iteration of 10 ms


def steady_ports(low: int | None = None, share: float = 0.5, machines: int = 5) -> Activity:
    """Ports that are busy for the second half of every iteration; one may carry less than the others."""
    rows = [
        (n, True, n, i * 10 * MS + 5 * MS, (i + 1) * 10 * MS - 1, int(1_000_000 * (share if n == low else 1)))
        for i in range(20)
        for n in range(machines)
    ]
    ports = tuple(Port(f"node{n}", "mlx5_0", frozenset({0})) for n in range(machines))
    return Activity(ports, np.array(rows, dtype=MESSAGE))


def test_counters_name_the_port_that_carries_half_of_what_its_peers_carry() -> None:
    verdicts = port_counters.judge(steady_ports(low=3), 0, MS, 10 * MS, None)
    assert [(v.machine, v.severity) for v in verdicts] == [("node3", "fail_slow")]


def test_counters_say_nothing_of_equal_ports_or_of_a_finished_job_that_is_silent() -> None:
    assert port_counters.judge(steady_ports(), 0, MS, 10 * MS, None) == []
    assert port_counters.judge(steady_ports(low=3, share=0.95), 0, MS, 10 * MS, None) == []


def test_counters_report_a_job_that_falls_silent_and_name_who_did_so_first() -> None:
    seen = steady_ports()
    verdicts = port_counters.judge(seen, 0, MS, 10 * MS, 260 * MS)
    assert [(v.machine, v.severity) for v in verdicts] == [(None, "fail_stop")]
    early = seen.messages[(seen.messages["port"] != 2) | (seen.messages["begin_ns"] < 190 * MS)]
    verdicts = port_counters.judge(Activity(seen.ports, early), 0, MS, 10 * MS, 260 * MS)
    assert [(v.machine, v.severity) for v in verdicts] == [("node2", "fail_stop")]


def test_counters_tell_a_lasting_fall_of_the_whole_job_without_a_machine() -> None:
    seen = steady_ports()
    seen.messages["bytes"][seen.messages["begin_ns"] > 110 * MS] //= 2
    verdicts = port_counters.judge(seen, 0, MS, 10 * MS, None)
    assert [(v.machine, v.severity) for v in verdicts] == [(None, "fail_slow")]


# ---- what a simulated run leaves


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("hung")
    truth = run_scenario(in_mode(build(Order("hang", 3, SMALL_CLUSTER, "dp", 8)), "messages"), out,
                         form=OutputForm.FRAMES)  # fmt: skip
    return truth.data, sorted(out.glob("*.frames"))


def test_a_log_holds_entered_operations_that_never_end_and_none_that_was_not_entered(
    hung: Run,
) -> None:
    log = operator_log(hung[0])
    culprit = next(iter(guilty_machines(hung[0])))
    assert stands(log)
    standing = log.operations[log.operations["end_ns"] == NEVER]
    missing = {log.machine(rank) for rank in log.ranks if rank not in standing["rank"]}
    assert culprit in missing
    done = log.operations[log.operations["end_ns"] != NEVER]
    assert (done["end_ns"] > done["enter_ns"]).all()


def test_a_log_does_not_change_with_what_the_truth_says_of_the_fault(
    hung: Run,
) -> None:
    kept = ("ranks", "capture", "jobs", "nics", "clock_error")
    blind = {key: hung[0][key] for key in kept}
    for contender in CONTENDERS:
        assert contender.judge(blind, hung[1]) == contender.judge(hung[0], hung[1])


def test_requests_and_messages_of_a_run_carry_the_bytes_that_operations_ask_for(
    hung: Run,
) -> None:
    log, seen = operator_log(hung[0]), activity(*hung)
    ended = log.operations["end_ns"][log.requests["operation"]] != NEVER
    assert (log.requests["completed_bytes"][ended] == log.requests["bytes"][ended]).all()
    assert (log.requests["requests"][ended] == log.requests["completions"][ended]).all()
    measured = epochs.measure(log, seen)
    first = log.operations["step"] == 2
    assert measured.volume[first].sum() == log.requests["bytes"][
        np.isin(log.requests["operation"], np.flatnonzero(first))
    ].sum()  # fmt: skip


def test_a_tally_counts_right_wrong_and_unfounded_accusations(
    hung: Run,
) -> None:
    culprit = next(iter(guilty_machines(hung[0])))
    tally = Tally("x", "hang")
    verdicts = [ContenderVerdict(name, None, "fail_stop", 1) for name in (culprit, "node9")]
    count(tally, hung[0], verdicts)
    assert (tally.guilty, tally.noticed, tally.right, tally.named, tally.wrong) == (1, 1, 1, 2, 1)
    innocent = {"fault": {"allowed": {"machine": None}}, "second_fault": None}
    count(tally, innocent, verdicts)
    count(tally, innocent, [ContenderVerdict(None, "congestion", "fail_slow", 1)])
    count(tally, innocent, [ContenderVerdict("node1", None, "notice", 1)])
    assert (tally.innocent, tally.accused, tally.alarms) == (3, 1, 1)
