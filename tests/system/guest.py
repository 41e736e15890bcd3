# SPDX-License-Identifier: Apache-2.0
"""An image booted with its own kernel in QEMU, which emulates a 64-bit ARM machine: times in it say nothing.

Every write of the guest is logged, so that the disk can be had as a power cut at any moment leaves it.
"""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jetdvfs.tests.support.daemons.board_daemon import CPU, EMC, GPU
from jetdvfs.tests.system.image import Image
from jetdvfs.tests.system.machine import Commands

_BOOT_S, _COMMAND_S = 600.0, 1800.0
# The guest has all of its devices by then, and no terminal.
_WITHOUT = " ".join(
    f"systemd.mask={unit}"
    for unit in (
        *(f"systemd-udev{name}" for name in ("d.service", "-trigger.service", "d-control.socket", "d-kernel.socket")),
        "serial-getty@ttyAMA0.service",
        "systemd-logind.service",
    )
)
_FILES = (
    *(f"{CPU}/{name}" for name in ("scaling_governor", "scaling_min_freq", "scaling_max_freq")),
    *(f"{GPU}/{name}" for name in ("governor", "min_freq", "max_freq")),
    *(f"{EMC}/{name}" for name in ("mrq_rate_locked", "rate")),
)


class Guest(Commands):
    """A booted guest.

    Attributes:
        console: file of its serial console.
        log: file of its disk's writes.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self.console, self.log = folder / "console", folder / "writes"
        deadline_s = time.monotonic() + _BOOT_S
        while not (folder / "port").exists():
            assert process.poll() is None and time.monotonic() < deadline_s, "QEMU does not start"
            time.sleep(0.1)
        self._port = socket.socket(socket.AF_UNIX)
        self._port.connect(str(folder / "port"))
        self._port.settimeout(_BOOT_S)
        self._replies = self._port.makefile("rb")
        assert self._reply() == b"ready\n"
        self._port.settimeout(_COMMAND_S)

    def run(self, words: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        # A login takes seconds in an emulation.
        command = ["sh", "-c", words] if user == "root" else ["runuser", "--login", user, "--command", words]
        self._port.sendall(json.dumps(command).encode() + b"\n")
        return subprocess.CompletedProcess(command, *json.loads(self._reply()))

    def _reply(self) -> bytes:
        try:
            found = self._replies.readline()
        except TimeoutError:
            found = b""
        assert found, f"the guest does not answer; its console ends:\n{self.console.read_text(errors='replace')[-3000:]}"
        return found

    def settings(self) -> dict[str, str]:
        """Clocks that may be set on the board, as they are."""
        values = self.say(f"cd / && cat {shlex.join(_FILES)}").splitlines()
        return dict(zip(_FILES, values, strict=True))

    def until(self, words: str, longest_s: float = 1800.0) -> None:
        """Wait until a command succeeds."""
        deadline_s = time.monotonic() + longest_s
        while (done := self.run(words)).returncode != 0:
            assert time.monotonic() < deadline_s, f"{words}: {done.stdout}{done.stderr}\n{self.journal()[-3000:]}"
            time.sleep(3)

    def written_bytes(self) -> int:
        """Length of the log of writes: a moment in the disk's life."""
        return self.log.stat().st_size

    def cut_power(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def booted(image: Image, folder: Path) -> Iterator[Guest]:
    """A guest with this image, whose disk it changes. Its socket and logs are in ``folder``, which must be new."""
    folder.mkdir()
    (folder / "writes").touch()
    disk = f"driver=blklogwrites,node-name=disk,file.driver=file,file.filename={image.disk}"
    options = {
        "machine": "virt",
        "cpu": "cortex-a72",
        "m": "1536",
        "kernel": f"{image.kernel}",
        "initrd": f"{image.initrd}",
        "append": f"console=ttyAMA0 panic=-1 quiet systemd.show_status=no {_WITHOUT}",
        "serial": f"file:{folder / 'console'}",
        "chardev": f"socket,id=tests,path={folder / 'port'},server=on,wait=off",
        "blockdev": f"{disk},log.driver=file,log.filename={folder / 'writes'}",
    }
    devices = ("virtio-blk-pci,drive=disk", "virtio-serial-pci", "virtserialport,chardev=tests,name=tests")
    words = [word for name, value in options.items() for word in (f"-{name}", value)]
    words += [word for device in devices for word in ("-device", device)]
    command = ["qemu-system-aarch64", *words, "-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot"]
    with subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL) as process:
        try:
            yield Guest(process, folder)
        finally:
            process.kill()
