# SPDX-License-Identifier: Apache-2.0
"""The methods that Pulse is compared with, behind one interface."""

from __future__ import annotations

from bench.peers.aegis import Aegis
from bench.peers.ccl_d import CclD
from bench.peers.epochs import EpochMeter
from bench.peers.greyhound import Greyhound
from bench.peers.holmes import Holmes
from bench.peers.interface import Contender, ContenderVerdict
from bench.peers.port_counters import PortCounters
from bench.peers.ras import Ras

__all__ = ["CONTENDERS", "Contender", "ContenderVerdict"]

CONTENDERS: tuple[Contender, ...] = (
    Aegis(),
    CclD(),
    Holmes(),
    Greyhound(),
    Ras(),
    PortCounters(),
    EpochMeter(),
)
