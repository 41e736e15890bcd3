# SPDX-License-Identifier: Apache-2.0
"""An image booted with its own kernel in QEMU, which emulates a 64-bit ARM machine.

The guest's clock counts its instructions, a nanosecond each: its time limits hold however busy this machine is. Its board is
served by a process of this machine, and reached by 9P.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jetdvfs.tests.system.image import Image
from jetdvfs.tests.system.machine import System, board_process

PATIENCE_S = 300.0
"""Longest wait for seconds of the guest's time on a busy machine."""


class Guest(System):
    """A booted guest.

    Attributes:
        console: file of its serial console.
    """

    def __init__(self, port: socket.socket, console: Path, board: Path) -> None:
        super().__init__(board)
        self.console, self._port = console, port
        self._replies = port.makefile("rb")
        assert self._reply() == b"ready\n"

    def run(self, words: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        command = ["runuser", "-u", user, "--", "sh", "-c", words]
        self._port.sendall(json.dumps(command).encode() + b"\n")
        return subprocess.CompletedProcess(command, *json.loads(self._reply()))

    def _reply(self) -> bytes:
        try:
            found = self._replies.readline()
        except TimeoutError:
            found = b""
        assert found, f"the guest does not answer; its console ends:\n{self.console.read_text(errors='replace')[-3000:]}"
        return found


@contextmanager
def booted(image: Image, folder: Path, writes: Path | None = None) -> Iterator[Guest]:
    """A guest with this image, whose disk it changes.

    Args:
        folder: new folder for the guest's socket and console.
        writes: file for the log of the disk's writes, for :mod:`.cut_disk`.
    """
    folder.mkdir()
    disk = f"driver=file,filename={image.disk},cache.no-flush=on"
    if writes is not None:
        writes.touch()
        disk = f"driver=blklogwrites,log.driver=file,log.filename={writes},file.{disk.replace(',', ',file.')}"
    with board_process(folder / "board") as board, socket.create_server(str(folder / "port"), family=socket.AF_UNIX) as server:
        server.settimeout(PATIENCE_S)
        options = {
            "machine": "virt",
            "cpu": "cortex-a76",
            "icount": "shift=0,sleep=on",
            "m": "1536",
            "kernel": f"{image.kernel}",
            "initrd": f"{image.initrd}",
            "append": "console=ttyAMA0 panic=-1 nokaslr quiet systemd.show_status=no",
            "serial": f"file:{folder / 'console'}",
            "chardev": f"socket,id=tests,path={folder / 'port'}",
            "fsdev": f"local,id=board,path={board},security_model=none",
            "blockdev": f"{disk},node-name=disk",
        }
        devices = (
            "virtio-blk-pci,drive=disk",
            "virtio-9p-pci,fsdev=board,mount_tag=board",
            "virtio-serial-pci",
            "virtserialport,chardev=tests,name=tests",
        )
        words = [word for name, value in options.items() for word in (f"-{name}", value)]
        words += [word for device in devices for word in ("-device", device)]
        command = ["qemu-system-aarch64", *words, "-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot"]
        with subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL) as process:
            try:
                port, _ = server.accept()
                with port:
                    port.settimeout(PATIENCE_S)
                    yield Guest(port, folder / "console", board)
            finally:
                process.kill()
