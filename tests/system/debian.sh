#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A minimal Debian in a folder, to try things in as on a fresh machine. It takes packages from where this machine takes them:
# its mirror, its pip configuration, its certificates, its proxy. Needs root.
#
#   debian.sh make [--arch=ARCH] SUITE FOLDER PACKAGE...  make it, unless the folder holds just this already, made by this
#                                                         version of this program in the last 30 days
#   debian.sh source FOLDER PLACE                         copy this source tree to PLACE in it, without what was built here
#   debian.sh enter FOLDER COMMAND...                     run a command in it as root; what it leaves running is ended
#   debian.sh boot FOLDER OPTION...                       start its systemd with these options of systemd-nspawn; print the
#                                                         process id of that, and end when it has; what it wrote is lost
#   debian.sh check                                       install what these need; say what cannot be had here, if so
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

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
    # Ubuntu has mirrors and keys of its own; debootstrap has them in the script of an early release.
    local from=()
    case "$suite" in
        jammy | noble) arch+=(--components=main,universe) from=("" gutsy) ;;
        *) read -ra from <<<"$(mirror)" ;;
    esac
    local wanted
    wanted="$suite ${arch[*]} $packages, by $(sha256sum <"${BASH_SOURCE[0]}" | cut -c 1-16)"
    if [ "$(cat "$folder/.made-of" 2>/dev/null)" = "$wanted" ] && [ -n "$(find "$folder/.made-of" -mtime -30)" ]; then
        return 0
    fi
    check
    [ ! -e "$folder" ] || [ -e "$folder/.made-of" ] || fail "$folder exists and was not made by this program"
    [ "${from[1]:-}" != gutsy ] || [ -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ] \
        || fail "no keys of Ubuntu: install ubuntu-keyring"
    echo "making a root of $suite in $folder" >&2
    rm -rf "$folder" "$folder.new"
    mkdir -p "$folder.new"
    debootstrap "${arch[@]}" --variant=minbase --include="$packages" "$suite" "$folder.new" "${from[@]}" >"$folder.log" 2>&1 \
        || fail "debootstrap failed, see $folder.log"
    rm -f "$folder.new"/var/cache/apt/archives/*.deb
    # Certificates get a name of their own: the one they have here may be that of a package in there.
    pip_configuration | sed -e 's|^cert = .*|cert = /etc/outside.crt|' \
        -e 's|^constraint = .*|constraint = /etc/outside.constraints|' >"$folder.new/etc/pip.conf"
    local certificates constraints
    certificates=$(pip_configuration | sed -n 's/^cert = //p')
    [ -z "$certificates" ] || cp "$certificates" "$folder.new/etc/outside.crt"
    constraints=$(pip_configuration | sed -n 's/^constraint = //p')
    # shellcheck disable=SC2086
    [ -z "$constraints" ] || cat $constraints >"$folder.new/etc/outside.constraints"
    apt-config dump 2>/dev/null | grep -E '^Acquire::(https?|Check-[A-Za-z-]*|Retries)\b.* ".+";' \
        >"$folder.new/etc/apt/apt.conf.d/90as-outside" || true
    echo debian >"$folder.new/etc/hostname"
    echo "127.0.0.1 localhost debian" >"$folder.new/etc/hosts"
    echo "$wanted" >"$folder.new/.made-of"
    mv "$folder.new" "$folder"
}

check() {
    local missing=()
    command -v debootstrap >/dev/null || missing+=(debootstrap)
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)
    command -v systemd-nspawn >/dev/null || missing+=(systemd-container)
    if [ ${#missing[@]} -gt 0 ]; then
        command -v apt-get >/dev/null || fail "missing: ${missing[*]}"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
            >/dev/null 2>&1 || fail "cannot be installed: ${missing[*]}"
    fi
    local options=lowerdir=/etc,upperdir=/mnt/up,workdir=/mnt/work
    unshare --mount --pid --fork bash -c "mount --make-rprivate / && mount -t tmpfs none /mnt && mkdir /mnt/{up,work,all} \
        && mount -t overlay none -o $options /mnt/all && mount -t cgroup2 none /mnt/all" 2>/dev/null \
        || fail "this machine does not let containers be made: name spaces, overlays and cgroup2 are needed"
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
    # Name spaces can be made in it only where its / is a mount.
    mount --rbind "$folder" "$folder"
    mount -t proc proc "$folder/proc"
    [ -e "$folder/etc/mtab" ] || ln -s ../proc/self/mounts "$folder/etc/mtab"  # as systemd makes it at boot
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

# As enter, but with its own systemd.
boot() {
    local folder=$1 options=(--quiet --volatile=overlay --register=no --keep-unit --console=pipe --resolv-conf=copy-host) name
    shift
    mount --make-rprivate /
    if [ "$(stat -fc %T /sys/fs/cgroup)" != cgroup2fs ]; then
        umount -R -l /sys/fs/cgroup
        mount -t cgroup2 none /sys/fs/cgroup
    fi
    local group=/sys/fs/cgroup/debian-$$
    mkdir "$group"
    for name in $(pip_folders); do [ ! -d "$name" ] || options+=("--bind-ro=$name"); done
    (
        echo $BASHPID >"$group/cgroup.procs"
        exec systemd-nspawn "${options[@]}" -D "$folder" "$@" -b >"$folder.console" 2>&1 </dev/null
    ) &
    local nspawn=$! child leader=
    # At once: an orderly end would take long, and nothing of it is kept.
    trap 'kill -KILL ${leader:-$nspawn}' TERM INT
    while [ -z "$leader" ]; do
        kill -0 $nspawn 2>/dev/null || fail "it did not start, see $folder.console"
        for child in $(cat "/proc/$nspawn/task/$nspawn/children" 2>/dev/null); do
            [ "$(cat "/proc/$child/comm" 2>/dev/null)" != systemd ] || leader=$child
        done
        sleep 0.1
    done
    echo "$leader"
    while kill -0 $nspawn 2>/dev/null; do wait $nspawn || true; done
    find "$group" -depth -type d -exec rmdir {} +
}

[ "$(id -u)" = 0 ] || fail "needs root: it makes a root file system and enters it"
verb=${1:-}
[ $# -eq 0 ] || shift
case "$verb" in
    make) make_root "$@" ;;
    source) copy_source "$@" ;;
    boot) exec unshare --mount "${BASH_SOURCE[0]}" booted "$@" ;;
    booted) boot "$@" ;;
    check) check ;;
    enter) exec unshare --mount --pid --fork --kill-child "${BASH_SOURCE[0]}" inside "$@" ;;
    inside) enter "$@" ;;
    *) sed -n '3,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
