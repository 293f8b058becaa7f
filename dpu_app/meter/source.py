# SPDX-License-Identifier: Apache-2.0
"""Where packets come from: the protocol that capture back ends and the simulator fulfil."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from dpu_app.wire.frame import CaptureMode
from pulse_native import PacketBatch


class PacketSource(Protocol):
    """Packets of one NIC, in the order of capture."""

    @property
    def mode(self) -> CaptureMode:
        """Which packets are taken; constant over the life of the source."""

    def batches(self) -> Iterator[PacketBatch]:
        """Yield batches until the capture ends; an empty batch only says that time passes."""

    def losses(self) -> Mapping[str, int]:
        """Return what was lost so far, by name of the place of loss; each count only grows."""
