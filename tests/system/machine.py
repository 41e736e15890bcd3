# SPDX-License-Identifier: Apache-2.0
"""A machine with a Debian and its systemd, in a container, whose ``/sys`` is a simulated board's."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path

from jetdvfs.tests.support.daemons.board_daemon import CPU, EMC, GPU, eventually
from jetdvfs.tests.support.paths import ROOT

DEBIAN = Path(__file__).with_name("debian.sh")
ROOTS = Path(os.environ.get("JETDVFS_ROOTS") or ROOT / "build" / "roots")
# What a board has before jetdvfs comes to it.
_PACKAGES = ("systemd", "systemd-sysv", "dbus", "sudo", "python3")
# A board's files in place of the container's own, but for those that systemd works with.
PUT_BOARD_IN_PLACE = """\
mkdir /run/sys-{0} && mount -t tmpfs sys /run/sys-{0}
for name in $(ls /{0}/sys); do mkdir /run/sys-{0}/$name && mount --rbind /{0}/sys/$name /run/sys-{0}/$name; done
mkdir -p /run/sys-{0}/fs/cgroup && mount --rbind /sys/fs/cgroup /run/sys-{0}/fs/cgroup
mount --make-rprivate /run/sys-{0} && mount --rbind /run/sys-{0} /sys
cp /{0}/etc/nv_tegra_release /etc/
"""
STATES = {"emc-locked": ("orin-nano-8gb", "7"), "late-gpu": ("orin-nano-8gb", "7")}
"""Further boards that a machine may stand on, by the state that they are in: their names, and their JetPack."""


class System(ABC):
    """A booted system with the service, and its simulated board."""

    def __init__(self, board: Path) -> None:
        self._board = board

    @abstractmethod
    def run(self, words: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        """Run a shell's command line as this user."""

    def say(self, words: str, user: str = "root") -> str:
        """What a command that must succeed prints."""
        done = self.run(words, user)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def service(self, what: str) -> str:
        """One of the service's properties, as systemctl shows it."""
        return self.say(f"systemctl show --property={what} --value jetdvfsd")

    def journal(self) -> str:
        return self.run("journalctl --unit=jetdvfsd --no-pager").stdout

    def gpu_hz(self) -> int:
        """The clock that the GPU runs at."""
        return int((self._board / GPU / "cur_freq").read_text())

    def settings(self) -> dict[str, str]:
        """What may be set on the board, as it stands."""
        files = [f"{CPU}/scaling_governor", f"{CPU}/scaling_min_freq", f"{CPU}/scaling_max_freq"]
        files += [f"{GPU}/governor", f"{GPU}/min_freq", f"{GPU}/max_freq", f"{EMC}/mrq_rate_locked", f"{EMC}/rate"]
        return {path: (self._board / path).read_text().strip() for path in files}


class Machine(System):
    """A container."""

    def __init__(self, leader: int, board: Path, suite: str) -> None:
        super().__init__(board)
        self.suite, self._leader = suite, leader

    def command(self, words: str, user: str) -> list[str]:
        """Command that runs a shell inside, after a login of this user."""
        inside = ["nsenter", f"--target={self._leader}", *(f"--{space}" for space in ("mount", "uts", "ipc", "net", "pid"))]
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]
        return [*inside, "--cgroup", "--", *clean, "runuser", "--login", user, "--command", words]

    def run(self, words: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(words, user), capture_output=True, text=True, check=False, timeout=600, stdin=subprocess.DEVNULL
        )

    @contextlib.contextmanager
    def standing_on(self, state: str) -> Iterator[Path]:
        """The machine with one of the further boards under it, and the service started anew; the board's files."""
        self.say(f"systemctl stop jetdvfsd\n{PUT_BOARD_IN_PLACE.format(state)}systemctl start jetdvfsd")
        try:
            yield self._board.with_name(state)
        finally:
            # Over the other, which stays below: how much a recursive umount takes differs between releases of util-linux.
            self.say("systemctl stop jetdvfsd; mount --rbind /run/sys-board /sys")
            self.say("cp /board/etc/nv_tegra_release /etc/ && systemctl reset-failed && systemctl start jetdvfsd")

    def set_settings(self, settings: Mapping[str, str]) -> None:
        """Set what may be set on the board, as somebody else does."""
        for path, value in settings.items():
            if "/clk/" not in path:
                (self._board / path).write_text(value)


@contextlib.contextmanager
def booted(suite: str, folder: Path) -> Iterator[Machine]:
    """A machine with this Debian, freshly installed, on a simulated AGX Xavier that is served in ``folder``."""
    root = ROOTS / f"{suite}-systemd"
    subprocess.run([DEBIAN, "make", suite, root, *_PACKAGES], check=True, timeout=1200)
    with contextlib.ExitStack() as stack:
        board = stack.enter_context(board_process(folder / "board"))
        options = [f"--bind={board}:/board"]
        for state, (name, jetpack) in STATES.items():
            words = ("--board", name, "--jetpack", jetpack, "--state", state)
            options.append(f"--bind={stack.enter_context(board_process(folder / state, *words))}:/{state}")
        # Of its own session, so that an interrupt from a terminal reaches only the tests, which end it.
        boot = stack.enter_context(
            subprocess.Popen([DEBIAN, "boot", root, *options], stdout=subprocess.PIPE, text=True, start_new_session=True)
        )
        assert boot.stdout is not None
        stack.callback(boot.terminate)
        leader = boot.stdout.readline()
        assert leader, f"it does not boot, see {root}.console"
        machine = Machine(int(leader), board, suite)
        up = eventually(lambda: machine.run("systemctl is-system-running").returncode == 0, 120)
        assert up, f"it does not come up: {machine.run('systemctl is-system-running; systemctl --failed').stdout}"
        machine.say(PUT_BOARD_IN_PLACE.format("board"))
        subprocess.run([DEBIAN, "source", f"/proc/{machine._leader}/root", "/srv/jetdvfs"], check=True)
        yield machine


@contextlib.contextmanager
def board_process(mount: Path, *words: str) -> Iterator[Path]:
    """A simulated board's files, served by a process of its own."""
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "twin", "serve", "--mount", str(mount), "--json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as serving:
        assert serving.stdout is not None
        try:
            yield Path(json.loads(serving.stdout.readline())["mount"])
        finally:
            serving.terminate()


def commands_of(section: str) -> list[str]:
    """The commands of a section's console block in README.md, a line each."""
    text = (ROOT / "README.md").read_text()
    block = re.search(rf"^## {section}\n.*?^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block is not None, section
    return re.findall(r"^\$ (.*)$", block[1], re.MULTILINE)
