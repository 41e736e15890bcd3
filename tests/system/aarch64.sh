#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The package on aarch64, the Jetson's architecture, on a machine of another one: a Debian for it under QEMU's user emulation,
# where the wheel is built, the sweep and the reader are tested, and results are compared with this machine's to the last bit.
# Then the installed commands hold and restore a simulated board there (board_walk.py).
#
#   sudo make test-aarch64        about 15 minutes the first time, 6 after that; 1.2 GB in JETDVFS_AARCH64 (default /var/tmp)
#   aarch64.sh check              install the programs that it needs; if one cannot be had, say which, and fail
#   aarch64.sh tested             succeed if these sources passed before: on this machine, or by aarch64-tested.txt
#   aarch64.sh record             write aarch64-tested.txt after a success
#
# QEMU emulates instructions: times in there say nothing of a Jetson, only how two ways compare under the same emulation.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
debian=$repository/tests/system/debian.sh
root=${JETDVFS_AARCH64:-/var/tmp/jetdvfs-aarch64}
python=${PYTHON:-python3}
packages="python3 python3-venv python3-dev python3-numpy python3-scipy python3-yaml python3-psutil"
packages+=" python3-hypothesis python3-setuptools python3-wheel gcc libc6-dev binutils ca-certificates"
tests="tests/kernels/trees tests/kernels/torchscript/test_archive.py tests/kernels/torchscript/test_archive_versions.py"
tests+=" tests/kernels/torchscript/test_archive_properties.py"
# Debian has the rest; numpy is to stay Debian's, and its pytest is older than setup.cfg admits.
wheels="treelite packaging msgspec xgboost-cpu>=2.1 pytest>=8 pluggy iniconfig pygments"

enter() { "$debian" enter "$root" env OMP_NUM_THREADS=1 "$@"; }

fail() { echo "aarch64.sh: $*" >&2; exit 1; }

# The C core, the worker, what the tests stand on, and how they are run.
digest() {
    (cd "$repository" && find kernels/trees daemon/worker tests/support tests/conftest.py tests/system/{aarch64,debian}.sh \
        tests/system/board_walk.py -type f '(' -name '*.py' -o -name '*.[ch]' -o -name '*.sh' ')' -print0 \
        | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1)
}

check() {
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
    "$debian" check
}

recorded=$repository/tests/system/aarch64-tested.txt
case "${1:-}" in
    check) check; exit ;;
    tested) now=$(digest) && grep -qsx "$now" "$recorded" "$root.tested"; exit ;;
    record) [ "$(digest)" = "$(cat "$root.tested" 2>/dev/null)" ] && cp "$root.tested" "$recorded"; exit ;;
    "") check ;;
    *) sed -n '3,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
"$debian" make --arch=arm64 bookworm "$root" $packages
v=/opt/venv/bin
if [ "$(cat "$root/.installed" 2>/dev/null)" != "$wheels" ]; then
    echo "installing $wheels"
    enter python3 -m venv --clear --system-site-packages /opt/venv
    # shellcheck disable=SC2086
    enter $v/pip install --quiet --disable-pip-version-check --no-deps $wheels
    echo "$wheels" >"$root/.installed"
fi
sources=$(digest)
echo "building the wheel"
"$debian" source "$root" /src
rm -rf "$root/dist" && mkdir "$root/dist"
enter $v/python -m pip wheel --quiet --no-deps --no-build-isolation --disable-pip-version-check -w /dist /src /src/profiles/twin /src/profiles/lab
ls "$root/dist" | grep -q 'cp310-abi3-linux_aarch64.whl' || fail "no aarch64 wheel with the C core came out: $(ls "$root/dist")"
# One after the other: what is replaced may have held files of both.
for wheel in jetdvfs jetdvfs_twin jetdvfs_lab; do
    enter bash -c "$v/python -m pip install --quiet --no-deps --force-reinstall --disable-pip-version-check /dist/$wheel-*.whl"
done
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
echo "calls that the daemon's work takes, on $(uname -m) and on aarch64"
"$python" "$repository/tests/bench/calls.py" --write "$root/check/calls"
enter bash -c "cd /check && $v/python tests/bench/calls.py --like calls" || fail "the daemon's work takes other calls on aarch64"
echo "decompose, plan, hold, restore"
model=profiles/reference/resnet18.pt
"$python" "$repository/tests/system/board_walk.py" "$repository/$model" "$root/check/facts.here" >"$root/check/walk.here" 2>&1 \
    || { cat "$root/check/walk.here" >&2; fail "they fail on $(uname -m)"; }
enter bash -c "cd /check && $v/python tests/system/board_walk.py $model facts --like facts.here" \
    || fail "they fail on aarch64, or have other results than on $(uname -m)"
echo "$sources" >"$root.tested"
echo "aarch64: passed in $((SECONDS / 60)) min"
