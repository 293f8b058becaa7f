# SPDX-License-Identifier: Apache-2.0
"""Options that say which controller is asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from host_ctl.client import DEFAULT_SERVER, ApiClient, Server

ServerUrl = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help=f"The controller's API; or PULSE_SERVER; {DEFAULT_SERVER}."),
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="Its token; or PULSE_TOKEN_FILE.")
]
CaFile = Annotated[
    Path | None, typer.Option("--ca-file", metavar="FILE", help="CA of its certificate; or PULSE_CA_FILE.")
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        "--cert-file", metavar="FILE", help="Own certificate, key in it or beside; or PULSE_CERT_FILE."
    ),
]


def client(
    url: str | None, token_file: Path | None, ca_file: Path | None, cert_file: Path | None
) -> ApiClient:
    """Return a client; the environment fills in what no option says. Raises UsageError."""
    certificate = cert_file or _path("PULSE_CERT_FILE")
    # `pulse certs` writes the key beside its certificate; other files may hold both.
    beside = None if certificate is None else certificate.with_suffix(".key")
    return ApiClient(
        Server(
            url or os.environ.get("PULSE_SERVER") or DEFAULT_SERVER,
            token_file or _path("PULSE_TOKEN_FILE"),
            ca_file or _path("PULSE_CA_FILE"),
            certificate,
            beside if beside is not None and beside.exists() else None,
        )
    )


def _path(variable: str) -> Path | None:
    return Path(os.environ[variable]) if os.environ.get(variable) else None
