#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Creates the agent's scalable function and the copy rule to it, as /etc/pulse/copy.env says.
#
# usage: copy.sh [--dry-run] [--undo]
#
# Variables, of the environment or of the unit's file:
#   PULSE_COPY_WITH   ovs, tc, or none: only the function, for a copy made by DOCA Flow (default: ovs)
#   PULSE_PCI         physical function (default: 0000:03:00.0)
#   PULSE_SFNUM       number of the scalable function (default: 88)
#   PULSE_HOST        representor of the host's port (default: pf0hpf)
#   PULSE_UPLINK      representor of the wire, for tc (default: p0)
#   PULSE_TO          representor of the function (default: en3f0pf0sf88, made from PULSE_PCI and PULSE_SFNUM)
# exit status: 0 as asked, 1 failed, 2 wrong usage
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=firmware_cfg/scripts/common.sh
source "$here/common.sh"

with=${PULSE_COPY_WITH:-ovs}
pci=${PULSE_PCI:-0000:03:00.0}
number=${PULSE_SFNUM:-88}
host=${PULSE_HOST:-pf0hpf}
[[ $pci =~ ^[0-9a-f]{4}:([0-9a-f]{2}):[0-9a-f]{2}\.([0-7])$ ]] || usage_error "PULSE_PCI $pci is no 0000:03:00.0"
# en3f0pf0sf88 is number 88 of the first function in bus 3.
to=${PULSE_TO:-en$((16#${BASH_REMATCH[1]}))f${BASH_REMATCH[2]}pf${BASH_REMATCH[2]}sf$number}
options=()
for option in "$@"; do
    case $option in
        --dry-run) options+=("$option") ;;
        --undo) options+=("$option") && UNDO=yes ;;
        --help) show_help && exit 0 ;;
        *) usage_error "there is no option $option" ;;
    esac
done

copy() {
    case $with in
        ovs) "$here/copy-ovs.sh" --host "$host" --to "$to" "${options[@]}" ;;
        tc) "$here/copy-tc.sh" --host "$host" --uplink "${PULSE_UPLINK:-p0}" --to "$to" "${options[@]}" ;;
        none) say "no copy rule is made" ;;
        *) usage_error "PULSE_COPY_WITH is $with; it must be ovs, tc or none" ;;
    esac
}

function_() {
    "$here/sf.sh" --pci "$pci" --sfnum "$number" "${options[@]}"
}

# udev gives the representor its name after the function is there.
wait_for_representor() {
    local left=50
    until has_netdev "$to" || [[ $left -eq 0 || " ${options[*]} " == *" --dry-run "* ]]; do
        sleep 0.2
        left=$((left - 1))
    done
}

if [[ $UNDO == yes ]]; then
    copy
    function_
else
    function_
    wait_for_representor
    copy
fi
