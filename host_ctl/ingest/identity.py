# SPDX-License-Identifier: Apache-2.0
"""Who is at the other end: the machine that a certificate names, and names that may be used at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MACHINE_URN = "urn:pulse:machine:"
# Names become labels and parts of file names.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")


class IdentityError(Exception):
    """A peer that does not say who it is, or says it in a way that cannot be used."""


def machine_of(certificate: Mapping[str, Any]) -> str:
    """Return the one machine in the SAN of a certificate as `getpeercert` tells it. Raises IdentityError."""
    names = [
        value[len(MACHINE_URN) :]
        for kind, value in certificate.get("subjectAltName", ())
        if kind == "URI" and value.startswith(MACHINE_URN)
    ]
    if len(names) != 1:
        raise IdentityError(
            f"the certificate names {len(names)} machines: its SAN must have one {MACHINE_URN}NAME"
        )
    return usable_name(names[0], "machine")


def usable_name(name: str, what: str) -> str:
    """Return the name of a machine or NIC if it can be one. Raises IdentityError."""
    if not _NAME.fullmatch(name):
        raise IdentityError(
            f"{name[:40]!r} cannot name a {what}: letters, digits and ._:@- are allowed, at most 128"
        )
    return name
