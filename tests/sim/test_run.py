# SPDX-License-Identifier: Apache-2.0
"""Whole runs: files, truth, clocks, determinism, command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from sim.__main__ import main
from sim.output.run import run_scenario
from sim.spec import ClockSpec, FaultKind, FaultSpec, JobSpec, TxStamp, Workload
from tests.sim.bench import Bench
from tests.sim.watching import watch


def test_events_of_one_time_happen_in_the_order_of_asking() -> None:
    bench = Bench()
    end = bench.connect(1, 0)
    for size in (400, 300, 200, 100):
        bench.inject(end, size, begin_ns=5_000)
    data = bench.run(1_000_000).received(0)
    assert data["payload_bytes"].tolist() == [400, 300, 200, 100]


def test_a_simulation_stands_at_the_time_that_it_was_run_to() -> None:
    simulation = Bench().start()
    for now_ns in (1, 10, 1_000_000):
        assert simulation.advance(now_ns)
        assert simulation.now_ns == now_ns
    simulation.advance(5)
    assert simulation.now_ns == 1_000_000


def test_equal_seeds_give_equal_files_and_other_seeds_do_not(tmp_path: Path, small) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        run_scenario(small(seed=seed), tmp_path / folder)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["node0.pcap", "node1.pcap", "node2.pcap", "node3.pcap", "slots.npz", "truth.json"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert (tmp_path / "a" / name).read_bytes() != (tmp_path / "c" / name).read_bytes()


def test_truth_tells_fault_steps_connections_and_the_run_without_the_fault(tmp_path: Path, small) -> None:
    fault = FaultSpec(FaultKind.SLOW_COMPUTE, 2, onset_step=3, factor=1.5)
    run_scenario(small(fault), tmp_path, counterfactual=True)
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert truth["fault"]["kind"] == "slow_compute"
    assert truth["fault"]["culprit_node"] == 2
    assert truth["capture"]["start_ns"] < truth["fault"]["onset_ns"] < truth["capture"]["end_ns"]
    assert truth["fault"]["onset_ns"] == truth["ranks"][2]["steps"][3]["compute_start_ns"]
    assert np.median(truth["jobs"][0]["iteration_ms"][3:]) > 1.2 * np.median(truth["counterfactual"][0][3:])
    by_qpn = {(r["ip"], q["qpn"]): q for r in truth["ranks"] for q in r["qps"]}
    for (ip, qpn), pair in by_qpn.items():
        other = by_qpn[pair["peer_ip"], pair["peer_qpn"]]
        assert (other["peer_ip"], other["peer_qpn"]) == (ip, qpn)
        assert {pair["role"], other["role"]} == {"data_sender", "data_receiver"}


def test_captured_traffic_lies_where_the_truth_says(tmp_path: Path, small, read_capture) -> None:
    truth = run_scenario(small(), tmp_path).data
    steps = truth["ranks"][0]["steps"]
    data = [p.ns for p in read_capture(tmp_path / "node0.pcap") if p.opcode == 0x06]
    inside = [any(s["collective_start_ns"] <= ns <= s["collective_end_ns"] for s in steps) for ns in data]
    before = [ns < steps[0]["compute_start_ns"] for ns in data]
    assert all(a or b for a, b in zip(inside, before, strict=True))
    assert sum(before) > 0


def test_slots_tell_a_way_in_order_that_begins_with_a_credit(tmp_path: Path, small) -> None:
    truth = run_scenario(small(), tmp_path).data
    with np.load(tmp_path / "slots.npz") as table:
        slots, lanes, grants = table["slots"], table["lanes"], table["credits"]
    way = np.stack([slots[name] for name in ("staged_ns", "posted_ns", "delivered_ns", "consumed_ns")])
    assert (np.diff(way, axis=0) >= 0).all()
    assert way.min() > truth["capture"]["start_ns"]
    assert slots["acknowledged_ns"].max() < truth["capture"]["end_ns"]
    assert ((lanes["sender"] + 1) % 4 == lanes["receiver"]).all()
    assert len(grants) == len(slots)
    for lane in range(len(lanes)):
        posted, granted = (
            slots["posted_ns"][slots["lane"] == lane],
            grants["arrived_ns"][grants["lane"] == lane],
        )
        assert (posted > granted).all()


def test_several_nics_have_a_file_each_and_rails_never_meet(tmp_path: Path, small, read_capture) -> None:
    job = JobSpec((0, 1, 2), steps=2, collective_bytes=1 << 18, compute_ns=4_000_000)
    scenario = replace(small(jobs=(job,)), machines=3, nics_per_machine=2)
    truth = run_scenario(scenario, tmp_path).data
    assert sorted(p.name for p in tmp_path.glob("*.pcap")) == [
        f"node{machine}.mlx5_{rail}.pcap" for machine in range(3) for rail in range(2)
    ]
    rail = {bytes(int(part) for part in nic["ip"].split(".")): nic["rail"] for nic in truth["nics"]}
    for nic in truth["nics"]:
        seen = read_capture(tmp_path / nic["capture"])
        assert seen
        assert all(rail[p.source] == rail[p.target] == nic["rail"] for p in seen)


def test_clock_errors_shift_stamps_and_nothing_else(tmp_path: Path, small, read_capture) -> None:
    run_scenario(small(), tmp_path / "true")
    truth = run_scenario(small(clock=ClockSpec(offset_ns=50_000_000, drift_ppm=50.0)), tmp_path / "off").data
    for nic in truth["nics"]:
        right, wrong = (read_capture(tmp_path / folder / nic["capture"]) for folder in ("true", "off"))
        assert [(p.opcode, p.psn, p.dest_qpn) for p in right] == [
            (p.opcode, p.psn, p.dest_qpn) for p in wrong
        ]
        start, clock = truth["clock_error"]["t_start_ns"], nic["clock"]
        for a, b in zip(right, wrong, strict=True):
            error = clock["offset_ns"] + clock["drift_ppm"] * 1e-6 * (a.ns - start)
            # Both stamps are cut to whole ns, and the clock's points are rounded to them.
            assert abs(b.ns - a.ns - error) < 1.5
    assert len({nic["clock"]["offset_ns"] for nic in truth["nics"]}) == 4


def test_copy_stamps_are_late_in_order_and_only_for_sent_packets(small) -> None:
    wire = watch(small())
    copy = watch(small(clock=ClockSpec(tx_stamp=TxStamp.COPY, copy_delay_ns=8_000, copy_jitter_ns=800)))
    for nic in range(4):
        assert (copy.received(nic)["ns"] == wire.received(nic)["ns"]).all()
        sent, late = wire.sent(nic)["ns"], copy.sent(nic)["ns"]
        # The copy is taken when the engine has the packet, 8 kB and a packet ahead of the wire, 4 ns a byte.
        assert (late >= sent + 8_000 - (8_192 + 4_200) * 4).all()
        assert (late - sent).max() > 8_000
        assert (np.diff(late) >= 0).all()


def test_without_transmit_stamps_a_capture_holds_only_received_packets(
    tmp_path: Path, small, read_capture
) -> None:
    truth = run_scenario(small(clock=ClockSpec(tx_stamp=TxStamp.NONE)), tmp_path).data
    own = bytes(int(part) for part in truth["nodes"]["1"]["ip"].split("."))
    seen = read_capture(tmp_path / "node1.pcap")
    assert seen
    assert all(p.target == own for p in seen)


def test_bandwidth_tests_are_no_training(tmp_path: Path, small) -> None:
    truth = run_scenario(
        small(jobs=(JobSpec((0, 1, 2, 3), Workload.NONE),), watch_ns=200_000_000), tmp_path
    ).data
    assert truth["training"] is False
    assert truth["ranks"] == []
    assert (tmp_path / "node3.pcap").stat().st_size > 10_000


def test_storage_traffic_does_not_hold_up_the_end(small) -> None:
    done = watch(small(storage=True))
    assert done.finished
    assert done.outcome.end_ns < 1_000_000_000
    server = next(nic.number for nic in done.world.nics if nic.external)
    assert server not in done.packets
    assert any(len(done.received(nic, server)) for nic in range(4))
    assert any(len(done.sent(nic, server)) for nic in range(4))


def test_the_command_line_lists_runs_and_refuses(tmp_path: Path, capsys) -> None:
    assert main(["list", "hang_process-dp"]) == 0
    assert capsys.readouterr().out.split() == [f"hang_process-dp-{p}" for p in ("on_entry", "early", "none")]
    assert main(["run", "no_such-dp-early"]) == 2
    assert "python -m sim list" in capsys.readouterr().err
    assert (
        main(["run", "hang_process-dp-early", "--seed", "3", "--out", str(tmp_path), "--perfect-clocks"]) == 0
    )
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert truth["fault"]["kind"] == "hang_process"
    assert {nic["clock"]["offset_ns"] for nic in truth["nics"]} == {0}
