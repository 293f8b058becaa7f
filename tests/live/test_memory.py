# SPDX-License-Identifier: Apache-2.0
"""What is remembered of jobs from look to look."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from host_ctl.diagnose.verdict import Candidate, Evidence, Verdict
from host_ctl.live.memory import Memory, Sighting
from host_ctl.live.state_file import read_memory, write_memory

MS = 1_000_000
NICS = ("a/mlx5_0", "b/mlx5_0", "c/mlx5_0")
SLOW = Verdict(
    job="job-1", severity="fail_slow", cause="compute_slow", scope="machine",
    machine="b", nic=None, peer=None,
    candidates=(Candidate("b", None, 0.97),), onset_ns=500 * MS, onset_iteration=30, detected_iteration=33,
    slowdown=1.5, lost_gpu_seconds=1.0, confidence=0.97, evidence=(Evidence("lag", 5.0, 0.0, "us"),),
    summary="b slows job-1",
)  # fmt: skip
STOP = replace(SLOW, severity="fail_stop", cause="hang", summary="b has stopped")


def sighting(
    begin_ms: int, lengths_ms: list[int], *verdicts: Verdict, connections: str = "pq", **more: object
) -> Sighting:
    """A job whose iterations follow one another from the begin on."""
    iterations, at = [], begin_ms
    for length in lengths_ms:
        iterations.append((at * MS, length * MS))
        at += length
    seen = Sighting(
        NICS, frozenset(connections), begin_ms * MS, at * MS, tuple(iterations),
        pause_ns=8 * MS, silence_ns=0, verdicts=verdicts,
    )  # fmt: skip
    return replace(seen, **more)  # type: ignore[arg-type]  # fields of a sighting


def see(memory: Memory, seen: Sighting) -> tuple[str, tuple[Verdict, ...]]:
    ((job, verdicts),) = memory.see([seen])
    return job.key, verdicts


def test_a_lasting_fault_is_kept_with_its_onset_until_iterations_are_short_again() -> None:
    memory = Memory()
    see(memory, sighting(0, [10] * 40))
    assert see(memory, sighting(200, [10] * 30 + [15] * 20, SLOW)) == ("job-1", (SLOW,))
    assert see(memory, sighting(2000, [15] * 40)) == ("job-1", (SLOW,))
    assert see(memory, sighting(4000, [14] * 40)) == ("job-1", (SLOW,))
    assert see(memory, sighting(6000, [10] * 40)) == ("job-1", ())


def test_a_fault_seen_again_without_its_begin_keeps_what_it_was_found_with() -> None:
    memory = Memory()
    see(memory, sighting(200, [10] * 30 + [15] * 20, SLOW))
    later = replace(SLOW, cause="cpu_contention", onset_ns=2100 * MS, lost_gpu_seconds=4.0)
    _, (held,) = see(memory, sighting(2000, [15] * 40, later))
    assert (held.cause, held.onset_ns, held.lost_gpu_seconds) == ("compute_slow", SLOW.onset_ns, 4.0)


def test_a_fault_whose_begin_is_in_sight_and_that_does_not_show_is_dropped() -> None:
    memory = Memory()
    see(memory, sighting(200, [10] * 30 + [15] * 4, SLOW))
    assert see(memory, sighting(250, [10] * 25 + [15] * 10)) == ("job-1", ())


def test_the_shadow_of_a_fault_that_has_become_usual_accuses_nobody_else() -> None:
    memory = Memory()
    see(memory, sighting(200, [10] * 30 + [15] * 20, SLOW))
    shadow = replace(SLOW, machine="c", onset_ns=2000 * MS)
    assert see(memory, sighting(2000, [15] * 40, shadow)) == ("job-1", (SLOW,))
    second = replace(shadow, onset_ns=2300 * MS)
    assert see(memory, sighting(2000, [15] * 40, second)) == ("job-1", (SLOW, second))


def test_few_iterations_accuse_nobody_of_being_slow() -> None:
    assert see(Memory(), sighting(480, [10] * 7, SLOW)) == ("job-1", ())


def test_what_few_iterations_or_little_confidence_say_must_be_said_again_some_iterations_later() -> None:
    unsure = replace(SLOW, confidence=0.7)
    for lengths, verdict in (([15] * 12, SLOW), ([15] * 40, unsure)):
        memory, other = Memory(), replace(verdict, machine="c")
        looks = [(verdict,), (other,), (verdict,), (), (verdict,)]
        seen = [see(memory, sighting(480 + 50 * n, lengths, *v))[1] for n, v in enumerate(looks)]
        assert seen == [(), (), (), (), ()]
        assert see(memory, sighting(710, lengths, verdict)) == ("job-1", ())  # hardly more than before
        assert see(memory, sighting(750, lengths, verdict)) == ("job-1", (verdict,))


def test_silence_is_no_stop_up_to_three_times_the_longest_pause_ever_seen() -> None:
    memory = Memory()
    see(memory, sighting(0, [10] * 40, pause_ns=200 * MS))
    see(memory, sighting(400, [10] * 40))
    assert see(memory, sighting(800, [10] * 40, STOP, silence_ns=590 * MS)) == ("job-1", ())
    assert see(memory, sighting(800, [10] * 40, STOP, silence_ns=610 * MS)) == ("job-1", (STOP,))


def test_a_job_that_has_stopped_stays_so_out_of_sight_until_another_has_its_nics() -> None:
    memory = Memory()
    see(memory, sighting(0, [10] * 40, STOP, silence_ns=100 * MS))
    (stopped,) = memory.stopped([])
    assert stopped.kept[0].verdict == STOP
    for n in range(3):
        key, verdicts = see(memory, sighting(5000 + n, [10] * 40, connections="xy"))
    assert (key, verdicts) == ("job-1", ())


def test_a_restart_has_new_connections_and_is_another_job() -> None:
    memory = Memory()
    for n in range(3):
        assert see(memory, sighting(400 * n, [10] * 40))[0] == "job-1"
    begun = sighting(1200, [10] * 40, connections="xy")
    assert memory.is_restart(begun)
    assert see(memory, begun)[0] == "job-2"
    assert see(memory, sighting(1600, [10] * 40, connections="xy"))[0] == "job-2"
    for n in range(2):
        see(memory, sighting(2000 + 400 * n, [10] * 40, connections="xy"))
    assert see(memory, sighting(9000, [10] * 40, connections="mn"))[0] == "job-3"


def test_two_jobs_at_once_are_two() -> None:
    memory = Memory()
    other = replace(sighting(0, [30] * 20), nics=("d/mlx5_0", "e/mlx5_0"))
    for _ in range(3):
        taken = memory.see([sighting(0, [10] * 40), other])
    assert [(job.key, job.iteration_ns) for job, _ in taken] == [("job-1", 10 * MS), ("job-2", 30 * MS)]


def test_parts_of_a_job_are_one_with_the_verdicts_of_all() -> None:
    memory = Memory()
    see(memory, sighting(0, [10] * 40))
    part = replace(sighting(300, [10] * 40, SLOW), nics=NICS[:2])
    (first, found), (second, none) = memory.see([part, replace(part, nics=NICS[2:])])
    assert first is second
    assert (found, none) == ((SLOW,), ())


def test_a_longer_iteration_is_believed_at_once_and_a_shorter_one_only_after_many_looks() -> None:
    memory = Memory()
    see(memory, sighting(0, [10] * 40))
    see(memory, sighting(0, [80] * 10))
    assert memory.iteration_ns == 80 * MS
    for _ in range(20):
        see(memory, sighting(0, [10] * 40))
    assert memory.iteration_ns == 80 * MS
    see(memory, sighting(0, [10] * 40))
    assert memory.iteration_ns == 10 * MS


def test_what_is_remembered_survives_a_restart_and_damage_is_told(tmp_path: Path) -> None:
    memory, path = Memory(floor_ns=17), tmp_path / "jobs.json"
    see(memory, sighting(200, [10] * 30 + [15] * 20, SLOW))
    write_memory(path, memory)
    again = read_memory(path)
    assert (again.jobs, again.count, again.floor_ns) == (memory.jobs, memory.count, 17)
    assert see(again, sighting(2000, [15] * 40)) == ("job-1", (SLOW,))
    path.write_text(path.read_text()[:100])
    assert read_memory(path).jobs == []
