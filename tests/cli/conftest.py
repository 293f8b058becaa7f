# SPDX-License-Identifier: Apache-2.0
"""Runs ``pulse`` and makes its inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from host_ctl.cli.app import run
from tests.host_ctl.jobs import Recording, simulate


@dataclass(frozen=True, slots=True)
class Result:
    """What a command left behind."""

    status: int
    out: str
    err: str


Pulse = Callable[..., Result]


@pytest.fixture
def pulse(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Pulse:
    """Run ``pulse`` in this process, errors of the user handled as in a terminal."""

    def call(*arguments: Any) -> Result:
        monkeypatch.setattr(sys, "argv", ["pulse", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run()
        assert isinstance(ended.value.code, int)
        return Result(ended.value.code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A small healthy job."""
    return simulate("healthy", tmp_path_factory.mktemp("healthy"))


@pytest.fixture(scope="session")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A small job with a slow GPU in node1."""
    return simulate("slow_compute", tmp_path_factory.mktemp("slow"))


@pytest.fixture(scope="session")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A small job that node1 brings to a stop."""
    return simulate("hang", tmp_path_factory.mktemp("hung"))


@pytest.fixture
def folder(slow: Recording, tmp_path: Path) -> Path:
    """The captures of the slow job as files."""
    return slow.write(tmp_path / "captures")
