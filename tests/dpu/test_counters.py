# SPDX-License-Identifier: Apache-2.0
"""Counters of devices and the kernel, from files as they have them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dpu_app.capture import counters
from dpu_app.capture.addresses import interface_addresses
from dpu_app.capture.counters import (
    ethtool_statistics,
    interface_losses,
    rdma_device_of,
    read_counters,
    softnet_counters,
)
from dpu_app.service.measuring import _GrowingCount


def write(root: Path, files: dict[str, str]) -> Path:
    """A tree of small files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """What the kernel shows of a NIC."""
    rdma = "class/infiniband/mlx5_0/ports/1"
    return write(
        tmp_path,
        {
            "class/net/p0/speed": "400000\n",
            "class/net/p0/carrier": "1\n",
            "class/net/p0/statistics/rx_packets": "99\n",
            "class/net/p0/statistics/rx_dropped": "4\n",
            "class/net/p0/statistics/rx_missed_errors": "3\n",
            "class/net/p0/device/infiniband/mlx5_0/node_type": "1: CA\n",
            f"{rdma}/hw_counters/out_of_sequence": "17\n",
            f"{rdma}/hw_counters/lifespan": "10\n",
            f"{rdma}/counters/port_xmit_wait": "18446744073709551615\n",
            f"{rdma}/counters/VL15_dropped": "N/A (no PMA)\n",
        },
    )


def test_counters_are_gathered_by_name(sys: Path) -> None:
    device = rdma_device_of("p0", sys)
    assert device == "mlx5_0"
    found = read_counters("p0", device, sys)
    assert found["link_mbps"] == 400_000
    assert found["rx_packets"] == 99
    assert found["rdma_1_out_of_sequence"] == 17
    assert found["rdma_1_port_xmit_wait"] == 2**64 - 1
    assert not {name for name in found if "lifespan" in name or "VL15" in name}


def test_losses_of_an_interface_are_those_of_the_kernel_and_of_the_device(sys: Path) -> None:
    assert interface_losses("p0", sys) == 7
    assert interface_losses("p9", sys) == 0


def test_a_device_without_counters_has_none(sys: Path) -> None:
    assert rdma_device_of("p9", sys) is None
    assert not {name for name in read_counters("p9", "mlx5_9", sys) if not name.startswith("softnet_")}


def test_a_speed_that_is_not_known_is_left_out(sys: Path) -> None:
    (sys / "class/net/p0/speed").write_text("-1\n")
    assert "link_mbps" not in read_counters("p0", None, sys)


def test_the_kernels_queues_of_all_processors_add_up(tmp_path: Path) -> None:
    file = tmp_path / "softnet_stat"
    file.write_text("00000010 0000000a 00000001 0 0\n00000010 0000000b 00000002 0 0\n")
    assert dict(softnet_counters(file)) == {"softnet_dropped": 21, "softnet_squeezed": 3}
    assert dict(softnet_counters(tmp_path / "none")) == {}


def test_a_driver_is_asked_in_the_kernels_form(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"rx_out_of_buffer": 5, "tx_pause_ctrl_phy": 2**40}

    def answer(_handle: object, interface: str, command: bytearray) -> None:
        (kind,) = struct.unpack_from("=I", command)
        assert interface == "p0"
        if kind == 0x37:
            assert struct.unpack_from("=Q", command, 8) == (2,)
            struct.pack_into("=I", command, 16, len(values))
        elif kind == 0x1B:
            for index, name in enumerate(values):
                struct.pack_into("32s", command, 12 + 32 * index, name.encode())
        else:
            assert kind == 0x1D
            struct.pack_into("=2Q", command, 8, *values.values())

    monkeypatch.setattr(counters, "_ethtool", answer)
    assert ethtool_statistics("p0") == values


def test_a_device_that_is_not_there_has_no_driver_and_no_addresses() -> None:
    assert ethtool_statistics("nix9") == {}
    assert interface_addresses("nix9") == ()


def test_addresses_that_reach_beyond_the_link_are_told(tmp_path: Path) -> None:
    file = tmp_path / "if_inet6"
    file.write_text(
        "fe800000000000000000000000000001 02 40 20 80       lo\n"
        "fd000000000000000000000000000009 02 40 00 80       lo\n"
        "fd000000000000000000000000000008 03 40 00 80       p9\n"
    )
    assert interface_addresses("lo", file) == ("127.0.0.1", "fd00::9")


@pytest.mark.parametrize(
    ("readings", "total"),
    [
        ([5], 0),
        ([5, 9], 4),
        ([5, 9, 9], 4),
        ([5, 9, 2], 6),
        ([2**32 - 1, 3], 3),
        ([0, 2**64 - 1], 2**64 - 1),
    ],
)
def test_a_counter_that_begins_anew_never_makes_a_huge_or_negative_loss(
    readings: list[int], total: int
) -> None:
    count = _GrowingCount()
    for reading in readings:
        count.see(reading)
    assert count.total == total
