# SPDX-License-Identifier: Apache-2.0
"""Where in an iteration a host is late tells what keeps it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.host_cause import host_cause
from tests.host_ctl.made import EPOCH_NS
from tests.host_ctl.made_jobs import MS, US, grid

ITERATIONS, PLACES = 20, 40
RING = [(0, 1), (1, 2), (2, 0)]
WHOLE = (0, ITERATIONS)
LATE = 5 * US


def job(computing: tuple[int, ...] = (0, 20)) -> Replay:
    """A ring of three that computes before the messages of some places; nobody is late yet."""
    made = grid(RING, ITERATIONS, PLACES)
    made.computes[np.isin(made.place, computing)] = True
    return made


def make_late(
    made: Replay, member: int, iterations: ArrayLike, places: ArrayLike, late_ns: int = LATE
) -> None:
    """Let a member's sends be late at some places of some iterations."""
    meant = np.isin(made.iteration, iterations) & np.isin(made.place, places)
    made.excess["host"][meant & (made.src == member)] = late_ns


def cause(
    made: Replay,
    inside: tuple[int, int] = WHOLE,
    members: tuple[int, ...] = (1,),
    excess_ns: float = float("inf"),
) -> str:
    """What is said to keep the members, whose lateness costs ``excess_ns`` per iteration."""
    return host_cause(made, members, inside, excess_ns)[0]


def figures(made: Replay) -> dict[str, float]:
    """The evidence for member 1's lateness."""
    return {e.metric: e.value for e in host_cause(made, (1,), WHOLE, LATE)[2]}


def test_lateness_at_few_places_that_stay_is_slow_computing() -> None:
    made = job()
    make_late(made, 1, range(ITERATIONS), [0, 20])
    assert cause(made) == "compute_slow"
    assert figures(made) == {"late_places": 2, "steady_lateness": 1.0}


def test_lateness_before_whatever_is_computed_is_slow_computing_however_often_that_is() -> None:
    made = job(computing=tuple(range(0, PLACES, 2)))
    make_late(made, 1, range(ITERATIONS), range(0, PLACES, 2))
    assert cause(made) == "compute_slow"


def test_lateness_at_changing_places_is_a_busy_cpu() -> None:
    made = job()
    rng = np.random.default_rng(1)
    for iteration in range(ITERATIONS):
        make_late(made, 1, [iteration], rng.choice(PLACES, 8, replace=False))
    assert cause(made) == "cpu_contention"
    assert figures(made)["steady_lateness"] < 0.1


def test_lateness_at_all_places_is_a_slow_receiver() -> None:
    made = job()
    make_late(made, 1, range(ITERATIONS), range(PLACES))
    assert cause(made) == "receiver_slow"
    assert figures(made)["late_places"] > PLACES / 2


@pytest.mark.parametrize(("stalls", "wanted"), [(2, "receiver_slow"), (10, "cpu_contention")])
def test_of_steady_and_changing_lateness_the_larger_part_tells(stalls: int, wanted: str) -> None:
    made = job()
    make_late(made, 1, range(ITERATIONS), range(PLACES), 2 * US)
    rng = np.random.default_rng(2)
    for iteration in range(ITERATIONS):
        make_late(made, 1, [iteration], rng.choice(PLACES, stalls, replace=False), 18 * US)
    assert cause(made) == wanted


def test_grants_that_are_all_late_are_a_slow_receiver_as_well() -> None:
    made = job()
    made._messages["posted"] = made.start_ns - US
    made.excess["credit"][made.dst == 1] = LATE
    assert cause(made) == "receiver_slow"
    assert cause(made, members=(2,)) != "receiver_slow"


def test_lateness_at_the_begin_only_of_who_computes_later_too_is_a_stalled_input() -> None:
    made = job(computing=(0, 20))
    make_late(made, 1, range(ITERATIONS), [0])
    assert cause(made) == "input_stall"


def test_lateness_at_the_begin_of_who_computes_nowhere_else_may_be_slow_computing() -> None:
    made = job(computing=(0,))
    make_late(made, 1, range(ITERATIONS), [0])
    assert cause(made) == "compute_slow"


def test_lateness_in_the_middle_only_is_no_stalled_input() -> None:
    made = job(computing=(0, 20))
    make_late(made, 1, range(ITERATIONS), [20])
    assert cause(made) == "compute_slow"


def test_only_the_iterations_of_the_shift_count() -> None:
    made = job()
    make_late(made, 1, range(10), range(PLACES))
    make_late(made, 1, range(10, ITERATIONS), [0, 20])
    assert cause(made, (0, 10)) == "receiver_slow"
    assert cause(made, (10, ITERATIONS)) == "compute_slow"


