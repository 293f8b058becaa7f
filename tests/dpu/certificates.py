# SPDX-License-Identifier: Apache-2.0
"""Certificates made for a test."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dpu_app.wire.transport import ALPN

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Issued:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """A CA that lives in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(self._name, self._name, self._key.public_key(), 1)
        certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(
            certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )

    def issue(self, name: str, *, machine: str = "", hosts: tuple[str, ...] = (), days: float = 1) -> Issued:
        """Issue a certificate; with days below 0 it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts if not host[0].isdigit()]
        names += [x509.IPAddress(ipaddress.ip_address(host)) for host in hosts if host[0].isdigit()]
        if machine:
            names.append(x509.UniformResourceIdentifier(f"urn:pulse:machine:{machine}"))
        builder = _builder(_named(name), self._name, key.public_key(), days)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        issued = Issued(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        issued.certificate.write_bytes(
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return issued

    def server_context(self, issued: Issued, alpn: str = ALPN) -> ssl.SSLContext:
        """TLS of a controller that asks for certificates of this CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(issued.certificate, issued.key)
        context.load_verify_locations(self.file)
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols([alpn])
        return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    begin, end = now - 3 * _DAY, now + days * _DAY
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )
