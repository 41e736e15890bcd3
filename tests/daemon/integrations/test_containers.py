# SPDX-License-Identifier: Apache-2.0
"""Applications in real containers of podman and of systemd-nspawn, with the socket mounted, by the host's real daemon."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon
from jetdvfs.tests.support.daemons.other_users import NOBODY, open_to_everybody
from jetdvfs.tests.support.pages import INTEGRATIONS, Page

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="containers of several users are started by root")
# Holds clocks by the socket's usual place, and says how that ended until its standard input does.
CLIENT = f"""
#include "jetdvfs.h"
int main(void) {{
    jetdvfs_client daemon;
    jetdvfs_wish wish = {{0}};
    int code = jetdvfs_connect(&daemon, NULL);
    wish.cpu_khz = {LOW.cpu_khz}; wish.gpu_hz = {LOW.gpu_hz}; wish.emc_hz = {LOW.emc_hz};
    if (!code) code = jetdvfs_hold(&daemon, &wish);
    printf("%d %s\\n", code, daemon.error);
    fflush(stdout);
    while (getchar() != EOF) {{ }}
    jetdvfs_close(&daemon);
    return 0;
}}
"""
MOUNTED = "/run/jetdvfs/jetdvfs.sock"
# What a machine may need for any container to start, and what has nothing to do with the socket.
PODMAN = ["--rm", "-i", "--network=none", "--cgroups=disabled", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
NSPAWN = ["--quiet", "--register=no", "--keep-unit", "--pipe"]


def needs(engine: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(engine) is None, reason=f"there is no {engine} here")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A container's files: the client alone."""
    if shutil.which("cc") is None:
        pytest.skip("there is no compiler cc here")
    folder = tmp_path_factory.mktemp("image")
    for name in ("bin", "dev", "etc", "proc", "run/jetdvfs", "sys", "tmp", "usr", "var"):
        (folder / name).mkdir(parents=True)
    (folder.parent / "client.c").write_text(CLIENT)
    command = ["cc", "-static", "-O1", "-I", str(INTEGRATIONS / "c"), str(folder.parent / "client.c"), "-o", "bin/client"]
    if subprocess.run(command, cwd=folder, capture_output=True, timeout=120).returncode:
        pytest.skip("nothing can be linked statically here")
    open_to_everybody(folder)
    folder.chmod(0o755)
    return folder


@pytest.fixture
def daemon(board: Board, tmp_path: Path) -> Iterator[Daemon]:
    """The daemon, whose socket is the group's that ``nobody`` is in."""
    (tmp_path / "config.yaml").write_text("socket_group: nogroup\n")
    with Daemon(board, tmp_path, "--config", str(tmp_path / "config.yaml")) as daemon:
        daemon.client().close()
        open_to_everybody(daemon.socket)
        daemon.socket.chmod(0o660)
        yield daemon


class Containers:
    """Starts the client in containers of one engine; skips where that starts none at all."""

    def __init__(self, engine: str, image: Path, daemon: Daemon) -> None:
        self._daemon = daemon
        self._engine = engine
        if engine == "podman":
            self._state = tempfile.TemporaryDirectory(prefix="c")  # podman wants a short path
            kept = [f"--root={self._state.name}/kept", f"--runroot={self._state.name}/run", "--storage-driver=vfs"]
            self._before = ["podman", *kept, "run", *PODMAN]
            self._mount = ["-v", f"{daemon.socket}:{MOUNTED}"]
            self._after = ["--rootfs", str(image), "/bin/client"]
        else:
            # It mounts cgroups of its own on some machines, and leaves them there: in its own namespace nobody else sees them.
            self._before = ["unshare", "--mount", "systemd-nspawn", *NSPAWN]
            self._mount = [f"--bind={daemon.socket}:{MOUNTED}"]
            self._after = ["-D", str(image), "/bin/client"]
        answer, _ = self.run()
        if not answer[:1].isdigit():
            pytest.skip(f"{engine} starts no container here: {answer[-200:]}")

    def as_shown(self, folder: Path) -> tuple[str, dict[str, object]]:
        """The same with the options of the page, but for the GPU's."""
        (shown,) = (command for command in Page("Containers", folder).commands if command.startswith(self._engine))
        words = shown.replace(f"{MOUNTED}:{MOUNTED}", MOUNTED).replace(MOUNTED, f"{self._daemon.socket}:{MOUNTED}").split()
        ends = {"podman": ("run", "IMAGE"), "systemd-nspawn": ("systemd-nspawn", "-D")}[self._engine]
        options = [word for word in words[words.index(ends[0]) + 1 : words.index(ends[1])] if "nvidia" not in word]
        return self.run(*[word for word in options if word != "--device"], mount=False)

    def run(self, *options: str, mount: bool = True) -> tuple[str, dict[str, object]]:
        """What the client said, and its lease as the daemon has it; no lease where there is none."""
        command = [*self._before, *(self._mount if mount else []), *options, *self._after]
        kinds = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, text=True, **kinds) as running:  # type: ignore[call-overload]
            said = str(running.stdout.readline()).strip()
            with self._daemon.client() as client:
                leases = client.status()["leases"]
            return said, dict(leases[0]) if leases else {}


@needs("podman")
def test_podman_lets_in_root_and_whoever_has_the_sockets_group(
    board: Board, found: dict[str, str], daemon: Daemon, image: Path, tmp_path: Path
) -> None:
    containers = Containers("podman", image, daemon)
    said, lease = containers.as_shown(tmp_path)
    assert (said, lease["uid"]) == ("0", 0) and lease["pid"] not in (1, os.getpid())
    said, lease = containers.run("--user=1000:1000")
    assert said.startswith("3 permission denied") and not lease
    said, lease = containers.run("--user=1000:1000", f"--group-add={NOBODY}")
    assert (said, lease["uid"]) == ("0", 1000)
    daemon.client().close()
    assert board.settings() == found


@needs("podman")
def test_podman_in_a_user_namespace_is_the_user_that_it_is_on_the_host(daemon: Daemon, image: Path) -> None:
    containers = Containers("podman", image, daemon)
    others = ["--uidmap=0:100000:65536", "--gidmap=0:100000:60000"]
    said, lease = containers.run(*others)
    assert said.startswith("3 permission denied") and not lease  # root in there is nobody in particular here
    said, lease = containers.run(*others, f"--gidmap=60000:{NOBODY}:1", "--group-add=60000")
    assert (said, lease["uid"]) == ("0", 100000)


@needs("systemd-nspawn")
def test_systemd_nspawn_lets_in_root_unless_its_users_are_others(daemon: Daemon, image: Path, tmp_path: Path) -> None:
    containers = Containers("systemd-nspawn", image, daemon)
    said, lease = containers.as_shown(tmp_path)
    assert (said, lease["uid"]) == ("0", 0)
    said, lease = containers.run("--private-users=200000:65536")
    assert said.startswith("3 permission denied") and not lease
