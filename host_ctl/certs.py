# SPDX-License-Identifier: Apache-2.0
"""A small certificate authority for Pulse: a folder with one certificate per machine and the controller's."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from host_ctl.errors import InputError, OutputError, UsageError
from host_ctl.ingest.identity import MACHINE_URN, IdentityError, usable_name

CA_NAME = "ca"
_CERT, _KEY = ".crt", ".key"
# Clocks of machines that are set up differ.
_BACKDATED = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate as people need to see it."""

    path: Path
    role: str
    names: tuple[str, ...]
    expires: datetime.datetime

    def days_left(self, now: datetime.datetime) -> float:
        """Return how long it is valid, negative when it has expired."""
        return (self.expires - now) / datetime.timedelta(days=1)


def init_authority(folder: Path, name: str, days: int) -> Path:
    """Make a CA in a folder; return its certificate, which every side needs. Never overwrites."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    builder = _builder(subject, subject, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made: {error.strerror}") from error
    return _write_pair(folder, CA_NAME, builder.sign(key, hashes.SHA256()), key)


def issue_machine(folder: Path, machine: str, days: int) -> Path:
    """Issue the certificate of a machine's DPUs; return it. Never overwrites."""
    try:
        usable_name(machine, "machine")
    except IdentityError as error:
        raise UsageError(str(error)) from error
    names = [x509.UniformResourceIdentifier(f"{MACHINE_URN}{machine}")]
    return _issue(folder, machine, names, ExtendedKeyUsageOID.CLIENT_AUTH, days)


def issue_server(folder: Path, hosts: Sequence[str], days: int, name: str = "controller") -> Path:
    """Issue the controller's certificate for its names and addresses; return it. Never overwrites."""
    if not hosts:
        raise UsageError("the controller's certificate needs the names or addresses by which DPUs reach it")
    return _issue(folder, name, [_host(host) for host in hosts], ExtendedKeyUsageOID.SERVER_AUTH, days)


def list_certificates(folder: Path) -> list[Certificate]:
    """Return the certificates of a folder, those that expire first at the front. Raises InputError."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder of certificates: make one by pulse certs init")
    found = [read_certificate(path) for path in sorted(folder.glob(f"*{_CERT}"))]
    return sorted(found, key=lambda each: each.expires)


def read_certificate(path: Path) -> Certificate:
    """Return what a PEM certificate says of itself. Raises InputError."""
    certificate = _load_certificate(path)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        shown = tuple(str(each.value) for each in names)
    except x509.ExtensionNotFound:
        shown = ()
    is_ca = _is_authority(certificate)
    if is_ca:
        role = "authority"
    else:
        role = "machine" if any(each.startswith(MACHINE_URN) for each in shown) else "controller"
    return Certificate(path, role, shown, certificate.not_valid_after_utc)


def _issue(
    folder: Path,
    name: str,
    names: Sequence[x509.GeneralName],
    purpose: x509.ObjectIdentifier,
    days: int,
) -> Path:
    if name == CA_NAME:
        raise UsageError(f"{CA_NAME} is the name of the authority's own files: choose another")
    authority, authority_key = _load_authority(folder)
    if _named(name) == authority.subject:
        # Verifiers take a certificate whose subject is its issuer for one that signed itself.
        raise UsageError(f"{name} is the name of the authority: make the authority by another --name")
    now = datetime.datetime.now(datetime.UTC)
    rest = (authority.not_valid_after_utc - now).days
    if days > rest:
        raise UsageError(f"the authority {folder} expires in {rest} days: ask for no more than these")
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _builder(_named(name), authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return _write_pair(folder, name, certificate, key)


def _load_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    path = folder / f"{CA_NAME}{_KEY}"
    certificate = _load_certificate(folder / f"{CA_NAME}{_CERT}")
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be used as the authority's key: {_reason(error)}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path} is not a key that pulse certs init makes")
    return certificate, key


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: make an authority by pulse certs init first") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a certificate: {_reason(error)}") from error


def _write_pair(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> Path:
    paths = folder / f"{name}{_CERT}", folder / f"{name}{_KEY}"
    existing = [path for path in paths if path.exists()]
    if existing:
        raise OutputError(f"{existing[0]} exists and is not overwritten: move it away first")
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        _write_new(paths[1], secret, 0o600)
        _write_new(paths[0], certificate.public_bytes(pem), 0o644)
    except OSError as error:
        raise OutputError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    return paths[0]


def _write_new(path: Path, content: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    if days < 1:
        raise UsageError("a certificate must be valid for at least one day")
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _named(name: str) -> x509.Name:
    if not 0 < len(name) <= 64:
        raise UsageError(f"{name[:64]!r} cannot be the name of a certificate: 1 to 64 characters are allowed")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise UsageError(f"{host!r} is no host name and no address") from error


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
