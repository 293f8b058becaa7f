# SPDX-License-Identifier: Apache-2.0
"""The first checks of a machine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpu_app.service.config import ServiceConfig
from dpu_app.service.doctor import examine
from dpu_app.service.main import main
from tests.dpu.certificates import Authority
from tests.dpu.controller import Controller
from tests.dpu.devices import Pair, in_namespace, made_pair, needs_root
from tests.dpu.service import COMMAND, ROOT


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A veth pair, and a loopback device for the controller."""
    with made_pair() as made:
        made.ip("link", "set", "dev", "lo", "up")
        yield made


def levels(pair: Pair, *flags: str) -> tuple[int, dict[str, str], str]:
    """Exit status, level of each finding, and all that was said, in the namespace."""
    done = subprocess.run(
        ["ip", "netns", "exec", pair.namespace, *COMMAND, "doctor", "--json", *flags],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    found = json.loads(done.stdout)
    return done.returncode, {each["about"]: each["level"] for each in found}, done.stdout


@needs_root
def test_a_machine_that_is_set_up_right_has_nothing_wrong(pair: Pair, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("head", hosts=("127.0.0.1",))
    own = authority.issue("dpu", machine="node1")
    with in_namespace(pair.namespace, lambda: Controller(authority.server_context(server))) as controller:
        status, found, text = levels(
            pair,
            "--interface=nic0",
            f"--controller-address=127.0.0.1:{controller.port}",
            f"--controller-ca-file={authority.file}",
            f"--controller-cert-file={own.certificate}",
            f"--controller-key-file={own.key}",
            f"--spool-directory={tmp_path / 'not' / 'yet'}",
        )
    assert status == 0, text
    assert found["interface"] == found["capture"] == found["controller"] == "fine"
    assert found["time stamps"] == found["RDMA device"] == "note"
    assert "TLSv1.3" in text
    assert not (tmp_path / "not").exists()


@needs_root
def test_what_is_wrong_is_said_with_the_reason(pair: Pair, tmp_path: Path) -> None:
    own = Authority(tmp_path).issue("dpu", machine="node1")
    pair.set_nic("down")
    status, found, text = levels(
        pair,
        "--interface=nic0",
        "--controller-address=127.0.0.1:1",
        f"--controller-cert-file={own.certificate}",
        f"--controller-key-file={own.key}",
    )
    assert status == 1
    assert found["controller"] == "wrong"
    assert found["interface"] == found["spool"] == "note"
    assert "Connection refused" in text


def test_an_interface_that_is_not_there_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--interface", "nix9"]) == 1
    assert "WRONG interface: there is no nix9\n        set interface" in capsys.readouterr().out


def test_certificates_that_cannot_be_read_are_wrong(tmp_path: Path) -> None:
    config = ServiceConfig(interface="lo", controller="127.0.0.1:1", cert_file=str(tmp_path / "none.pem"))
    found = {finding.about: finding for finding in examine(config)}
    assert found["certificates"].level == "wrong"
    assert "none.pem" in found["certificates"].text
    assert "controller" not in found
