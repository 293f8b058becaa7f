# SPDX-License-Identifier: Apache-2.0
"""Errors that end a command: each names what is wrong and what to do, in one line."""

from __future__ import annotations


class PulseError(Exception):
    """A mistake or a condition that the user can mend; ``exit_code`` is the command's exit status."""

    exit_code = 2


class InputError(PulseError):
    """A path or file that cannot be used."""


class UsageError(PulseError):
    """Arguments or a configuration that make no sense."""


class OutputError(PulseError):
    """A report that could not be written."""


def printable(text: str) -> str:
    """One line of text that any terminal shows as it is: control and undecodable characters replaced."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.splitlines()))
