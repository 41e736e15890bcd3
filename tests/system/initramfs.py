# SPDX-License-Identifier: Apache-2.0
"""An initramfs that loads a guest's drivers and starts its systemd: Debian's own would take minutes in an emulation."""

from __future__ import annotations

from pathlib import Path

_MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "9pnet_virtio", "9p", "crc32c_generic", "ext4")
_INIT = """\
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
for module in /modules/*; do /bin/busybox insmod $module; done
until [ -b /dev/vda ]; do /bin/busybox sleep 0.1; done
/bin/busybox mount -t ext4 /dev/vda /root
exec /bin/busybox switch_root /root /sbin/init
"""


def initramfs(root: Path) -> bytes:
    """The archive for the kernel of a root file system."""
    (modules,) = (root / "usr/lib/modules").iterdir()
    lines = (line.split() for line in (modules / "modules.dep").read_text().splitlines())
    needed = {Path(words[0]).stem: [*reversed(words[1:]), words[0].rstrip(":")] for words in lines}
    paths = [path for name in _MODULES for path in needed.get(name, ())]
    files = {f"modules/{number:02}": modules / path for number, path in enumerate(dict.fromkeys(paths))}
    archive = b"".join(_member(name, 0o40755) for name in ("bin", "dev", "modules", "root"))
    archive += _member("init", 0o100755, _INIT.encode())
    archive += _member("bin/busybox", 0o100755, (root / "usr/bin/busybox").read_bytes())
    archive += b"".join(_member(name, 0o100644, path.read_bytes()) for name, path in files.items())
    return archive + _member("TRAILER!!!", 0)


def _member(name: str, mode: int, content: bytes = b"") -> bytes:
    """One member of a cpio archive in its format newc: thirteen numbers, the name, the content."""
    numbers = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name.encode() + b"\0"
    return b"".join(part + bytes(-len(part) % 4) for part in (head, content))
