# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts of this folder share: dry runs, undo, errors, and where they may run at all.

DRY_RUN=no
# shellcheck disable=SC2034  # the scripts read it
UNDO=no
# Tests put a made-up machine here.
SYSROOT=${PULSE_SYSROOT:-}
PROGRAM=${0##*/}

die() {
    echo "$PROGRAM: $*" >&2
    exit 1
}

usage_error() {
    echo "$PROGRAM: $*; see $PROGRAM --help" >&2
    exit 2
}

say() {
    echo "$PROGRAM: $*"
}

# The comment at the head of the script is its help.
show_help() {
    awk 'NR > 2 && !/^#/ { exit } NR > 2 { sub(/^# ?/, ""); print }' "$0"
}

# Does what changes the machine, or shows it.
run() {
    if [[ $DRY_RUN == yes ]]; then
        printf '%q' "$1"
        printf ' %q' "${@:2}"
        echo
    else
        "$@"
    fi
}

# As run, for a value that goes into a file of /sys.
run_write() {
    if [[ $DRY_RUN == yes ]]; then
        printf 'echo %q > %q\n' "$1" "$2"
    else
        echo "$1" >"$2" || die "cannot write $1 to $2"
    fi
}

value_of() {
    [[ $# -ge 2 && -n $2 ]] || usage_error "$1 needs a value"
    echo "$2"
}

need() {
    command -v "$1" >/dev/null || die "there is no $1 on PATH: $2"
}

# Only the Arm side of a BlueField has these platform devices; a host with the card in a slot has not.
need_dpu() {
    compgen -G "$SYSROOT/sys/bus/platform/devices/MLNXBF*" >/dev/null ||
        die "this machine is not the Arm side of a BlueField: run it on the card, not on its host"
}

has_netdev() {
    [[ -e $SYSROOT/sys/class/net/$1 ]]
}

# In a dry run what makes the device was only shown too.
need_netdev() {
    has_netdev "$1" && return
    [[ $DRY_RUN == yes ]] || die "there is no network device $1: $2"
    say "there is no network device $1 yet"
}
