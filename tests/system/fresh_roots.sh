#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make demo` and `make test` on fresh machines; prints a Markdown table of what came of it. Needs root, and 2 GB below FOLDER
# (JETDVFS_ROOTS, default /var/tmp/jetdvfs-roots), where logs stay.
#
#   fresh_roots.sh                             everything: about an hour and a half on two cores
#   fresh_roots.sh SUITE WHO TARGET...         these targets of make on one machine
#   fresh_roots.sh other                       make demo, and make test with some of the tests, on the Debian that this machine has not:
#                                              about 8 minutes on two cores; exit code 75 if no root can be made
#
# Every machine has python3-venv, make and git to begin with. WHO uses it:
#   root   root, whom make installs the rest for (a C compiler, FUSE)
#   user   an ordinary user, for whom root has installed what make asked for
#   bare   an ordinary user for whom nobody has
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${JETDVFS_ROOTS:-/var/tmp/jetdvfs-roots}
longest_s=3600
some="tests/kernels tests/daemon/wire"
options=()
everything=(
    "bookworm root demo test" "bookworm user demo test test-oldest"
    "trixie root demo test" "trixie user demo test" "trixie bare demo test"
)

# A command on a machine as whoever uses it, in the source tree, where anybody may use FUSE as on any Debian.
use() {
    local machine=$1 who=$2 become=""
    shift 2
    [ "$who" = root ] || become="setpriv --reuid=user --regid=user --init-groups env HOME=/home/user"
    "$here/debian.sh" enter "$machine" bash -c '
        if [ -e /dev/fuse ]; then
            mkdir -p /run/device && mount -t tmpfs -o dev tmpfs /run/device && mknod -m 666 /run/device/fuse c 10 229
            mount --bind /run/device/fuse /dev/fuse
        fi
        cd "$1" && shift && exec '"$become"' "$@"' use "$(place "$who")" "$@"
}

place() { [ "$1" = root ] && echo /root/jetdvfs || echo /home/user/jetdvfs; }

# Kept until what it is made of changes.
make_base() { "$here/debian.sh" make "$1" "$folder/$1" python3-venv make git ca-certificates; }

# A fresh machine, with this source tree.
set_up() {
    local machine=$1 suite=$2 who=$3 asked
    make_base "$suite"
    rm -rf "$machine" && cp -a --reflink=auto "$folder/$suite" "$machine"
    [ "$who" = root ] || chroot "$machine" useradd --create-home user
    "$here/debian.sh" source "$machine" "$(place "$who")"
    [ "$who" != root ] || return 0
    chroot "$machine" chown -R user:user /home/user
    [ "$who" = user ] || return 0
    asked=$(use "$machine" user make .venv/bin/pip 2>&1 | sed -n 's/.*sudo \(apt-get install .*\) && make clean$/\1/p')
    "$here/debian.sh" enter "$machine" bash -c "apt-get update && $asked -y --no-install-recommends" \
        >"$folder/logs/$suite-$who-packages" 2>&1
    use "$machine" user make clean >/dev/null
}

# What a log says last of the tests, or what became of the command.
outcome() {
    local code=$1 log=$2 told
    told=$(sed -nE 's/^=* ?([0-9]+ (passed|failed).*) in [0-9.]+s.*/\1/p' "$log" | tail -n 1)
    case $code in
        0) echo "${told:-done}" ;;
        124 | 137) echo "**no end within $longest_s s**" ;;
        *) echo "**exit code $code**${told:+: $told}" ;;
    esac
}

try() {
    local suite=$1 who=$2 target log code began versions python machine made
    local ask='import platform, numpy; print(platform.python_version(), "|", numpy.__version__)'
    machine=$folder/$suite-$who made=$SECONDS
    set_up "$machine" "$suite" "$who"
    echo "$suite: made in $((SECONDS - made)) s" >&2
    for target in "${@:3}"; do
        log=$folder/logs/$suite-$who-$target began=$SECONDS code=0
        use "$machine" "$who" timeout --kill-after=60 $longest_s make "$target" "${options[@]}" >"$log" 2>&1 </dev/null || code=$?
        [ "$target" = test-oldest ] && python=build/oldest/bin/python || python=.venv/bin/python
        versions=$(use "$machine" "$who" $python -c "$ask" 2>/dev/null || echo "? | ?")
        echo "| $suite | $who | \`make $target\` | $(outcome $code "$log") | $((SECONDS - began)) | $versions |"
        [ $code = 0 ] || { failed=1; tail -n 60 "$log" >&2; }
    done
    rm -rf "$machine"
}

[ "$(id -u)" = 0 ] || { echo "fresh_roots.sh: needs root: it makes root file systems and enters them" >&2; exit 1; }
[ $# = 0 ] || [ "$*" = other ] || [ $# -ge 3 ] || { sed -n '3,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$folder/logs"
failed=
if [ "$*" = other ]; then
    case $(. /etc/os-release && echo "${VERSION_CODENAME:-}") in trixie) suite=bookworm ;; *) suite=trixie ;; esac
    { "$here/debian.sh" check && make_base "$suite"; } || exit 75
    options=("TESTS=$some")
    set -- "$suite" root demo test
fi
echo "| Debian | who | command | result | seconds | Python | NumPy |"
echo "|---|---|---|---|---|---|---|"
if [ $# = 0 ]; then
    for machine in "${everything[@]}"; do
        # shellcheck disable=SC2086
        try $machine
    done
else
    try "$@"
fi
[ -z "$failed" ]