def test_only_the_lateness_of_the_accused_counts() -> None:
    made = job()
    make_late(made, 1, range(ITERATIONS), [0, 20])
    make_late(made, 0, range(ITERATIONS), range(PLACES))
    assert cause(made) == "compute_slow"
    assert cause(made, members=(0,)) == "receiver_slow"


def test_a_machine_of_several_nics_is_late_at_the_places_of_all_of_them() -> None:
    made = grid([*RING, (3, 4), (4, 5), (5, 3)], ITERATIONS, PLACES)
    make_late(made, 1, range(ITERATIONS), [0])
    make_late(made, 4, range(ITERATIONS), [1])
    _, _, evidence = host_cause(made, (1, 4), WHOLE, LATE)
    assert evidence[0].value == 2
    assert cause(made, members=(1, 4)) == "compute_slow"


def test_which_rail_shows_first_that_a_machine_is_late_does_not_matter() -> None:
    made = grid([*RING, (3, 4), (4, 5), (5, 3)], ITERATIONS, PLACES)
    for iteration in range(ITERATIONS):
        make_late(made, (1, 4)[iteration % 2], [iteration], [0, 20])
    assert cause(made, members=(1, 4)) == "compute_slow"


def test_where_sends_before_computing_explain_the_cost_grants_at_changing_places_say_nothing() -> None:
    made = job()
    make_late(made, 1, range(ITERATIONS), [0, 20])
    made._messages["posted"] = made.start_ns - US
    rng = np.random.default_rng(3)
    for iteration in range(ITERATIONS):
        place = rng.choice(PLACES, 1)
        late = (made.dst == 1) & (made.iteration == iteration) & np.isin(made.place, place)
        made.excess["credit"][late] = 50 * LATE
    assert cause(made, excess_ns=2 * LATE) == "compute_slow"
    assert cause(made, excess_ns=50 * LATE) == "cpu_contention"


def test_lateness_that_many_messages_share_counts_with_the_first_of_them() -> None:
    """A host that is late once sends and grants everything late that had to come meanwhile."""
    made = job(computing=(0,))
    messages = made._messages
    for iteration in range(ITERATIONS):
        mine = (made.iteration == iteration) & (made.place < PLACES // 2)
        begin = EPOCH_NS + iteration * MS
        sends, grants = mine & (made.src == 1), mine & (made.dst == 1)
        messages["start"][sends] = begin + 300 * US + made.place[sends]
        messages["posted"][grants] = begin + 300 * US + made.place[grants]
        made.excess["host"][sends] = 300 * US
        made.excess["credit"][grants] = 300 * US
    assert cause(made) == "compute_slow"
    assert figures(made)["late_places"] == 1


@settings(max_examples=40)
@given(
    places=st.sets(st.integers(0, PLACES - 1), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
    share=st.floats(0.8, 1.0),
)
def test_few_places_are_slow_computing_however_long_and_in_most_iterations(
    places: set[int], seed: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    made = job(computing=tuple(range(PLACES)))
    late = rng.random(ITERATIONS) < share
    late[: ITERATIONS * 3 // 5] = True
    for place in sorted(places):
        make_late(made, 1, np.flatnonzero(late), [place], int(rng.integers(2, 9)) * US)
    assert cause(made) in ({"compute_slow", "input_stall"} if 0 in places else {"compute_slow"})


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), factor=st.integers(2, 1000))
def test_the_cause_does_not_depend_on_how_late_all_is(seed: int, factor: int) -> None:
    rng = np.random.default_rng(seed)
    made = job()
    for iteration in range(ITERATIONS):
        make_late(made, 1, [iteration], rng.choice(PLACES, rng.integers(0, PLACES), replace=False), US)
    before = cause(made)
    made._messages["start"] *= factor
    made.excess["host"] *= factor
    assert cause(made) == before


def test_who_is_never_late_shows_no_lateness() -> None:
    assert figures(job())["steady_lateness"] == 0


def test_lateness_with_what_is_passed_on_as_well_as_with_what_is_computed_is_a_slow_receiver() -> None:
    computing = tuple(range(0, PLACES, 4))
    made = job(computing)
    make_late(made, 1, range(ITERATIONS), range(PLACES))
    assert cause(made, excess_ns=LATE) == "receiver_slow"
    made = job(computing)
    make_late(made, 1, range(ITERATIONS), computing)
    assert cause(made, excess_ns=LATE) == "compute_slow"


def test_few_messages_that_are_all_late_are_no_few_places() -> None:
    made = grid(RING, ITERATIONS, 6)
    made.computes[made.place == 0] = True
    make_late(made, 1, range(ITERATIONS), range(1, 6))
    assert cause(made, excess_ns=LATE) == "receiver_slow"
