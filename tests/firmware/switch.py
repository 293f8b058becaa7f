# SPDX-License-Identifier: Apache-2.0
"""Fakes of the commands that speak to the embedded switch; they remember what they made."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.firmware.fakes import Machine

SCRIPTS = Path(__file__).parents[2] / "firmware_cfg" / "scripts"

# State is the object that `-a show --json` prints; numbers of new functions count from 229409 on.
_MLNX_SF = """
state="$FAKE_CARDS/sf.json"; [[ -e $state ]] || echo '{}' >"$state"
while [[ $# -gt 0 ]]; do case $1 in
  -a|--action) action=$2; shift 2;; --device) device=$2; shift 2;; --sfnum) number=$2; shift 2;;
  --hwaddr|--sfindex) value=$2; shift 2;; *) shift;; esac; done
case $action in
  show) cat "$state";;
  create) jq --arg k "pci/$device/$((229321 + number))" --arg d "$device" --argjson n "$number" \
    '.[$k] = {device: $d, sfnum: $n}' "$state" >"$state.new"; mv "$state.new" "$state"
    mkdir -p "$PULSE_SYSROOT/sys/class/net/en3f0pf0sf$number";;
  delete) jq -e --arg k "$value" 'has($k)' "$state" >/dev/null || { echo "no SF $value" >&2; exit 1; }
    jq --arg k "$value" 'del(.[$k])' "$state" >"$state.new"; mv "$state.new" "$state";;
esac
"""
_MLXDEVM = """
state="$FAKE_CARDS/ports.json"
[[ -e $state ]] || echo '{"port":{"pci/0000:03:00.0/65535":{"flavour":"physical"}}}' >"$state"
case "$*" in
  "-j port show") cat "$state";;
  "port add "*) parent=$3; number=${@: -1}; jq --arg k "$parent/$((229321 + number))" --argjson n "$number" \
    '.port[$k] = {flavour: "pcisf", sfnum: $n}' "$state" >"$state.new"; mv "$state.new" "$state";;
  "port del "*) jq --arg k "$3" 'del(.port[$k])' "$state" >"$state.new"; mv "$state.new" "$state";;
esac
"""
# One file per interface and priority stands for its rules.
_TC = """
rules="$FAKE_CARDS/tc"; mkdir -p "$rules"
pref() { while [[ $# -gt 0 ]]; do [[ $1 != pref ]] || echo "$2"; shift; done; }
case "$1 $2" in
  "qdisc show") [[ ! -e $rules/$4.ingress ]] || echo "qdisc ingress ffff: parent ffff:fff1";;
  "qdisc add") touch "$rules/$4.ingress";;
  "filter show") [[ ! -e $rules/$4.$(pref "$@") ]] || echo "  dst_port 4791";;
  "filter add") [[ -e $rules/$4.ingress ]] || exit 2; touch "$rules/$4.$(pref "$@")";;
  "filter del") rm "$rules/$4.$(pref "$@")";;
esac
"""
_OVS = """
state="$FAKE_CARDS/mirror"
case "$*" in
  *"get Open_vSwitch . other_config:hw-offload"*) cat "$FAKE_CARDS/hw-offload" 2>/dev/null || true;;
  *"--columns=filter list Mirror"*) [[ -e $FAKE_CARDS/filters ]];;
  *"find Mirror"*) [[ ! -e $state ]] || echo 11111111-2222-3333-4444-555555555555;;
  *"find Bridge"*) [[ ! -e $state ]] || echo ovsbr1;;
  "port-to-br "*) [[ -e $FAKE_CARDS/bridge ]] && echo ovsbr1;;
  *"create Mirror"*) touch "$state";;
  *"remove Bridge"*) rm "$state";;
esac
"""


def add_switch(machine: Machine, *, ovs: bool) -> None:
    """Give the machine the commands, and a bridge with hardware offload if it has Open vSwitch."""
    machine.make_dpu()
    machine.fake("mlnx-sf", _MLNX_SF)
    machine.fake("devlink", 'echo "$4: mode $(cat "$FAKE_CARDS/mode") inline-mode none"')
    (machine.cards / "mode").write_text("switchdev", encoding="utf-8")
    machine.fake("tc", _TC)
    if ovs:
        machine.fake("ovs-vsctl", _OVS)
        (machine.cards / "bridge").touch()
        (machine.cards / "hw-offload").write_text('"true"\n', encoding="utf-8")


def add_mlxdevm(machine: Machine) -> None:
    """Give the machine mlxdevm, and a new function to bind to its driver."""
    machine.fake("mlxdevm", _MLXDEVM)
    for name in ("mlx5_core.sf_cfg/mlx5_core.sf.4", "mlx5_core.sf"):
        (machine.root / "sys/bus/auxiliary/drivers" / name).mkdir(parents=True)
    device = machine.root / "sys/bus/auxiliary/devices/mlx5_core.sf.4"
    device.mkdir(parents=True)
    (device / "sfnum").write_text("88\n", encoding="ascii")


def script(machine: Machine, name: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a script of `firmware_cfg/scripts` on the machine."""
    return subprocess.run(
        [str(machine.bin / "bash"), str(SCRIPTS / name), *arguments],
        env=machine.environment | more,
        capture_output=True,
        text=True,
        check=False,
    )
