# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What a bf.cfg does with the files that it carries; bfcfg.py puts this text into it.
#
# The installer of the image sources bf.cfg without `set -e` and does not look at what hooks return, so every step
# is checked here, said in the installer's log, and counted in its RC. Nothing here needs more of the installer
# than bash: other tools are taken from the new system where it has none.

PULSE_TARGET=${PULSE_TARGET:-/mnt}

pulse_say() {
    if declare -F log >/dev/null; then
        log "$1: Pulse: $2"
    else
        echo "$1: Pulse: $2"
    fi
}

pulse_failed() {
    pulse_say ERROR "$1"
    RC=$((${RC:-0} + 1))
    return 1
}

pulse_tool() {
    if command -v "$1" >/dev/null; then
        "$@"
    else
        chroot "$PULSE_TARGET" "$@"
    fi
}

# pulse_put PATH MODE SIZE SHA256 <BASE64: a file of the new system, with the mode it has from its first byte on.
# On the way from the host bytes have been lost before now, so size and sum are looked at.
pulse_put() {
    local path=$PULSE_TARGET$1 mode=$2 size=$3 sum=$4 found
    mkdir -p "${path%/*}" || pulse_failed "cannot make ${path%/*}" || return 1
    rm -f "$path"
    (umask 0077 && pulse_tool base64 -d >"$path") || pulse_failed "cannot unpack $1" || return 1
    found=$(pulse_tool wc -c <"$path")
    [[ $((found)) -eq $size ]] || pulse_failed "$1 has $found bytes instead of $size: flash again" || return 1
    found=$(pulse_tool sha256sum <"$path")
    [[ ${found%% *} == "$sum" ]] || pulse_failed "$1 arrived damaged: flash again" || return 1
    chmod "$mode" "$path" || pulse_failed "cannot set the mode of $1" || return 1
}

# What the cards are set to before anything changes, for whoever wants it back.
pulse_keep_firmware_values() {
    local tool device folder=$PULSE_TARGET/var/lib/pulse-firmware
    tool=$(pulse_firmware_tool) || return 0
    mkdir -p "$folder" || return 0
    for device in $(pulse_cards); do
        "$tool" -d "$device" -e q >"$folder/before-$device.txt" 2>&1 || true
    done
}

pulse_modify_os() {
    local unit
    if [[ ${PULSE_COMPLETE:-no} != yes ]]; then
        pulse_failed "bf.cfg has no end: it was cut on its way" || return 1
    fi
    pulse_unpack || return 1
    if [[ -n $PULSE_PACKAGE ]]; then
        DEBIAN_FRONTEND=noninteractive chroot "$PULSE_TARGET" dpkg --force-confold -i "$PULSE_PACKAGE" ||
            pulse_failed "dpkg cannot install $PULSE_PACKAGE; does it fit the image's architecture and Python?" ||
            return 1
        rm -f "$PULSE_TARGET$PULSE_PACKAGE"
    fi
    # After the package, whose own files of these names would ask otherwise, and whose user owns the key.
    pulse_unpack_settings || return 1
    if [[ -n $PULSE_KEY ]]; then
        chroot "$PULSE_TARGET" chown pulse-dpu: "$PULSE_KEY" ||
            pulse_failed "$PULSE_KEY cannot be given to the user pulse-dpu; is the package in the image?" || return 1
    fi
    for unit in "${PULSE_UNITS[@]}"; do
        chroot "$PULSE_TARGET" systemctl enable "$unit" || pulse_failed "cannot enable $unit" || return 1
    done
    if [[ ${#PULSE_FIRMWARE[@]} -gt 0 ]]; then
        pulse_keep_firmware_values
    fi
    pulse_say INFO "installed"
}

pulse_cards() {
    local folder
    for folder in "${PULSE_SYSROOT:-}"/sys/bus/pci/devices/*.0; do
        [[ -e $folder/device && $(<"$folder/vendor") == 0x15b3 ]] || continue
        case $(<"$folder/device") in 0xa2d2 | 0xa2d6 | 0xa2dc) echo "${folder##*/}" ;; esac
    done
}

pulse_firmware_tool() {
    command -v mlxconfig || command -v mstconfig
}

# pulse_next_value TOOL DEVICE KEY: the number that the next power-on brings; fails for an unknown parameter.
pulse_next_value() {
    local line value
    value=$("$1" -d "$2" q "$3") || return 1
    while read -r line; do
        case $line in "$3 "* | "* "*"$3 "*)
            value=${line##* }
            value=${value##*\(}
            echo "${value%\)}"
            return 0
            ;;
        esac
    done <<<"$value"
    return 1
}

# pulse_set_card TOOL DEVICE: all settings in one call, or none when the card lacks a needed one.
pulse_set_card() {
    local entry key value compare if_known now changes=()
    for entry in "${PULSE_FIRMWARE[@]}"; do
        read -r key value compare if_known <<<"$entry"
        if ! now=$(pulse_next_value "$1" "$2" "$key"); then
            [[ $if_known == if_known ]] && continue
            pulse_failed "$2 does not know $key: update its firmware; nothing was set" || return 1
        fi
        if [[ $compare == at_least && $now =~ ^[0-9]+$ && $now -ge $value ]]; then
            continue
        fi
        [[ $now == "$value" ]] || changes+=("$key=$value")
    done
    [[ ${#changes[@]} -gt 0 ]] || return 0
    "$1" -y -d "$2" set "${changes[@]}" || pulse_failed "$2 refused ${changes[*]}" || return 1
    pulse_say INFO "$2: set ${changes[*]}; in force after about 30 s without power, a reboot is not enough"
}

pulse_post_install() {
    local tool device status=0
    [[ ${#PULSE_FIRMWARE[@]} -gt 0 ]] || return 0
    tool=$(pulse_firmware_tool) || pulse_failed "there is neither mlxconfig nor mstconfig" || return 1
    for device in $(pulse_cards); do
        pulse_set_card "$tool" "$device" || status=1
    done
    return $status
}

# A bf.cfg with hooks of its own calls pulse_modify_os and pulse_post_install from them.
if ! declare -F bfb_modify_os >/dev/null; then
    bfb_modify_os() {
        pulse_modify_os
    }
fi
if ! declare -F bfb_post_install >/dev/null; then
    bfb_post_install() {
        pulse_post_install
    }
fi
