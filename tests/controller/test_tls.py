# SPDX-License-Identifier: Apache-2.0
"""Who is let in: certificates of `pulse certs` and of other authorities."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from host_ctl.errors import UsageError
from host_ctl.ingest.identity import IdentityError, machine_of
from host_ctl.ingest.server import Listen
from tests.controller.running import Peer, Pki, Service, wait_for
from tests.dpu.certificates import Authority, Issued


def context_of(authority: Authority, issued: Issued | None, alpn: str = "pulse/1") -> ssl.SSLContext:
    """TLS of a client with a certificate of some authority."""
    context = ssl.create_default_context(cafile=authority.file)
    context.set_alpn_protocols([alpn])
    if issued is not None:
        context.load_cert_chain(issued.certificate, issued.key)
    return context


@pytest.fixture
def own(tmp_path: Path) -> Authority:
    """An authority that a site has already."""
    return Authority(tmp_path)


def serving(folder: Path, own: Authority) -> Service:
    """A controller with certificates of that authority, by their paths."""
    server = own.issue("server", hosts=("localhost",))
    return Service(
        folder, None, listen__plaintext=False, tls__ca_file=str(own.file),
        tls__cert_file=str(server.certificate), tls__key_file=str(server.key),
    )  # fmt: skip


def is_kept_out(service: Service, context: ssl.SSLContext) -> bool:
    """Whether the controller ends the connection before it welcomes."""
    try:
        with Peer(service.port, context) as peer:
            peer.greet("node1")
    except OSError:
        return True
    return False


def test_a_sites_own_authority_is_used_and_wrong_certificates_are_kept_out(
    tmp_path: Path, own: Authority
) -> None:
    other = Authority(tmp_path, "other")
    good = own.issue("good", machine="node1")
    strangers = {
        "none": context_of(own, None),
        "expired": context_of(own, own.issue("expired", machine="node1", days=-1)),
        "without a machine": context_of(own, own.issue("nobody", hosts=("node1",))),
        "of another machine": context_of(own, own.issue("node2", machine="node2")),
        "other protocol": context_of(own, good, "http/1.1"),
    }
    foreign = other.issue("foreign", machine="node1")
    strangers["of another authority"] = context_of(own, None)
    strangers["of another authority"].load_cert_chain(foreign.certificate, foreign.key)
    old = context_of(own, good)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    strangers["old TLS"] = old
    with serving(tmp_path, own) as service:
        assert not is_kept_out(service, context_of(own, good))
        let_in = [name for name, context in strangers.items() if not is_kept_out(service, context)]
        assert let_in == []
        assert "its certificate is not accepted: certificate has expired" in service.log
        wait_for(lambda: service.metric("pulse_ingest_failed_handshakes_total") >= 3, "failures counted")


def test_a_connection_ends_when_its_certificate_expires(tmp_path: Path, own: Authority) -> None:
    brief = own.issue("brief", machine="node1", days=5 / 86_400)
    with serving(tmp_path, own) as service, Peer(service.port, context_of(own, brief)) as peer:
        peer.greet("node1")
        assert peer.is_closed()
        wait_for(lambda: "its certificate has expired" in service.log, "the reason told")


def test_a_controllers_certificate_does_not_make_a_dpu(service: Service, pki: Pki) -> None:
    context = pki.client(None)
    context.load_cert_chain(pki.server, pki.server.with_suffix(".key"))
    assert is_kept_out(service, context)


def test_renewed_certificates_are_used_without_a_restart_and_broken_ones_are_not(tmp_path: Path) -> None:
    pki, renewed = Pki(tmp_path), Pki(tmp_path, "renewed")
    with Service(tmp_path, pki) as service:
        assert not is_kept_out(service, pki.client("node1"))
        key = pki.server.with_suffix(".key")
        before = key.read_bytes()
        key.write_text("no key")
        wait_for(lambda: "the certificates before it stay in use" in service.log, "the problem told")
        assert not is_kept_out(service, pki.client("node1"))
        key.write_bytes(before)
        for mine, new in ((pki.ca, renewed.ca), (pki.server, renewed.server)):
            mine.write_bytes(new.read_bytes())
        key.write_bytes(renewed.server.with_suffix(".key").read_bytes())
        wait_for(lambda: not is_kept_out(service, renewed.client("node1")), "the new authority in use")
        assert service.process.poll() is None


@pytest.mark.parametrize(
    "names",
    [
        (),
        (("DNS", "urn:pulse:machine:node1"),),
        (("URI", "urn:pulse:machine:"),),
        (("URI", "urn:pulse:machine:../x"),),
        (("URI", "urn:pulse:machine:a"), ("URI", "urn:pulse:machine:b")),
    ],
)
def test_a_certificate_that_does_not_name_one_machine_names_none(names: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(IdentityError):
        machine_of({"subjectAltName": names})
    assert machine_of({"subjectAltName": (("DNS", "x"), ("URI", "urn:pulse:machine:node1"))}) == "node1"


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.1", "head.example"])
def test_plain_text_is_for_this_machine_alone_unless_a_setting_says_otherwise(host: str) -> None:
    with pytest.raises(UsageError, match="plaintext_to_network"):
        Listen(host, 1, plaintext=True).check()
    Listen(host, 1, plaintext=True, plaintext_to_network=True).check()
    Listen("127.0.0.1", 1, plaintext=True).check()
    Listen("::1", 1, plaintext=True).check()
