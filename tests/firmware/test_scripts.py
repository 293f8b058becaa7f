# SPDX-License-Identifier: Apache-2.0
"""The scripts that make the scalable function and the copy rules, with commands that remember."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.firmware.fakes import Machine
from tests.firmware.switch import SCRIPTS, add_mlxdevm, add_switch, script

GOLDEN = Path(__file__).with_name("golden")
ROOT = SCRIPTS.parents[1]
ALL_SHELL = sorted(ROOT.glob("firmware_cfg/**/*.sh"))
RUNNABLE = ["sf.sh", "copy-ovs.sh", "copy-tc.sh", "copy.sh"]
MAC = "02:00:00:00:00:58"
CHANGING = {"create", "delete", "add", "del", "set", "remove"}


def changes(machine: Machine) -> list[list[str]]:
    return [call for call in machine.calls() if CHANGING & set(call)]


@pytest.mark.parametrize("path", ALL_SHELL, ids=lambda path: path.name)
def test_every_script_parses(path: Path) -> None:
    done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_shellcheck_has_nothing_to_say() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("there is no shellcheck (Debian: shellcheck)")
    done = subprocess.run(
        ["shellcheck", "-x", *map(str, ALL_SHELL)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_script_stops_at_the_first_error(name: str) -> None:
    assert "\nset -euo pipefail\n" in (SCRIPTS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_script_is_refused_off_a_dpu(machine: Machine, name: str) -> None:
    add_switch(machine, ovs=True)
    shutil.rmtree(machine.root / "sys/bus/platform")
    done = script(machine, name)
    assert done.returncode == 1
    assert "not the Arm side of a BlueField" in done.stderr
    assert changes(machine) == []


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_script_explains_itself(machine: Machine, name: str) -> None:
    done = script(machine, name, "--help")
    assert done.returncode == 0
    assert f"usage: {name}" in done.stdout
    assert "exit status:" in done.stdout


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("sf.sh", ["--sfnum", "1000"], "--sfnum 1000 is not 0 to 999"),
        ("sf.sh", ["--sfnum"], "--sfnum needs a value"),
        ("sf.sh", ["--pci", "03:00.0"], "--pci 03:00.0 is no"),
        ("sf.sh", ["--mac", "zz"], "--mac zz is no"),
        ("sf.sh", ["--tool", "ip"], "--tool ip is neither"),
        ("copy-ovs.sh", ["--undu"], "there is no option --undu"),
        ("copy-tc.sh", ["--host"], "--host needs a value"),
        ("copy.sh", ["now"], "there is no option now"),
    ],
)
def test_wrong_usage_is_named_and_changes_nothing(
    machine: Machine, name: str, arguments: list[str], complaint: str
) -> None:
    add_switch(machine, ovs=True)
    done = script(machine, name, *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert changes(machine) == []


def test_a_trusted_function_is_created_once_and_deleted_by_undo(machine: Machine) -> None:
    add_switch(machine, ovs=False)
    assert script(machine, "sf.sh", "--mac", MAC).returncode == 0
    create = f"mlnx-sf --action create --device 0000:03:00.0 --sfnum 88 --hwaddr {MAC} --enable-trust"
    assert changes(machine) == [create.split()]
    again = script(machine, "sf.sh", "--mac", MAC)
    assert again.returncode == 0
    assert "is there already (pci/0000:03:00.0/229409)" in again.stdout
    assert len(changes(machine)) == 1
    assert script(machine, "sf.sh", "--undo").returncode == 0
    assert changes(machine)[-1] == ["mlnx-sf", "--action", "delete", "--sfindex", "pci/0000:03:00.0/229409"]
    assert "there is no function 88" in script(machine, "sf.sh", "--undo").stdout


def test_a_function_is_refused_while_the_switch_makes_no_representors(machine: Machine) -> None:
    add_switch(machine, ovs=False)
    (machine.cards / "mode").write_text("legacy", encoding="utf-8")
    done = script(machine, "sf.sh")
    assert done.returncode == 1
    assert "is not in switchdev mode: devlink dev eswitch set pci/0000:03:00.0 mode switchdev" in done.stderr
    assert changes(machine) == []
    machine.fake("devlink", "exit 1")
    assert "is the card in DPU mode?" in script(machine, "sf.sh").stderr


def test_a_function_of_the_host_with_the_same_number_is_not_taken_for_ours(machine: Machine) -> None:
    add_switch(machine, ovs=False)
    add_mlxdevm(machine)
    host = '{"port": {"pci/0000:03:00.0/163840": {"flavour": "pcisf", "controller": 1, "sfnum": 88}}}'
    (machine.cards / "ports.json").write_text(host, encoding="utf-8")
    done = script(machine, "sf.sh", "--tool", "mlxdevm", "--undo")
    assert "there is no function 88" in done.stdout
    assert changes(machine) == []


@pytest.mark.parametrize("listing", ["SF Index: pci/0000:03:00.0/229409", "[1]", "{"])
def test_a_listing_that_cannot_be_read_is_an_error_not_an_absence(machine: Machine, listing: str) -> None:
    add_switch(machine, ovs=False)
    machine.fake("mlnx-sf", f"echo '{listing}'")
    done = script(machine, "sf.sh")
    assert done.returncode == 1
    assert "cannot read what mlnx-sf lists" in done.stderr
    assert changes(machine) == []


def test_functions_of_other_numbers_and_ports_are_left_alone(machine: Machine) -> None:
    add_switch(machine, ovs=False)
    script(machine, "sf.sh", "--sfnum", "4")
    script(machine, "sf.sh", "--pci", "0000:03:00.1")
    machine.forget()
    assert "there is no function 88 of 0000:03:00.0" in script(machine, "sf.sh", "--undo").stdout
    assert changes(machine) == []


def test_mlxdevm_adds_trusts_activates_and_binds_the_function(machine: Machine) -> None:
    add_switch(machine, ovs=False)
    add_mlxdevm(machine)
    done = script(machine, "sf.sh", "--tool", "mlxdevm", "--mac", MAC)
    assert (done.returncode, done.stderr) == (0, "")
    handle = "pci/0000:03:00.0/229409"
    assert changes(machine) == [
        ["mlxdevm", "port", "add", "pci/0000:03:00.0", "flavour", "pcisf", "pfnum", "0", "sfnum", "88"],
        ["mlxdevm", "port", "function", "set", handle, "hw_addr", MAC, "trust", "on", "state", "active"],
    ]
    drivers = machine.root / "sys/bus/auxiliary/drivers"
    assert (drivers / "mlx5_core.sf_cfg/unbind").read_text() == "mlx5_core.sf.4\n"
    assert (drivers / "mlx5_core.sf/bind").read_text() == "mlx5_core.sf.4\n"
    assert script(machine, "sf.sh", "--tool", "mlxdevm", "--undo").returncode == 0
    assert [call[2] for call in changes(machine)[2:]] == ["function", "del"]


def test_an_address_is_local_and_the_same_at_every_start(machine: Machine) -> None:
    add_switch(machine, ovs=False)
    (machine.root / "etc").mkdir()
    (machine.root / "etc/machine-id").write_text("0123456789abcdef\n", encoding="ascii")
    first = script(machine, "sf.sh", "--dry-run").stdout
    assert " --hwaddr 02:" in first
    assert script(machine, "sf.sh", "--dry-run").stdout == first
    assert script(machine, "sf.sh", "--dry-run", "--sfnum", "89").stdout != first.replace(" 88 ", " 89 ")


@pytest.mark.parametrize(
    ("golden", "name", "arguments", "ovs"),
    [
        ("sf-mlnx-sf.txt", "sf.sh", ["--mac", MAC], False),
        ("sf-mlxdevm.txt", "sf.sh", ["--mac", MAC, "--tool", "mlxdevm"], False),
        ("copy-ovs.txt", "copy-ovs.sh", [], True),
        ("copy-tc.txt", "copy-tc.sh", ["--vlan"], False),
        ("copy-tc-software.txt", "copy-tc.sh", ["--software"], False),
    ],
)
def test_a_dry_run_shows_exactly_what_would_be_done(
    machine: Machine, golden: str, name: str, arguments: list[str], ovs: bool
) -> None:
    add_switch(machine, ovs=ovs)
    add_mlxdevm(machine)
    (machine.root / "sys/class/net/en3f0pf0sf88").mkdir()
    done = script(machine, name, "--dry-run", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.replace(str(machine.root), "")
    assert shown == (GOLDEN / golden).read_text(encoding="utf-8")
    assert changes(machine) == []


def test_a_mirror_is_made_once_and_taken_away_by_undo(machine: Machine) -> None:
    add_switch(machine, ovs=True)
    script(machine, "sf.sh")
    machine.forget()
    assert script(machine, "copy-ovs.sh").returncode == 0
    assert len([call for call in changes(machine) if "create" in call]) == 1
    assert "is on ovsbr1 already" in script(machine, "copy-ovs.sh").stdout
    assert len(changes(machine)) == 1
    assert script(machine, "copy-ovs.sh", "--undo").returncode == 0
    assert "there is no mirror" in script(machine, "copy-ovs.sh", "--undo").stdout


def test_a_mirror_is_filtered_where_open_vswitch_can(machine: Machine) -> None:
    add_switch(machine, ovs=True)
    script(machine, "sf.sh")
    (machine.cards / "filters").touch()
    script(machine, "copy-ovs.sh")
    assert 'filter="udp,tp_dst=4791"' in changes(machine)[-1]


def test_a_mirror_without_hardware_offload_is_refused(machine: Machine) -> None:
    add_switch(machine, ovs=True)
    script(machine, "sf.sh")
    machine.forget()
    (machine.cards / "hw-offload").unlink()
    done = script(machine, "copy-ovs.sh")
    assert done.returncode == 1
    assert "the host's traffic would cross the Arm cores" in done.stderr
    assert changes(machine) == []


def test_tc_rules_are_made_once_for_both_ways_and_taken_away_by_undo(machine: Machine) -> None:
    add_switch(machine, ovs=False)
    script(machine, "sf.sh")
    machine.forget()
    assert script(machine, "copy-tc.sh", "--vlan").returncode == 0
    assert len([c for c in changes(machine) if c[1:3] == ["filter", "add"]]) == 8
    assert all("skip_sw" in c for c in changes(machine) if c[1] == "filter")
    made = len(changes(machine))
    assert script(machine, "copy-tc.sh", "--vlan").returncode == 0
    assert len(changes(machine)) == made
    assert script(machine, "copy-tc.sh", "--undo").returncode == 0
    assert len([c for c in changes(machine) if c[1:3] == ["filter", "del"]]) == 8
    assert list((machine.cards / "tc").glob("*.479*")) == []


def test_tc_rules_beside_open_vswitch_are_refused(machine: Machine) -> None:
    add_switch(machine, ovs=True)
    script(machine, "sf.sh")
    machine.forget()
    done = script(machine, "copy-tc.sh")
    assert done.returncode == 1
    assert "pf0hpf belongs to Open vSwitch" in done.stderr
    assert changes(machine) == []


@pytest.mark.parametrize("name", ["copy-ovs.sh", "copy-tc.sh"])
def test_a_copy_to_a_function_that_is_not_there_is_refused(machine: Machine, name: str) -> None:
    add_switch(machine, ovs=name == "copy-ovs.sh")
    done = script(machine, name)
    assert done.returncode == 1
    assert "there is no network device en3f0pf0sf88: create it with sf.sh first" in done.stderr


@pytest.mark.parametrize(("kind", "command"), [("ovs", "ovs-vsctl"), ("tc", "tc")])
def test_function_and_copy_are_made_in_order_and_unmade_the_other_way_round(
    machine: Machine, kind: str, command: str
) -> None:
    add_switch(machine, ovs=kind == "ovs")
    done = script(machine, "copy.sh", PULSE_COPY_WITH=kind)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(dict.fromkeys(call[0] for call in changes(machine))) == ["mlnx-sf", command]
    machine.forget()
    assert script(machine, "copy.sh", "--undo", PULSE_COPY_WITH=kind).returncode == 0
    assert list(dict.fromkeys(call[0] for call in changes(machine))) == [command, "mlnx-sf"]


def test_the_representor_of_another_function_is_named_after_it(machine: Machine) -> None:
    add_switch(machine, ovs=True)
    (machine.root / "sys/class/net/en131f1pf1sf7").mkdir()
    done = script(machine, "copy.sh", PULSE_PCI="0000:83:00.1", PULSE_SFNUM="7", PULSE_HOST="pf1hpf")
    assert done.returncode == 0, done.stderr
    assert changes(machine)[-1][2:5] == ["add-port", "ovsbr1", "en131f1pf1sf7"]


def test_a_dry_run_of_both_needs_no_function_yet(machine: Machine) -> None:
    add_switch(machine, ovs=True)
    done = script(machine, "copy.sh", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "there is no network device en3f0pf0sf88 yet" in done.stdout
    assert "create Mirror" in done.stdout
    assert changes(machine) == []


def test_an_unknown_way_to_copy_is_refused(machine: Machine) -> None:
    add_switch(machine, ovs=True)
    done = script(machine, "copy.sh", PULSE_COPY_WITH="magic")
    assert done.returncode == 2
    assert "it must be ovs, tc or none" in done.stderr
