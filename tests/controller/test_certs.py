# SPDX-License-Identifier: Apache-2.0
"""`pulse certs`: files that only their owner reads, nothing overwritten, expiry shown."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.cli.conftest import Pulse, pulse

__all__ = ["pulse"]


@pytest.fixture
def folder(tmp_path: Path, pulse: Pulse) -> Path:
    """A folder with an authority."""
    assert pulse("certs", "init", "--dir", tmp_path / "pki", "--days", 40, "--name", "site").status == 0
    return tmp_path / "pki"


def loaded(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def names(path: Path) -> list[str]:
    extension = loaded(path).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(name.value) for name in extension.value]


def test_certificates_name_their_machine_or_hosts_and_serve_one_purpose(folder: Path, pulse: Pulse) -> None:
    done = pulse(
        "certs", "issue", "--dir", folder, "--machine", "node1", "--machine", "node2.rack3",
        "--controller", "head.example", "--controller", "10.0.0.1", "--days", 30,
    )  # fmt: skip
    assert done.status == 0, done.err
    assert names(folder / "node1.crt") == ["urn:pulse:machine:node1"]
    assert names(folder / "node2.rack3.crt") == ["urn:pulse:machine:node2.rack3"]
    assert names(folder / "controller.crt") == ["head.example", "10.0.0.1"]
    for name, purpose in (("node1", "CLIENT_AUTH"), ("controller", "SERVER_AUTH")):
        usage = loaded(folder / f"{name}.crt").extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        assert list(usage.value) == [getattr(ExtendedKeyUsageOID, purpose)]
        loaded(folder / f"{name}.crt").verify_directly_issued_by(loaded(folder / "ca.crt"))


def test_keys_are_for_their_owner_alone(folder: Path, pulse: Pulse) -> None:
    pulse("certs", "issue", "--dir", folder, "--machine", "node1", "--days", 1)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.key")}
    assert modes == {"ca.key": 0o600, "node1.key": 0o600}


def test_nothing_is_overwritten(folder: Path, pulse: Pulse) -> None:
    issue = ("certs", "issue", "--dir", folder, "--machine", "node1", "--days", 1)
    assert pulse(*issue).status == 0
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for again in (issue, ("certs", "init", "--dir", folder)):
        failed = pulse(*again)
        assert failed.status == 2
        assert "exists and is not overwritten" in failed.err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_the_list_tells_what_expires_and_when(folder: Path, pulse: Pulse) -> None:
    pulse("certs", "issue", "--dir", folder, "--machine", "node1", "--days", 5)
    rows = json.loads(pulse("certs", "list", "--dir", folder, "--json").out)
    assert [(row["role"], row["names"]) for row in rows] == [
        ("machine", ["urn:pulse:machine:node1"]), ("authority", [])
    ]  # fmt: skip
    assert [round(row["days_left"]) for row in rows] == [5, 40]
    first, second = pulse("certs", "list", "--dir", folder).out.splitlines()
    assert "node1.crt" in first
    assert "5 days left" in first
    assert "ca.crt" in second


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("issue", "--machine", "../x"), "cannot name a machine"),
        (("issue", "--machine", "ca"), "authority's own files"),
        (("issue", "--machine", "node1", "--days", "0"), "at least one day"),
        (("issue", "--machine", "node1", "--days", "41"), "expires in"),
        (("issue", "--machine", "site"), "name of the authority"),
        (("issue",), "give --machine NAME"),
        (("issue", "--controller", "bücher"), "no host name"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(
    folder: Path, pulse: Pulse, arguments: tuple[str, ...], says: str
) -> None:
    done = pulse("certs", arguments[0], "--dir", folder, *arguments[1:])
    assert done.status == 2
    assert says in done.err
    assert done.err.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == {"ca.crt", "ca.key"}


def test_without_an_authority_nothing_is_issued(tmp_path: Path, pulse: Pulse) -> None:
    done = pulse("certs", "issue", "--dir", tmp_path, "--machine", "node1")
    assert done.status == 2
    assert "pulse certs init" in done.err
    assert pulse("certs", "list", "--dir", tmp_path / "none").status == 2
