#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Creates the scalable function on which the agent reads its copies, and makes it trusted.
#
# usage: sf.sh [--pci 0000:03:00.0] [--sfnum 88] [--mac MAC] [--tool mlnx-sf|mlxdevm] [--dry-run] [--undo]
#
#   --pci      physical function that the new one belongs to; its last digit is the port
#   --sfnum    number of the function; the network device is then enp3s0f0s88, its representor en3f0pf0sf88.
#              From 1000 on numbers belong to the virtio-net controller
#   --mac      its address; default: made from --pci and --sfnum, local, the same at every start
#   --tool     mlnx-sf comes with NVIDIA's images; mlxdevm is what it calls. Default: mlnx-sf where it is there
#   --dry-run  show what would be done
#   --undo     delete the function
#
# Trusted, since hardware time stamps and PTP need it. A function lives until the next start of the card:
# pulse-dpu-copy.service makes it again. A function of that number that is there already is kept.
# exit status: 0 as asked (or already so), 1 failed, 2 wrong usage
set -euo pipefail
# shellcheck source=firmware_cfg/scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
PATH=$PATH:/opt/mellanox/iproute2/sbin:/sbin

PCI=0000:03:00.0
SFNUM=88
MAC=
TOOL=

parse() {
    while [[ $# -gt 0 ]]; do
        case $1 in
            --pci) PCI=$(value_of "$@"); shift ;;
            --sfnum) SFNUM=$(value_of "$@"); shift ;;
            --mac) MAC=$(value_of "$@"); shift ;;
            --tool) TOOL=$(value_of "$@"); shift ;;
            --dry-run) DRY_RUN=yes ;;
            --undo) UNDO=yes ;;
            --help) show_help && exit 0 ;;
            *) usage_error "there is no option $1" ;;
        esac
        shift
    done
    [[ $PCI =~ ^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$ ]] || usage_error "--pci $PCI is no 0000:03:00.0"
    [[ $SFNUM =~ ^[0-9]{1,3}$ ]] || usage_error "--sfnum $SFNUM is not 0 to 999"
    SFNUM=$((10#$SFNUM))
    [[ -z $MAC || $MAC =~ ^([0-9a-f]{2}:){5}[0-9a-f]{2}$ ]] || usage_error "--mac $MAC is no 02:00:00:00:00:01"
    case $TOOL in
        mlnx-sf | mlxdevm) need "$TOOL" "take the other --tool, or install NVIDIA's OFED" ;;
        "")
            TOOL=mlnx-sf
            command -v mlnx-sf >/dev/null || TOOL=mlxdevm
            need "$TOOL" "neither mlnx-sf nor mlxdevm is there; install NVIDIA's OFED"
            ;;
        *) usage_error "--tool $TOOL is neither mlnx-sf nor mlxdevm" ;;
    esac
    need python3 "install the package python3"
}

# 02: a local address. Bus, slot and port of --pci and the number make it differ between functions of a card;
# the machine's id makes it differ between cards.
made_mac() {
    local digest
    digest=$({ cat "$SYSROOT/etc/machine-id" 2>/dev/null || uname -n; echo "$PCI $SFNUM"; } | sha256sum)
    echo "02:${digest:0:2}:${digest:2:2}:${digest:4:2}:${digest:6:2}:${digest:8:2}"
}

# Both tools print an object with handles as keys; mlxdevm has it one level deeper, and the host's functions too.
FIND='
import json, sys
listed = json.loads(sys.stdin.read().strip() or "{}")
for handle, port in listed.get("port", listed).items():
    own = handle.startswith("pci/" + sys.argv[1] + "/") and not port.get("controller")
    if own and str(port.get("sfnum")) == sys.argv[2]:
        print(handle)
'

# Prints the handle, pci/0000:03:00.0/229409, of the function with our number; nothing if there is none.
handle() {
    local listed
    if [[ $TOOL == mlnx-sf ]]; then
        listed=$(mlnx-sf -a show --json) || die "mlnx-sf cannot list functions"
    else
        listed=$(mlxdevm -j port show) || die "mlxdevm cannot list ports"
    fi
    python3 -I -c "$FIND" "$PCI" "$SFNUM" <<<"$listed" 2>/dev/null ||
        die "cannot read what $TOOL lists; this version of it may print otherwise, try the other --tool"
}

# Without switchdev mode a function has no representor, so nothing could be copied to it.
need_switchdev() {
    local shown
    command -v devlink >/dev/null || return 0
    shown=$(devlink dev eswitch show "pci/$PCI") ||
        die "$PCI has no embedded switch that this side may manage: is the card in DPU mode? See mlxcfg.py verify"
    [[ $shown == *"mode switchdev"* ]] ||
        die "the embedded switch of $PCI is not in switchdev mode:" \
            "devlink dev eswitch set pci/$PCI mode switchdev, which interrupts traffic"
}

create_mlnx_sf() {
    run mlnx-sf --action create --device "$PCI" --sfnum "$SFNUM" --hwaddr "$1" --enable-trust
}

# The function comes with the driver that configures it; it carries traffic under mlx5_core.sf.
rebind() {
    local name number=$1 drivers=$SYSROOT/sys/bus/auxiliary/drivers
    for name in "$SYSROOT"/sys/bus/auxiliary/devices/mlx5_core.sf.*; do
        [[ -e $name/sfnum && $(<"$name/sfnum") == "$number" ]] || continue
        name=${name##*/}
        if [[ -e $drivers/mlx5_core.sf_cfg/$name ]]; then
            run_write "$name" "$drivers/mlx5_core.sf_cfg/unbind"
            run_write "$name" "$drivers/mlx5_core.sf/bind"
        fi
    done
}

create_mlxdevm() {
    local port=${PCI##*.} made
    run mlxdevm port add "pci/$PCI" flavour pcisf pfnum "$port" sfnum "$SFNUM"
    if [[ $DRY_RUN == yes ]]; then
        made="pci/$PCI/(index of the new port)"
    else
        made=$(handle)
        [[ -n $made ]] || die "mlxdevm made function $SFNUM of $PCI without an error, yet does not list it"
    fi
    run mlxdevm port function set "$made" hw_addr "$1" trust on state active
    rebind "$SFNUM"
}

parse "$@"
need_dpu
existing=$(handle)
if [[ $UNDO == yes ]]; then
    if [[ -z $existing ]]; then
        say "there is no function $SFNUM of $PCI"
    elif [[ $TOOL == mlnx-sf ]]; then
        run mlnx-sf --action delete --sfindex "$existing"
    else
        run mlxdevm port function set "$existing" state inactive
        run mlxdevm port del "$existing"
    fi
elif [[ -n $existing ]]; then
    say "function $SFNUM of $PCI is there already ($existing)"
elif need_switchdev && [[ $TOOL == mlnx-sf ]]; then
    create_mlnx_sf "${MAC:-$(made_mac)}"
else
    create_mlxdevm "${MAC:-$(made_mac)}"
fi
