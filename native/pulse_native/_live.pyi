# SPDX-License-Identifier: Apache-2.0
"""Capture from Linux network interfaces; offline analysis never loads this module."""

from pulse_native._core import PacketBatch

class LiveCapture:
    """RoCEv2 packets of one interface while they pass, headers only, by TPACKET_V3 rings.

    `rings` sockets share the packets in the kernel; each has `blocks` blocks of `block_bytes` (a power of
    two, at least a page), handed over when full or after `retire_ms`. `steered` leaves out the MIDDLE packets
    of messages. May be used by several threads, one after the other. Raises OSError with the reason.
    """

    def __init__(
        self,
        interface: str,
        *,
        steered: bool = False,
        rings: int = ...,
        block_bytes: int = ...,
        blocks: int = ...,
        retire_ms: int = ...,
        promiscuous: bool = True,
        outgoing: bool = True,
    ) -> None: ...
    def read(self, timeout_ms: int, max_packets: int = ...) -> PacketBatch:
        """Return packets in the order of their stamps, waiting up to `timeout_ms` while there is none."""
    def is_attached(self) -> bool:
        """Tell whether the interface that was opened is still there."""
    def counts(self) -> dict[str, int]:
        """Return what was taken and lost so far.

        `packets` handed out, `outgoing` ones among them, `dropped` because a ring was full, `freezes` of
        rings, `unstamped` packets left out, and `times_down` of the interface.
        """
    def close(self) -> None:
        """Give the interface and the rings back; every later call raises ValueError."""
    @property
    def hardware_stamps(self) -> bool:
        """Whether stamps are of the NIC's clock, otherwise of the system's."""

def filter_program(*, steered: bool) -> bytes:
    """Return the classic BPF program that the kernel runs on every packet, 8 bytes per instruction."""
