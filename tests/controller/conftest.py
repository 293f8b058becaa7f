# SPDX-License-Identifier: Apache-2.0
"""A controller and certificates for a test."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controller.running import Pki, Service


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates of one authority."""
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def service(tmp_path: Path, pki: Pki) -> Iterator[Service]:
    """A running controller with TLS and short patience."""
    patience = {"limits__message_s": 1.0, "limits__handshake_s": 1.0, "limits__silence_s": 3.0}
    with Service(tmp_path, pki, **patience) as running:
        yield running


@pytest.fixture
def free_port() -> int:
    """A port that was free just now, for a service that comes back on the same one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here: that needs root")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
