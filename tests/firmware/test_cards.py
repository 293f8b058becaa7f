# SPDX-License-Identifier: Apache-2.0
"""Reading what mlxconfig and mstconfig print."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmware_cfg.cards import CardError, Value, parse_query

HEADER = "Configurations:                              Default         Current         Next Boot\n"


def parsed(rows: str) -> dict[str, tuple[int | None, int | None, int | None]]:
    card = parse_query(HEADER + rows, "0000:03:00.0")
    return {key: (p.default.number, p.live.number, p.next.number) for key, p in card.parameters.items()}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("EMBEDDED_CPU(1)", 1),
        ("True(1)", 1),
        ("20", 20),
        ("0x14", 20),
        ("_256KB(0x1)", 1),
        ("ETH", None),
        ("N/A", None),
        ("Array[0..7]", None),
    ],
)
def test_values_are_read_as_the_tools_print_them(text: str, number: int | None) -> None:
    assert Value.parse(text) == Value(text, number)


def test_marks_before_a_parameter_are_no_part_of_its_name() -> None:
    rows = (
        "*        PF_TOTAL_SF                         0               0               20\n"
        "RO       NUM_OF_PF                           2               2               2\n"
        "         PER_PF_NUM_SF                       False(0)        False(0)        True(1)\n"
    )
    assert parsed(rows) == {"PF_TOTAL_SF": (0, 0, 20), "NUM_OF_PF": (2, 2, 2), "PER_PF_NUM_SF": (0, 0, 1)}


def test_values_as_wide_as_their_column_are_told_apart() -> None:
    rows = (
        "         INTERNAL_CPU_MODEL                  SEPARATED_HOST(0)EMBEDDED_CPU(1) EMBEDDED_CPU(1)\n"
        "         SOME_POLICY                         DEVICE_DEFAULT(0)DEVICE_DEFAULT(0)DEVICE_DEFAULT(0)\n"
    )
    assert parsed(rows) == {"INTERNAL_CPU_MODEL": (0, 1, 1), "SOME_POLICY": (0, 0, 0)}


def test_the_legend_and_what_stands_before_the_table_are_no_parameters() -> None:
    text = (
        "Device #1:\n----------\n\nDevice type:    BlueField3\nName:   A B C D\n"
        + HEADER
        + "         PF_TOTAL_SF    1 2 3\n"
        + "The '*' shows parameters with next value different from default/current value.\n"
    )
    card = parse_query(text, "x")
    assert card.kind == "BlueField3"
    assert list(card.parameters) == ["PF_TOTAL_SF"]


def test_a_table_of_next_values_alone_is_refused_since_it_hides_what_is_in_force() -> None:
    text = "Configurations:                        Next Boot\n         PF_TOTAL_SF                   20\n"
    with pytest.raises(CardError, match=r"about 0000:03:00\.0 has no table of default, current and next"):
        parse_query(text, "0000:03:00.0")


@given(st.text())
def test_any_output_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(CardError):
        assert parse_query(HEADER + text, "x").parameters
