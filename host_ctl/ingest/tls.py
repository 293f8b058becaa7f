# SPDX-License-Identifier: Apache-2.0
"""TLS 1.3 of the server, with certificates on both sides that are read again when their files change."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from dpu_app.wire.transport import ALPN
from host_ctl.errors import InputError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the CA of the peers, and the own certificate with its key."""

    ca_file: Path
    cert_file: Path
    key_file: Path

    @property
    def all(self) -> tuple[Path, ...]:
        """All files."""
        return self.ca_file, self.cert_file, self.key_file


class ServerTls:
    """The current context. Raises InputError, naming the file, when the first one cannot be made."""

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self._stamps = self._read_stamps()
        self.context = server_context(files)
        self.problem: str | None = None
        self.reloads = 0

    def refresh(self) -> bool:
        """Take files that have changed, once they fit together; tell whether there is a new context."""
        stamps = self._read_stamps()
        if stamps == self._stamps and self.problem is None:
            return False
        try:
            self.context = server_context(self.files)
        except InputError as error:
            # A pair of files is seldom replaced at one instant: tried again at the next call.
            if str(error) != self.problem:
                _LOG.error("%s; the certificates before it stay in use", error)
            self.problem = str(error)
            return False
        self._stamps, self.problem = stamps, None
        self.reloads += 1
        _LOG.info("certificates have changed and are in use for new connections")
        return True

    def _read_stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in self.files.all)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return TLS 1.3 that asks for a certificate of the CA. Raises InputError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols([ALPN])
    # Tickets would let a peer come back without its certificate being looked at.
    context.num_tickets = 0
    try:
        context.load_verify_locations(files.ca_file)
    except OSError as error:
        raise InputError(f"tls.ca_file {files.ca_file} cannot be used as CA: {_reason(error)}") from error
    try:
        context.load_cert_chain(files.cert_file, files.key_file)
    except OSError as error:
        pair = f"tls.cert_file {files.cert_file} and tls.key_file {files.key_file}"
        raise InputError(f"{pair} cannot be used: {_reason(error)}") from error
    return context


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)
