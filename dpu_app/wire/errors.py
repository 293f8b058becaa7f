# SPDX-License-Identifier: Apache-2.0
"""Errors of the frame format."""

from __future__ import annotations


class PulseWireError(Exception):
    """Bytes from the network or a file that are no frame this version can read."""


class FrameSchemaError(PulseWireError):
    """A frame of a schema that this version does not know."""


class FrameFormatError(PulseWireError):
    """A frame that is damaged, hostile or beyond the bounds of its schema."""
