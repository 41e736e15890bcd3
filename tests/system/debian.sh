#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A minimal Debian in a folder, to try things in as on a fresh machine. It takes packages from where this machine takes them:
# its mirror, its pip configuration, its certificates, its proxy. Needs root.
#
#   debian.sh make [--arch=ARCH] SUITE FOLDER PACKAGE...  make it, unless the folder holds just this already
#   debian.sh source FOLDER PLACE                         copy this source tree to PLACE in it, without what was built here
#   debian.sh enter FOLDER COMMAND...                     run a command in it as root; what it leaves running is ended
#   debian.sh local                                       the folders of this machine that pip is configured to read
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
certificates=/etc/ssl/certs/ca-certificates.crt

fail() { echo "debian.sh: $*" >&2; exit 1; }

# Where this machine has its Debian from; nothing where it is no Debian: debootstrap then uses its own default.
mirror() {
    apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI)' 2>/dev/null | sed -n 's/^Debian main //p' | head -n 1
}

# What pip is told here by files and by the environment, as one file.
pip_configuration() {
    echo "[global]"
    "${PYTHON:-python3}" -m pip config list 2>/dev/null \
        | sed -nE "s/^(:env:|global|site|user)\.([a-z-]+)=['\"](.*)['\"]$/\2 = \3/p" | sed 's/\\n/ /g' | awk '!seen[$1]++'
}

pip_folders() {
    local place
    for place in $(pip_configuration | sed -nE 's/^(find-links|index-url|extra-index-url) = //p'); do
        case "$place" in
            file://*) dirname "${place#file://}" ;; # an index's pages link to files beside it
            /*) echo "$place" ;;
        esac
    done | sort -u
}

make_root() {
    local arch=() suite folder packages
    case "$1" in --arch=*) arch=("$1"); shift ;; esac
    suite=$1 folder=$2 && shift 2
    packages=$(IFS=,; echo "$*")
    local wanted="$suite ${arch[*]} $packages"
    [ "$(cat "$folder/.made-of" 2>/dev/null)" != "$wanted" ] || return 0
    if [ ! -e /usr/share/keyrings/debian-archive-keyring.gpg ] || ! command -v debootstrap >/dev/null; then
        install debootstrap debian-archive-keyring
    fi
    [ ! -e "$folder" ] || [ -e "$folder/.made-of" ] || fail "$folder exists and was not made by this program"
    echo "making a Debian $suite in $folder" >&2
    rm -rf "$folder" "$folder.new"
    mkdir -p "$folder.new"
    debootstrap "${arch[@]}" --variant=minbase --include="$packages" "$suite" "$folder.new" $(mirror) >"$folder.log" 2>&1 \
        || fail "debootstrap failed, see $folder.log"
    rm -f "$folder.new"/var/cache/apt/archives/*.deb
    pip_configuration >"$folder.new/etc/pip.conf"
    mkdir -p "$folder.new$(dirname $certificates)"
    [ ! -e $certificates ] || cp $certificates "$folder.new$certificates"
    apt-config dump 2>/dev/null | grep -E '^Acquire::(https?|Check-[A-Za-z-]*|Retries)\b.* ".+";' \
        >"$folder.new/etc/apt/apt.conf.d/90as-outside" || true
    echo "$wanted" >"$folder.new/.made-of"
    mv "$folder.new" "$folder"
}

install() {
    command -v apt-get >/dev/null || fail "missing: $*"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

copy_source() {
    local place=$1/$2
    rm -rf "$place" && mkdir -p "$place"
    tar -C "$repository" --exclude=./.git --exclude=./.venv --exclude=./build --exclude=./dist --exclude=./demo-out \
        --exclude='*.so' --exclude='*.egg-info' --exclude=__pycache__ --exclude='.*_cache' --exclude=.hypothesis -cf - . \
        | tar -C "$place" --no-same-owner -xf -
}

# In name spaces of its own: what is mounted and what still runs ends with the command.
enter() {
    local folder=$1 name
    shift
    mount --make-rprivate /
    mount -t proc proc "$folder/proc"
    for name in dev sys; do mount --rbind "/$name" "$folder/$name"; done
    cp --remove-destination "$(readlink -f /etc/resolv.conf)" "$folder/etc/resolv.conf"
    for name in $(pip_folders); do
        [ -d "$name" ] || continue
        mkdir -p "$folder$name"
        mount --rbind -o ro "$name" "$folder$name"
    done
    local kept=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8)
    for name in http_proxy https_proxy no_proxy; do [ -z "${!name:-}" ] || kept+=("$name=${!name}"); done
    exec chroot "$folder" env -i "${kept[@]}" "$@"
}

[ "$(id -u)" = 0 ] || fail "needs root: it makes a root file system and enters it"
verb=${1:-}
[ $# -eq 0 ] || shift
case "$verb" in
    make) make_root "$@" ;;
    source) copy_source "$@" ;;
    enter) exec unshare --mount --pid --fork --kill-child "${BASH_SOURCE[0]}" inside "$@" ;;
    inside) enter "$@" ;;
    local) pip_folders ;;
    *) sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
