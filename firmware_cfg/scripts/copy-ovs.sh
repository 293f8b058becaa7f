#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copies the host's packets to the agent's scalable function by a mirror of Open vSwitch.
#
# usage: copy-ovs.sh [--host pf0hpf] [--to en3f0pf0sf88] [--dry-run] [--undo]
#
#   --host     representor of the host's port: what it sends and what is sent to it is copied
#   --to       representor of the scalable function; it joins the bridge of --host and then carries nothing else
#   --dry-run  show what would be done
#   --undo     take mirror and port away again
#
# The mirror copies all packets, not only RoCE, unless this Open vSwitch can filter mirrors; the agent drops the
# rest. Needs other_config:hw-offload, without which the copies, and the host's traffic too, cross the Arm cores.
# A mirror lives in the database of Open vSwitch: it is still there after a restart.
# exit status: 0 as asked (or already so), 1 failed, 2 wrong usage
set -euo pipefail
# shellcheck source=firmware_cfg/scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

HOST=pf0hpf
TO=en3f0pf0sf88
MIRROR=pulse-roce
FILTER=udp,tp_dst=4791

parse() {
    while [[ $# -gt 0 ]]; do
        case $1 in
            --host) HOST=$(value_of "$@"); shift ;;
            --to) TO=$(value_of "$@"); shift ;;
            --dry-run) DRY_RUN=yes ;;
            --undo) UNDO=yes ;;
            --help) show_help && exit 0 ;;
            *) usage_error "there is no option $1" ;;
        esac
        shift
    done
    need ovs-vsctl "install Open vSwitch, or use copy-tc.sh"
}

# The bridge that our mirror is on; nothing if there is none.
mirror_bridge() {
    local mirror
    mirror=$(ovs-vsctl --bare --columns=_uuid find Mirror "name=$MIRROR")
    [[ -z $mirror ]] || ovs-vsctl --bare --columns=name find Bridge "mirrors{>=}$mirror"
}

need_offload() {
    local state
    state=$(ovs-vsctl --if-exists get Open_vSwitch . other_config:hw-offload | tr -d '"')
    [[ $state == true ]] ||
        die "Open vSwitch does not offload to hardware, so the host's traffic would cross the Arm cores:" \
            "ovs-vsctl set Open_vSwitch . other_config:hw-offload=true, then restart openvswitch-switch"
}

create() {
    local bridge filter=()
    need_netdev "$TO" "create it with sf.sh first"
    need_offload
    bridge=$(ovs-vsctl port-to-br "$HOST") || die "$HOST is on no bridge of Open vSwitch: name another --host"
    # Open vSwitch has the column since 3.4; older ones refuse to be asked for it.
    if ovs-vsctl --columns=filter list Mirror >/dev/null 2>&1; then
        filter=("filter=\"$FILTER\"")
    else
        say "this Open vSwitch cannot filter mirrors: all packets of $HOST are copied"
    fi
    run ovs-vsctl --may-exist add-port "$bridge" "$TO" \
        -- --id=@host get Port "$HOST" \
        -- --id=@to get Port "$TO" \
        -- --id=@mirror create Mirror "name=$MIRROR" select_src_port=@host select_dst_port=@host \
        output_port=@to "${filter[@]}" \
        -- add Bridge "$bridge" mirrors @mirror
}

parse "$@"
need_dpu
existing=$(mirror_bridge)
if [[ $UNDO == yes ]]; then
    if [[ -z $existing ]]; then
        say "there is no mirror $MIRROR"
    else
        run ovs-vsctl -- --id=@mirror get Mirror "$MIRROR" -- remove Bridge "$existing" mirrors @mirror \
            -- --if-exists del-port "$existing" "$TO"
    fi
elif [[ -n $existing ]]; then
    say "mirror $MIRROR is on $existing already"
else
    create
fi
