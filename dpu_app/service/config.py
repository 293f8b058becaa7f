# SPDX-License-Identifier: Apache-2.0
"""Settings of the service: a flag wins over the environment, that over the file, that over the default."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpu_app.capture.afpacket import CaptureConfig
from dpu_app.meter.metering import MeteringConfig
from dpu_app.service.publisher import ControllerConfig, check_plaintext, split_address
from dpu_app.service.spool import SpoolConfig
from dpu_app.settings import Catalogue, SettingsError, read_table, setting, settings_of

ENVIRONMENT_PREFIX = "PULSE_DPU_"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """All settings; the key of each, as the file and the flags have it, is in its metadata."""

    interface: str = setting("", "interface", "network interface to capture on, for example p0")
    machine: str = setting("", "machine", "name of the machine; default: the host name")
    nic: str = setting("", "nic", "name of the NIC; default: its RDMA device, else the interface")
    addresses: str = setting(
        "", "addresses", "IP addresses of the NIC, with commas; default: the interface's"
    )
    mode: str = setting(
        "all",
        "capture.mode",
        "all packets, or steered: all but the middles of messages",
        choices=("all", "steered"),
    )
    rings: int = setting(1, "capture.rings", "rings among which the kernel shares the packets", 1, 64)
    ring_mib: int = setting(16, "capture.ring_mib", "memory of each ring, MiB", 1, 4096)
    promiscuous: bool = setting(True, "capture.promiscuous", "take packets to others' addresses too")
    outgoing: bool = setting(True, "capture.outgoing", "take packets that this machine sends too")
    ptp4l: str = setting("/var/run/ptp4l", "capture.ptp4l", "management socket of ptp4l; empty: never ask")
    interval_s: float = setting(
        1.0, "meter.interval_s", "a frame for each interval of this length, 0.01 to 60", 0.01, 60
    )
    window_us: int = setting(8, "meter.window_us", "width of the windows of bytes and packets", 1, 64)
    max_flows: int = setting(16_384, "meter.max_flows", "flows that are kept apart", 1, 1 << 20)
    controller: str = setting("", "controller.address", "HOST or HOST:PORT; empty: keep frames, send none")
    server_name: str = setting("", "controller.server_name", "name in its certificate; default: HOST")
    ca_file: str = setting("", "controller.ca_file", "CA of its certificate; default: the system's")
    cert_file: str = setting("", "controller.cert_file", "own certificate, PEM")
    key_file: str = setting("", "controller.key_file", "key of the own certificate, PEM")
    plaintext: bool = setting(False, "controller.plaintext", "no TLS; to addresses of this machine only")
    plaintext_to_network: bool = setting(
        False,
        "controller.plaintext_to_network",
        "no TLS to other machines either: anybody may read and forge",
    )
    spool_directory: str = setting("", "spool.directory", "where frames wait on disk; empty: in memory only")
    spool_memory_mib: int = setting(16, "spool.memory_mib", "frames that wait in memory, MiB", 1, 4096)
    spool_disk_mib: int = setting(512, "spool.disk_mib", "frames that wait on disk, MiB", 1, 1 << 20)
    status_socket: str = setting(
        "", "status.socket", "UNIX socket that tells status and metrics; empty: none"
    )
    log_level: str = setting(
        "info", "log.level", "debug, info, warning or error", choices=("debug", "info", "warning", "error")
    )

    @property
    def machine_name(self) -> str:
        """The machine's name, the host's unless it is set."""
        return self.machine or socket.gethostname().partition(".")[0]

    def capture(self) -> CaptureConfig:
        """Settings of the capture."""
        return CaptureConfig(
            self.interface,
            steered=self.mode == "steered",
            rings=self.rings,
            ring_bytes=self.ring_mib * _MIB,
            promiscuous=self.promiscuous,
            outgoing=self.outgoing,
        )

    def metering(self) -> MeteringConfig:
        """Settings of the meter."""
        return MeteringConfig(
            interval_ns=round(self.interval_s * 1e9),
            window_ns=self.window_us * 1000,
            max_flows=self.max_flows,
            silent_frames=True,
        )

    def spool(self) -> SpoolConfig:
        """Settings of the spool."""
        directory = Path(self.spool_directory) if self.spool_directory else None
        return SpoolConfig(directory, self.spool_memory_mib * _MIB, self.spool_disk_mib * _MIB)

    def publishing(self) -> ControllerConfig | None:
        """Settings of the connection; None without a controller."""
        if not self.controller:
            return None
        return ControllerConfig(
            address=self.controller,
            server_name=self.server_name or None,
            ca_file=Path(self.ca_file) if self.ca_file else None,
            cert_file=Path(self.cert_file) if self.cert_file else None,
            key_file=Path(self.key_file) if self.key_file else None,
            plaintext=self.plaintext or self.plaintext_to_network,
            plaintext_to_network=self.plaintext_to_network,
        )


SETTINGS = settings_of(ServiceConfig)
_CATALOGUE = Catalogue(SETTINGS, ENVIRONMENT_PREFIX, elsewhere=("CONFIG",))
_FLAGS = {each.key: each.flag for each in SETTINGS}


def load_config(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, str]) -> ServiceConfig:
    """Return the settings; `flags` go by key. Raises SettingsError."""
    values: dict[str, Any] = {}
    if file is not None:
        values |= _CATALOGUE.from_table(read_table(file), str(file))
    values |= _CATALOGUE.from_environment(environment)
    for key, text in flags.items():
        values |= _CATALOGUE.from_text(key, text, f"flag {_FLAGS[key]}")
    config = ServiceConfig(**values)
    _CATALOGUE.check(config)
    if not config.interface:
        raise SettingsError(
            "there is no interface: set it in the file, as PULSE_DPU_INTERFACE or by --interface"
        )
    _check_controller(config)
    return config


def _check_controller(config: ServiceConfig) -> None:
    controller = config.publishing()
    if controller is None:
        return
    try:
        split_address(controller.address)
    except ValueError as error:
        raise SettingsError(f"controller.address: {error}") from error
    if controller.plaintext:
        try:
            check_plaintext(controller)
        except ValueError as error:
            raise SettingsError(f"controller.plaintext: {error}") from error
    elif controller.cert_file is None:
        raise SettingsError(
            "the controller asks for a certificate: set controller.cert_file and controller.key_file"
        )
