#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copies the host's RoCEv2 packets to the agent's scalable function by tc, on cards without Open vSwitch.
#
# usage: copy-tc.sh [--host pf0hpf] [--uplink p0] [--to en3f0pf0sf88] [--vlan] [--software] [--dry-run] [--undo]
#
#   --host, --uplink  representors of the host's port and of the wire: UDP to port 4791 that enters by one leaves
#                     by the other, as it does today, and a copy goes to --to
#   --to              representor of the scalable function
#   --vlan            the same for packets with one VLAN tag
#   --software        allow rules that the card does not take: they run on the Arm cores, so the host's RDMA
#                     traffic crosses them. For trials alone
#   --dry-run         show what would be done
#   --undo            take the rules away again
#
# A rule gives the packet its destination, since the card takes no rule that only copies; so it must not stand
# beside Open vSwitch, which keeps rules of its own on the same ports. Rules live until the next start of the
# card: pulse-dpu-copy.service makes them again.
# exit status: 0 as asked (or already so), 1 failed, 2 wrong usage
set -euo pipefail
# shellcheck source=firmware_cfg/scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

HOST=pf0hpf
UPLINK=p0
TO=en3f0pf0sf88
VLAN=no
PLACE=skip_sw
PORT=4791
# Our rules are known by these priorities.
declare -A PRIORITY=([ip]=4791 [ipv6]=4792 [vlan_ip]=4793 [vlan_ipv6]=4794)

parse() {
    while [[ $# -gt 0 ]]; do
        case $1 in
            --host) HOST=$(value_of "$@"); shift ;;
            --uplink) UPLINK=$(value_of "$@"); shift ;;
            --to) TO=$(value_of "$@"); shift ;;
            --vlan) VLAN=yes ;;
            --software) PLACE= ;;
            --dry-run) DRY_RUN=yes ;;
            --undo) UNDO=yes ;;
            --help) show_help && exit 0 ;;
            *) usage_error "there is no option $1" ;;
        esac
        shift
    done
    need tc "install the package iproute2"
}

refuse_ovs() {
    local port
    command -v ovs-vsctl >/dev/null || return 0
    for port in "$HOST" "$UPLINK"; do
        if ovs-vsctl port-to-br "$port" >/dev/null 2>&1; then
            die "$port belongs to Open vSwitch, which keeps tc rules of its own on it: use copy-ovs.sh"
        fi
    done
}

rule_there() {
    tc filter show dev "$1" ingress pref "$2" 2>/dev/null | grep -q "$PORT"
}

# rule FROM BEYOND KIND: what enters by FROM goes on to BEYOND, and a copy to the function.
rule() {
    local from=$1 beyond=$2 kind=$3 protocol=${3#vlan_} match=()
    if rule_there "$from" "${PRIORITY[$kind]}"; then
        say "$from has the rule for $kind already"
        return
    fi
    if [[ $kind == vlan_* ]]; then
        match=(vlan_ethtype "$protocol")
        [[ $protocol == ip ]] && match=(vlan_ethtype ipv4)
        protocol=802.1Q
    fi
    # shellcheck disable=SC2206
    local place=($PLACE)
    run tc filter add dev "$from" ingress protocol "$protocol" pref "${PRIORITY[$kind]}" \
        flower "${place[@]}" "${match[@]}" ip_proto udp dst_port "$PORT" \
        action mirred egress mirror dev "$TO" pipe action mirred egress redirect dev "$beyond"
}

queue() {
    tc qdisc show dev "$1" 2>/dev/null | grep -qE '\b(ingress|clsact)\b' || run tc qdisc add dev "$1" ingress
}

kinds() {
    echo ip ipv6
    [[ $VLAN == no ]] || echo vlan_ip vlan_ipv6
}

create() {
    local kind
    need_netdev "$HOST" "name the representor of the host's port with --host"
    need_netdev "$UPLINK" "name the representor of the wire with --uplink"
    need_netdev "$TO" "create it with sf.sh first"
    queue "$HOST"
    queue "$UPLINK"
    for kind in $(kinds); do
        rule "$HOST" "$UPLINK" "$kind"
        rule "$UPLINK" "$HOST" "$kind"
    done
}

# All kinds, since nobody may remember whether --vlan was given. The queue stays: others may use it.
remove() {
    local port kind
    for port in "$HOST" "$UPLINK"; do
        for kind in ip ipv6 vlan_ip vlan_ipv6; do
            if rule_there "$port" "${PRIORITY[$kind]}"; then
                run tc filter del dev "$port" ingress pref "${PRIORITY[$kind]}"
            fi
        done
    done
}

parse "$@"
need_dpu
if [[ $UNDO == yes ]]; then
    remove
else
    refuse_ovs
    create
fi
