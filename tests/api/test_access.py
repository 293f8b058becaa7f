# SPDX-License-Identifier: Apache-2.0
"""Who may ask: tokens, certificates, and addresses that are refused without them."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from host_ctl.api.guard import TokenFile, is_local_name
from host_ctl.api.server import ApiConfig
from host_ctl.errors import UsageError
from host_ctl.service.settings import load_settings
from tests.api.running import Served
from tests.controller.running import WAIT_S, Pki
from tests.incidents.made import URL

TOKEN = "a-token-of-some-length"
STATUS = "/api/v1/status"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """A file with a token."""
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


def bearing(token: str) -> dict[str, str]:
    """The header with a token."""
    return {"Authorization": f"Bearer {token}"}


def test_with_a_token_set_nobody_gets_in_without_it(tmp_path: Path, token_file: Path) -> None:
    with Served(tmp_path, token_file=token_file) as served:
        status, answer = served.ask(STATUS)
        assert (status, answer["error"]["code"]) == (401, "unauthorized")
        for wrong in ("", TOKEN[:-1], TOKEN + "x", "Ω"):
            headers = {"Authorization": f"Bearer {wrong}".encode().decode("latin-1")}
            assert served.ask(STATUS, headers=headers)[0] == 401
        assert served.ask("/metrics")[0] == served.ask("/api/v1/openapi.json")[0] == 401
        assert served.ask("/api/v1/silences/1", "DELETE")[0] == 401
        assert served.ask("/healthz") == (200, "ok\n")
        assert served.ask(STATUS, headers=bearing(TOKEN) | {"Host": "head.example"})[0] == 200
        assert "pulse_api_refused_total 8.0" in served.ask("/metrics", headers=bearing(TOKEN))[1]


def test_a_token_may_be_replaced_and_what_is_none_leaves_the_old_one(
    tmp_path: Path, token_file: Path
) -> None:
    with Served(tmp_path, token_file=token_file) as served:
        newer = tmp_path / "newer"
        newer.write_text("another-token-of-some-length")
        os.replace(newer, token_file)  # noqa: PTH105  as tools do
        assert served.ask(STATUS, headers=bearing(TOKEN))[0] == 401
        assert served.ask(STATUS, headers=bearing("another-token-of-some-length"))[0] == 200
        token_file.write_text("")
        assert served.ask(STATUS, headers=bearing("another-token-of-some-length"))[0] == 200
        assert served.ask(STATUS, headers=bearing(""))[0] == 401
        token_file.unlink()
        assert served.ask(STATUS, headers=bearing("another-token-of-some-length"))[0] == 200


def test_a_token_that_is_short_or_missing_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("secret\n")
    with pytest.raises(UsageError, match="16 characters at least"):
        TokenFile(tmp_path / "short")
    with pytest.raises(UsageError, match=r"none cannot be read: No such file"):
        TokenFile(tmp_path / "none")


def client(pki: Pki, machine: str | None) -> ssl.SSLContext:
    """TLS of somebody with or without a certificate."""
    context = ssl.create_default_context(cafile=pki.ca)
    if machine is not None:
        certificate = pki.machine(machine)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context


def test_client_certificates_of_the_named_authority_get_in(tmp_path: Path, pki: Pki) -> None:
    other = Pki(tmp_path, "other")
    files = {"cert_file": pki.server, "key_file": pki.server.with_suffix(".key"), "client_ca_file": other.ca}
    with Served(tmp_path, **files) as served:
        friend = client(pki, None)
        certificate = other.machine("friend")
        friend.load_cert_chain(certificate, certificate.with_suffix(".key"))
        assert served.ask(STATUS, context=friend)[0] == 200
        for stranger in (client(pki, None), client(pki, "node1")):
            with pytest.raises(OSError, match=r".*"):
                served.ask(STATUS, context=stranger)


def test_a_renewed_certificate_is_used_for_new_connections(tmp_path: Path, pki: Pki) -> None:
    newer = Pki(tmp_path, "newer")
    certificate, key = tmp_path / "api.crt", tmp_path / "api.key"
    certificate.write_bytes(pki.server.read_bytes())
    key.write_bytes(pki.server.with_suffix(".key").read_bytes())
    with Served(tmp_path, cert_file=certificate, key_file=key) as served:
        assert served.ask(STATUS, context=client(pki, None))[0] == 200
        certificate.write_bytes(newer.server.read_bytes())
        key.write_bytes(newer.server.with_suffix(".key").read_bytes())
        served.api.refresh()
        assert served.ask(STATUS, context=client(newer, None))[0] == 200


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"host": ""}, "all addresses port 1 is open to the network: set api.token_file"),
        ({"host": "10.0.0.1"}, "is open to the network: set api.token_file or api.client_ca_file"),
        ({"host": "head.example", "token_file": Path("t")}, "needs TLS: set api.cert_file"),
        ({"host": "127.0.0.1", "cert_file": Path("c")}, "belong together"),
        ({"host": "127.0.0.1", "client_ca_file": Path("c")}, "client_ca_file needs TLS"),
    ],
)
def test_what_would_be_open_to_the_network_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        ApiConfig(port=1, url=URL, streams=1, **given).check()


def test_on_other_addresses_the_certificate_is_that_of_the_service_unless_another_is_named() -> None:
    tls = [f"tls.{name}_file={name}.pem" for name in ("ca", "cert", "key")]
    common = ["history.directory=x", *tls, "api.token_file=t", "api.address=0.0.0.0:7472"]
    found = load_settings(None, {}, common).api()
    assert found is not None
    assert (found.cert_file, found.key_file) == (Path("cert.pem"), Path("key.pem"))
    own = load_settings(None, {}, [*common, "api.cert_file=a", "api.key_file=b"]).api()
    assert own is not None
    assert (own.cert_file, own.key_file) == (Path("a"), Path("b"))
    local = load_settings(None, {}, [*common, "api.address=[::1]:7472"]).api()
    assert local is not None
    assert local.cert_file is None


@pytest.mark.parametrize(
    ("flags", "link"),
    [
        (["api.address=127.0.0.1:1"], "http://127.0.0.1:1"),
        (["api.address=[::1]:1", "api.cert_file=c", "api.key_file=k"], "https://[::1]:1"),
        (["api.address=0.0.0.0:1", "api.token_file=t"], f"https://{socket.gethostname()}:1"),
        (["api.address=0.0.0.0:1", "api.token_file=t", "api.url=https://head/pulse"], "https://head/pulse"),
        (["api.address="], "http://localhost"),
    ],
)
def test_links_lead_to_where_the_api_is(flags: list[str], link: str) -> None:
    tls = [f"tls.{name}_file={name}.pem" for name in ("ca", "cert", "key")]
    assert load_settings(None, {}, ["history.directory=x", *tls, *flags]).incidents().url == link


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost:80", True), ("", True), ("[::1]", True), ("127.9.9.9", True), ("localhost.evil", False),
     ("0.0.0.0:80", False), ("[fe80::1]:80", False), ("127.0.0.1.nip.io", False)],
)  # fmt: skip
def test_names_of_this_machine_are_told_from_others(host: str, *, local: bool) -> None:
    assert is_local_name(host) is local


def test_connections_that_ask_nothing_or_never_end_a_request_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host_ctl.api.server._IDLE_S", 0.2)
    monkeypatch.setattr("host_ctl.api.application._BODY_S", 0.2)
    head = b"POST /api/v1/silences HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with Served(tmp_path) as served, contextlib.ExitStack() as stack:
        for sent, answer in (
            (b"", b""),
            (head, b""),
            (head + b"Content-Length: 9\r\n\r\n{", b"HTTP/1.1 408"),
        ):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", served.api.port), WAIT_S))
            peer.sendall(sent)
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while chunk := peer.recv(4096):
                    received += chunk
            assert received.startswith(answer)
            assert bool(received) == bool(answer)
