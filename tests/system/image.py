# SPDX-License-Identifier: Apache-2.0
"""A disk image as a robot maker makes it: Debian for arm64 with its kernel and the package of this tree.

    python -m jetdvfs.tests.system.image check    install the programs that it needs; if one cannot be had, name it and fail

The package is built and installed under QEMU's user emulation, and the image is kept until its sources change.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, TypeAlias

from jetdvfs.tests.support.paths import ROOT
from jetdvfs.tests.system.initramfs import initramfs
from jetdvfs.tests.system.machine import DEBIAN, PUT_BOARD_IN_PLACE, ROOTS

Command: TypeAlias = list[str | Path]

_PACKAGES = "systemd systemd-sysv dbus udev sudo python3 python3-numpy python3-yaml python3-systemd"
_TO_BUILD = "python3-venv python3-dev gcc libc6-dev dpkg-dev make ca-certificates"
_SOURCES = ("daemon", "docs", "kernels", "profiles", "systemd", "tests/daemon/worker", "tests/support")
_DISK = "2G"
SOURCE = "/srv/jetdvfs"
CORE = Path("kernels/trees/_sweep.abi3.so")
CONFIGURATION = "etc/jetdvfs/jetdvfsd.yaml.d/50-robot.yaml"
_INSTALL = """
apt-get update -qq
apt-get install -y -qq --no-install-recommends busybox-static initramfs-tools
echo update_initramfs=no >/etc/initramfs-tools/update-initramfs.conf
INITRD=No apt-get install -y -qq --no-install-recommends linux-image-arm64
cd /src && make deb && mv dist /srv/dist
apt-get install -y -qq --no-install-recommends /srv/dist/jetdvfs_*.deb
systemctl enable tests-agent simulated-board
# All devices are there when systemd starts, there is no terminal, and the board has the kernel's files.
systemctl mask systemd-udevd.service systemd-udev-trigger.service systemd-udevd-control.socket systemd-udevd-kernel.socket
systemctl mask getty.target serial-getty@ttyAMA0.service systemd-logind.service modprobe@.service
systemctl mask sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount dev-mqueue.mount
systemctl mask timers.target e2scrub_reap.service
useradd --create-home --groups jetdvfs admin
apt-get clean
"""
#: Not needed in the guest; the kernel's modules are in its initramfs.
_UNUSED_FILES = (
    "boot srv/dist/*twin* src usr/lib/gcc usr/lib/modules usr/share/doc usr/share/locale usr/share/man var/lib/apt/lists/*"
)
_FILES = {
    "etc/fstab": "/dev/vda / ext4 defaults 0 0\n",
    CONFIGURATION: "",
    "etc/systemd/system/tests-agent.service": """\
[Unit]
DefaultDependencies=no
After=sysinit.target
[Service]
ExecStart=/usr/bin/python3 -I /usr/local/lib/guest_agent.py
[Install]
WantedBy=multi-user.target
""",
    "etc/systemd/system/simulated-board.service": """\
[Unit]
Before=jetdvfsd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'mkdir -p /board; mount -t 9p -o trans=virtio,version=9p2000.L board /board; . /usr/local/lib/board'
[Install]
WantedBy=multi-user.target
""",
    "usr/local/lib/board": PUT_BOARD_IN_PLACE.format("board"),
}


def fail(why: str) -> None:
    sys.exit(f"image.py: {why}")


def check() -> None:
    """Install the programs that a guest needs. Exits with one line if one cannot be had."""
    checking: Command = [ROOT / "tests/system/aarch64.sh", "check"]
    done = subprocess.run(checking, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        fail((done.stderr.strip() or "aarch64.sh check fails").splitlines()[-1])
    packages = {"qemu-system-aarch64": "qemu-system-arm", "mke2fs": "e2fsprogs"}
    for program, package in packages.items():
        if shutil.which(program) is None:
            if shutil.which("apt-get") is None:
                fail(f"missing: {program}")
            command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            if subprocess.run(command, env=quiet, capture_output=True, check=False).returncode != 0:
                fail(f"cannot be installed: {package}")


class Image(NamedTuple):
    """Files that QEMU starts a guest with."""

    kernel: Path
    initrd: Path
    disk: Path


def made(configuration: str, disk: Path) -> Image:
    """An image with this drop-in of the configuration, written to ``disk``."""
    built = _built()
    subprocess.run(["cp", "--sparse=always", built.disk, disk], check=True)
    drop_in = disk.with_suffix(".yaml")
    drop_in.write_text(configuration)
    changes = f"rm {CONFIGURATION}\nwrite {drop_in} {CONFIGURATION}\n"
    subprocess.run(["debugfs", "-w", "-f", "-", disk], input=changes, check=True, text=True, capture_output=True)
    return built._replace(disk=disk)


def _built() -> Image:
    """The image with an empty drop-in."""
    base, folder = ROOTS / "bookworm-arm64", ROOTS / "bookworm-arm64-image"
    image = Image(*(folder / name for name in Image._fields))
    marker, digest = folder / "digest", _digest()
    if marker.exists() and marker.read_text() == digest:
        return image
    subprocess.run([DEBIAN, "make", "--arch=arm64", "bookworm", base, *_PACKAGES.split(), *_TO_BUILD.split()], check=True)
    root = folder / "root"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    subprocess.run(["cp", "-a", "--reflink=auto", base, root], check=True)
    _install(root)
    image.initrd.write_bytes(initramfs(root))
    (kernel,) = (root / "boot").glob("vmlinuz-*")
    kernel.rename(image.kernel)
    subprocess.run(["sh", "-ec", f"rm -r {_UNUSED_FILES}"], cwd=root, check=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", root, image.disk, _DISK], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(root)
    marker.write_text(digest)
    return image


def _install(root: Path) -> None:
    """Build the package in a root file system, and install it with the kernel, the board and the agent."""
    for path, text in _FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    shutil.copy(Path(__file__).with_name("guest_agent.py"), root / "usr/local/lib")
    for place in ("/src", SOURCE):
        subprocess.run([DEBIAN, "source", root, place], check=True)
    with root.with_name("log").open("w") as log:
        words: Command = [DEBIAN, "enter", root, "env", "DEBIAN_FRONTEND=noninteractive", "sh", "-ec", _INSTALL]
        if subprocess.run(words, stdout=log, stderr=log, check=False).returncode != 0:
            fail(f"the package is not built or not installed, see {log.name}")
    pip: Command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--only-binary=:all:", "--target", root / "opt/testing", "pytest>=8"], check=True)
    # Tests run from the source; the workers that they start are the package's.
    shutil.copy(root / "usr/lib/python3/dist-packages/jetdvfs" / CORE, root / SOURCE[1:] / CORE)
    (root / "opt/testing/jetdvfs").symlink_to(SOURCE)


def _digest() -> str:
    """Digest of the sources of the image."""
    files = [path for name in _SOURCES for path in (ROOT / name).rglob("*") if path.is_file()]
    files += [ROOT / name for name in ("__init__.py", "setup.cfg", "setup.py", "Makefile", "CHANGELOG.md")]
    files += [Path(__file__).with_name(name) for name in ("image.py", "initramfs.py", "machine.py", "guest_agent.py")]
    found = hashlib.sha256()
    for path in sorted(files):
        if path.suffix not in (".pyc", ".so"):
            found.update(f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


if __name__ == "__main__":
    if sys.argv[1:] != ["check"]:
        sys.exit(__doc__)
    check()
