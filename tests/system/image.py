# SPDX-License-Identifier: Apache-2.0
"""A disk image as a robot maker makes it: Debian for arm64 with its kernel, the package of this tree, and a simulated board.

    python -m jetdvfs.tests.system.image check    install the programs that it needs; if one cannot be had, name it and fail

The package is built and installed under QEMU's user emulation, and kept until its sources change.
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

_PACKAGES = "systemd systemd-sysv dbus udev sudo python3 python3-numpy python3-yaml python3-psutil python3-systemd"
_TO_BUILD = "python3-venv python3-dev gcc libc6-dev dpkg-dev make ca-certificates"
_SOURCES = ("daemon", "docs", "kernels", "profiles", "systemd")
_DISK = "3G"
#: Python libraries for the tests in the guest.
_TESTING = ("pytest>=8", "hypothesis>=6.100")
SOURCE = "/srv/jetdvfs"
_INSTALL = """
apt-get update -qq
INITRD=No apt-get install -y -qq --no-install-recommends linux-image-arm64 busybox-static
cd /src && make deb && mv dist /srv/dist
apt-get install -y -qq --no-install-recommends /srv/dist/jetdvfs_*.deb /srv/dist/jetdvfs-twin_*.deb
systemctl enable tests-agent simulated-board
useradd --create-home --groups jetdvfs admin
"""
_PROGRAMS = ("guest_agent.py", "guest_board.py")
_FILES = {
    "etc/fstab": "/dev/vda / ext4 defaults 0 1\n",
    "usr/local/lib/put-board-in-place": PUT_BOARD_IN_PLACE.format("board"),
    "etc/systemd/system/tests-agent.service": """\
[Unit]
DefaultDependencies=no
After=sysinit.target
[Service]
ExecStart=/usr/bin/python3 /usr/local/lib/guest_agent.py
[Install]
WantedBy=multi-user.target
""",
    "etc/systemd/system/simulated-board.service": """\
[Unit]
Before=jetdvfsd.service
[Service]
ExecStartPre=/bin/sh -ec 'mkdir -p /board; mount -t tmpfs board /board'
ExecStart=/usr/lib/jetdvfs/bin/python3 -I /usr/local/lib/guest_board.py /board
ExecStartPost=/bin/sh -ec 'until [ -e /run/board-is-ready ]; do sleep 0.5; done; . /usr/local/lib/put-board-in-place'
TimeoutStartSec=300
[Install]
WantedBy=multi-user.target
""",
    # The service's limits are for processors, not for the emulation of one.
    "etc/systemd/system/jetdvfsd.service.d/emulated.conf": """\
[Service]
WatchdogSec=60
TimeoutStartSec=300
TimeoutStopSec=120
""",
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
    root = _installed()
    _write(root / "etc/jetdvfs/jetdvfsd.yaml.d/50-robot.yaml", configuration)
    disk.unlink(missing_ok=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", root, disk, _DISK], check=True, stdout=subprocess.DEVNULL)
    initrd = disk.with_suffix(".initrd")
    initrd.write_bytes(initramfs(root))
    (kernel,) = (root / "boot").glob("vmlinuz-*")
    return Image(kernel, initrd, disk)


def _installed() -> Path:
    """A root file system in which the package of this tree is installed."""
    base, root = ROOTS / "bookworm-arm64", ROOTS / "bookworm-arm64-installed"
    subprocess.run([DEBIAN, "make", "--arch=arm64", "bookworm", base, *_PACKAGES.split(), *_TO_BUILD.split()], check=True)
    marker, digest = root.with_suffix(".digest"), _digest()
    if not marker.exists() or marker.read_text() != digest:
        marker.unlink(missing_ok=True)
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", base, root], check=True)
        _prepare(root)
        marker.write_text(digest)
    subprocess.run([DEBIAN, "source", root, SOURCE], check=True)
    core = Path("kernels/trees/_sweep.abi3.so")
    shutil.copy(root / "usr/lib/python3/dist-packages/jetdvfs" / core, root / SOURCE[1:] / core)
    return root


def _prepare(root: Path) -> None:
    """Build the package in a root file system, and install it with the kernel, the board and the agent."""
    for path, text in _FILES.items():
        _write(root / path, text)
    for name in _PROGRAMS:
        _write(root / "usr/local/lib" / name, Path(__file__).with_name(name).read_text())
    subprocess.run([DEBIAN, "source", root, "/src"], check=True)
    with root.with_suffix(".log").open("w") as log:
        words: Command = [DEBIAN, "enter", root, "env", "DEBIAN_FRONTEND=noninteractive", "sh", "-ec", _INSTALL]
        if subprocess.run(words, stdout=log, stderr=log, check=False).returncode != 0:
            fail(f"the package is not built or not installed, see {log.name}")
    shutil.rmtree(root / "src")
    pip: Command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wheels = ["--only-binary=:all:", "--python-version=3.11", "--platform=manylinux2014_aarch64", *_TESTING]
    subprocess.run([*pip, "--target", root / "opt/testing", *wheels], check=True)
    # Tests run from the source; the workers that they start are the package's.
    (root / "opt/testing/jetdvfs").symlink_to(SOURCE)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _digest() -> str:
    """Digest of all that the installed root is made of."""
    files = [path for name in _SOURCES for path in (ROOT / name).rglob("*") if path.is_file()]
    files += [ROOT / name for name in ("__init__.py", "setup.cfg", "setup.py", "Makefile", "CHANGELOG.md")]
    files += [Path(__file__).with_name(name) for name in ("image.py", "machine.py", *_PROGRAMS)]
    found = hashlib.sha256()
    for path in sorted(files):
        if path.suffix not in (".pyc", ".so"):
            found.update(f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


if __name__ == "__main__":
    if sys.argv[1:] != ["check"]:
        sys.exit(__doc__)
    check()
