# SPDX-License-Identifier: Apache-2.0
"""A simulated board in place of this machine's files, for as long as a command runs.

    unshare --mount --propagation private python tests/support/boards/whole_board.py BOARD FOLDER COMMAND...

Needs root and a mount namespace of its own: it mounts the board over /sys, links it into /proc, and lays its other files over
/etc, /usr, /opt, /var/lib and /run, none of which anybody outside sees. Python says there that it runs on a Jetson. Ends with
the command's exit code, or with 77 and a reason where such mounts cannot be had.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jetdvfs.profiles.board import BoardDescription, load_board
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.boards.board_apart import start_twin

NOT_HERE = 77
NAMESPACE = ("unshare", "--mount", "--propagation", "private")
# What Python's platform module says on a Jetson.
_UNAME = """\
import os
_real = os.uname()
_told = os.uname_result((_real.sysname, "jetson", {release!r}, _real.version, "aarch64"))
os.uname = lambda: _told
"""
_PROCESSOR = """\
processor\t: {cpu}
model name\t: ARMv8 Processor rev 0 (v8l)
CPU implementer\t: 0x4e
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0x004
CPU revision\t: 0
"""


def mount(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def lay_over(folder: Path, store: Path) -> None:
    """Let writes below a folder go elsewhere."""
    place = store / str(folder).strip("/").replace("/", "-")
    for name in ("upper", "work"):
        (place / name).mkdir(parents=True)
    mount("-t", "overlay", "overlay", "-o", f"lowerdir={folder},upperdir={place / 'upper'},workdir={place / 'work'}", folder)


def copy(source: str, target: str) -> None:
    """Copy a file that says it is longer than it is, as those of sysfs do."""
    Path(target).write_bytes(Path(source).read_bytes())
    Path(target).chmod(Path(source).stat().st_mode)


def put_in_place(twin: Path, store: Path, board: BoardDescription) -> None:
    """Make a mounted twin this machine's files."""
    prefix = Path(sys.base_prefix)
    # Where the service keeps its configuration; often below /usr already.
    own = () if prefix.is_relative_to("/usr") else (prefix,)
    for folder in (Path("/etc"), Path("/usr"), Path("/var/lib"), Path("/opt"), *own):
        lay_over(folder, store)
    real = store / "real-proc"
    real.mkdir()
    mount("--rbind", "/proc", real)
    mount("-t", "tmpfs", "tmpfs", "/run")
    for folder in ("etc", "usr"):
        shutil.copytree(twin / folder, f"/{folder}", copy_function=copy, symlinks=True, dirs_exist_ok=True)
    for folder in ("var/lib/nvpmodel", "opt/nvidia", "run/jetdvfs-twin", "sys"):
        if (twin / folder).is_dir():
            Path("/", folder).mkdir(parents=True, exist_ok=True)
            mount("--bind", twin / folder, f"/{folder}")
    with Path("/etc/group").open("a") as group:
        group.write("jtop:x:990:root\n")
    proc = store / "proc"
    link(proc, real, twin / "proc")
    (proc / "cpuinfo").unlink()
    (proc / "cpuinfo").write_text("\n".join(_PROCESSOR.format(cpu=cpu) for cpu in range(board.cores)))
    tree = proc / "device-tree"
    tree.unlink()
    link(tree, twin / "proc/device-tree")
    # Boards tell their module by an EEPROM, some releases here too; a twin has no EEPROM.
    (tree / "nvidia,boardids").write_text(board.modules[0].removeprefix("p").replace("-", ":"))
    mount("--bind", proc, "/proc")


def link(folder: Path, *layers: Path) -> None:
    """A folder of links to what is in others, of which later ones count first."""
    folder.mkdir()
    for name in {entry.name for layer in layers for entry in layer.iterdir() if not entry.name.isdigit()}:
        found = [layer / name for layer in layers if (layer / name).exists()]
        if len(found) > 1 and found[-1].is_dir():
            link(folder / name, *found)
        elif found:
            (folder / name).symlink_to(found[-1])


def main(name: str, folder: Path, command: list[str]) -> int:
    store = folder / "store"
    store.mkdir()
    board = load_board(name)
    with contextlib.ExitStack() as ending:
        try:
            mount("-t", "tmpfs", "tmpfs", store)
            twin, _ = start_twin(name, store / "twin", "fuse")
            ending.callback(twin.kill)
            put_in_place(store / "twin", store, board)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"a simulated board cannot be put in place of this machine's files: {error}", file=sys.stderr)
            return NOT_HERE
        (store / "site").mkdir()
        release = board.section("twin")["kernel_release"]
        (store / "site" / "sitecustomize.py").write_text(_UNAME.format(release=release))
        env = {**os.environ, "PYTHONPATH": str(store / "site")}
        return subprocess.run(command, env=env, cwd="/", check=False).returncode


def obstacle() -> str:
    """Why none of this can be had here, as far as it can be told, or an empty string."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "root and unshare are needed for a mount namespace"
    tried = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip() or fuse.missing()


def run_on(board: str, folder: Path, *command: str) -> str:
    """What a command prints that runs on a simulated board; skips the test where that cannot be had.

    Args:
        folder: an empty one.
    """
    stage = [*NAMESPACE, sys.executable, __file__, board, str(folder), *command]
    done = subprocess.run(stage, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode == NOT_HERE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
