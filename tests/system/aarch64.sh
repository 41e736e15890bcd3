#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The package on aarch64, the Jetson's architecture, on a machine of another one: a Debian for it under QEMU's user emulation,
# where the wheel is built, the sweep and the reader are tested, and results are compared with this machine's to the last bit.
#
#   sudo make test-aarch64        about 10 minutes the first time, 5 after that; 1.2 GB in JETDVFS_AARCH64 (default /var/tmp)
#
# QEMU emulates instructions: times in there say nothing of a Jetson, only how two ways compare under the same emulation.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
debian=$repository/tests/system/debian.sh
root=${JETDVFS_AARCH64:-/var/tmp/jetdvfs-aarch64}
python=${PYTHON:-python3}
packages="python3 python3-venv python3-dev python3-numpy python3-scipy python3-yaml python3-psutil python3-pytest"
packages+=" python3-hypothesis python3-setuptools python3-wheel gcc libc6-dev binutils ca-certificates"
tests="tests/kernels/trees tests/kernels/torchscript/test_archive.py tests/kernels/torchscript/test_archive_versions.py"
tests+=" tests/kernels/torchscript/test_archive_properties.py"

enter() { "$debian" enter "$root" env OMP_NUM_THREADS=1 "$@"; }

fail() { echo "aarch64.sh: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "needs root: it makes a root file system and enters it"
if ! command -v qemu-aarch64-static >/dev/null; then
    command -v apt-get >/dev/null || fail "missing: qemu-aarch64-static"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends qemu-user-static binfmt-support >/dev/null
fi
if [ "$(uname -m)" != aarch64 ] && [ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; then
    [ -e /proc/sys/fs/binfmt_misc/status ] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    update-binfmts --enable qemu-aarch64 2>/dev/null || true # it may be so already
    [ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ] || fail "the kernel does not know how to start aarch64 programs (binfmt_misc)"
fi
"$debian" make --arch=arm64 bookworm "$root" $packages
v=/opt/venv/bin
if [ ! -e "$root/.installed" ]; then
    echo "installing treelite, msgspec and xgboost"
    enter python3 -m venv --system-site-packages /opt/venv
    # Debian has the rest; numpy is to stay Debian's.
    enter $v/pip install --quiet --disable-pip-version-check --no-deps treelite packaging msgspec 'xgboost-cpu>=2.1'
    touch "$root/.installed"
fi
echo "building the wheel"
"$debian" source "$root" /src
rm -rf "$root/dist" && mkdir "$root/dist"
enter $v/python -m pip wheel --quiet --no-deps --no-build-isolation --disable-pip-version-check -w /dist /src
ls "$root/dist" | grep -q 'cp310-abi3-linux_aarch64.whl' || fail "no aarch64 wheel with the C core came out: $(ls "$root/dist")"
enter bash -c "$v/python -m pip install --quiet --no-deps --force-reinstall --disable-pip-version-check /dist/*.whl"
rm -rf "$root/check" && mkdir "$root/check" && cp -r "$root/src/tests" "$root/src/pyproject.toml" "$root/check/"
mkdir -p "$root/check/docs" "$root/check/profiles" && cp "$root"/src/docs/*.md "$root/check/docs/"
cp -r "$root/src/profiles/reference" "$root/check/profiles/"
# Tests find what they share as jetdvfs.tests, which is no part of the wheel.
enter bash -c "ln -sfn /check/tests \$($v/python -c 'import jetdvfs; print(jetdvfs.__path__[0])')/tests"
echo "vector instructions in the C core:"
enter bash -c "objdump -d --no-show-raw-insn \$($v/python -c 'from jetdvfs.kernels.trees import _sweep; print(_sweep.__file__)')" \
    | grep -cE '\bv[0-9]+\.(2d|4s|2s|8h|16b)\b|\bq[0-9]+\b' || true
echo "tests (without those of the process's own time and memory, which are QEMU's here, and of the NumPy reference)"
enter bash -c "cd /check && $v/python -m pytest -q -p no:cacheprovider -k 'not numpy and not never_end and not gigabyte and not _mb' $tests"
enter bash -c "cd /check && $v/python tests/bench/sweep_digest.py" | tee "$root/digest"
echo "the same on $(uname -m)"
"$python" "$repository/tests/bench/sweep_digest.py" | tee "$root/digest.here"
if diff <(grep '^digest' "$root/digest") <(grep '^digest' "$root/digest.here"); then
    echo "equal to the last bit on aarch64 and $(uname -m)"
else
    fail "results differ between aarch64 and $(uname -m)"
fi
