#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gathers the wheels that deb/build.py packs: builds that of the project, fetches those of its dependencies.
#
# usage: wheels.sh ARCH PYTHON FOLDER     (amd64 or arm64, 3.10, build/deb/wheels)
#
# Needs an interpreter of that very Python with its headers, PYTHON_FOR_WHEELS or pythonPYTHON on PATH; for arm64
# on another machine the cross compiler ARM_CXX too (Debian: g++-aarch64-linux-gnu). The headers of CPython are
# the same on both architectures but for pyconfig.h, whose sizes are equal on 64-bit Linux.
set -euo pipefail

arch=$1
version=$2
folder=$(realpath -m "$3")
project=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
python=${PYTHON_FOR_WHEELS:-python$version}
ARM_CXX=${ARM_CXX:-aarch64-linux-gnu-g++}

"$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" ||
    { echo "wheels.sh: $python is no Python $version; name one: PYTHON_FOR_WHEELS=/path/to/python$version" >&2; exit 1; }
case $arch in
    amd64) machine=x86_64 ;;
    arm64) machine=aarch64 ;;
    *) echo "wheels.sh: $arch is neither amd64 nor arm64" >&2 && exit 2 ;;
esac

rm -rf "$folder"
mkdir -p "$folder"
if [[ ! -x $folder-venv/bin/python || $("$folder-venv/bin/python" -V) != *" $version."* ]]; then
    "$python" -m venv --clear "$folder-venv"
    "$folder-venv/bin/pip" install --quiet --upgrade 'pip>=25.1'
fi
pip=$folder-venv/bin/pip

if [[ $arch == arm64 && $(uname -m) != aarch64 ]]; then
    command -v "$ARM_CXX" >/dev/null ||
        { echo "wheels.sh: there is no $ARM_CXX (Debian: g++-aarch64-linux-gnu)" >&2; exit 1; }
    export _PYTHON_HOST_PLATFORM=linux-aarch64
    # Python loads no module whose name has another machine in it; pybind11 would ask the building Python.
    suffix=.cpython-${version/./}-aarch64-linux-gnu.so
    export SETUPTOOLS_EXT_SUFFIX=$suffix
    export CMAKE_ARGS="-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$ARM_CXX"
    CMAKE_ARGS+=" -DPYTHON_MODULE_EXTENSION=$suffix -DPYTHON_MODULE_DEBUG_POSTFIX="
fi
"$pip" wheel --quiet --no-deps --wheel-dir "$folder" "$project"

# What the project asks for on a card, as its own metadata has it.
mapfile -t needed < <(
    "$folder-venv/bin/python" - "$folder" <<'PYTHON'
import email, glob, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/pulse_rdma-*.whl")[0])
metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
for need in email.message_from_bytes(wheel.read(metadata)).get_all("Requires-Dist", []):
    if "extra ==" not in need:
        print(need)
PYTHON
)
"$pip" download --quiet --dest "$folder" --only-binary=:all: --python-version "$version" --implementation cp \
    --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" \
    --platform "manylinux2014_$machine" "${needed[@]}"
