# SPDX-License-Identifier: Apache-2.0
"""Simulated boards in a process of their own, one after the other on the same folder, and what is done to them there.

    python -m jetdvfs.tests.soak.boards

takes one request per line as JSON on its standard input, and answers each with a line; :class:`Boards` is the other end.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.errors import ProfilesError
from jetdvfs.profiles.twin.serve import BoardServer, serve
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard, simulated_board
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.profiles.twin.tree.attributes import Tree
from jetdvfs.tests.soak.hostile_tree import Ambush, HostileTree, Meddling
from jetdvfs.tests.support.daemons.board_daemon import BoardFiles

_ANSWER_S = 30.0
# What somebody may set on a board, by the end of its files' names.
_SETTABLE = (
    *("scaling_governor", "scaling_min_freq", "scaling_max_freq", "/governor", "/min_freq", "/max_freq"),
    *("mrq_rate_locked", "bwmgr_halt", "clk_state", "emc/state", "emc_iso_cap", "nvpmodel_clk_cap/emc"),
    *("power/control", "railgate_enable", "tpc_pg_mask", "fbp_pg_mask"),
)


class Boards:
    """The process that serves boards; a context manager that ends it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "jetdvfs.tests.soak.boards"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
        )

    def __enter__(self) -> Boards:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def request(self, op: str, **members: Any) -> dict[str, Any]:
        """One request, and its answer.

        Raises:
            RuntimeError: it failed, or no answer came.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **members}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(f"simulated board: it has ended with {self._process.wait(10)}") from None
        ready, _, _ = select.select([self._process.stdout], [], [], _ANSWER_S)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}") if ready else {}
        if answer.get("error", "gone"):
            raise RuntimeError(f"simulated board: {op}: {answer.get('error', 'no answer')}")
        return answer

    def new(self, name: str, backend: str, root: Path) -> ServedBoard:
        """Put a freshly booted board in place of the one before."""
        return ServedBoard(self, root, self.request("new", board=name, backend=backend, root=str(root))["settable"])


class ServedBoard(BoardFiles):
    """The board that stands on its folder now."""

    def __init__(self, boards: Boards, root: Path, settable: list[str]) -> None:
        super().__init__(root)
        self._boards = boards
        self._settable = settable

    @property
    def clocks(self) -> FrequencyConfiguration:
        """The clocks that the hardware runs at."""
        return FrequencyConfiguration(*self._boards.request("clocks")["clocks"])

    @property
    def sprung(self) -> bool:
        """Whether somebody was ended by an ambush."""
        return bool(self._boards.request("sprung")["sprung"])

    def settings(self) -> dict[str, str]:
        """What may be set, as it stands; asked of the board itself, whatever its files pretend."""
        found: dict[str, str] = self._boards.request("settings", paths=self._settable)["values"]
        return found

    def fault(self, **script: Any) -> None:
        self._boards.request("fault", script=script)

    def pretend(self, path: str, content: bytes) -> None:
        """Let a file say something else than its value."""
        self._boards.request("pretend", path=path, content=content.decode("latin-1"))

    def hang(self, path: str) -> None:
        """Let nothing that touches a file come back."""
        self._boards.request("hang", path=path)

    def ambush(self, pid: int, accesses: tuple[str, ...], left: int, after: bool, number: int) -> None:
        self._boards.request("ambush", pid=pid, accesses=accesses, left=left, after=after, number=number)

    def release(self) -> bool:
        """Let whoever hangs come back; whether any file hung."""
        return bool(self._boards.request("release")["hung"])

    def set(self, path: str, value: str) -> None:
        """Write to a file behind the backs of those who hang on it."""
        self._boards.request("set", path=path, value=value)

    def mend(self) -> None:
        """Let everything work again."""
        self._boards.request("mend")


class _Server:
    def __init__(self) -> None:
        self._serving: BoardServer | None = None
        self._board: SimulatedBoard | None = None
        self._meddling = Meddling()

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        op = request["op"]
        if op == "new":
            return self._new(request)
        assert self._board is not None
        board, tree, meddling = self._board, self._board.tree, self._meddling
        if op == "clocks":
            with board.present():
                return {"clocks": board.configuration}
        if op == "sprung":
            return {"sprung": meddling.sprung}
        if op == "settings":
            return {"values": {path: _value(board, path) for path in request["paths"]}}
        if op == "fault":
            with board.present():
                script = dict(request["script"])
                if "path" in script:
                    script["path"] = tree.resolve(script["path"])
                board.faults.script(script)
        elif op == "pretend":
            meddling.contents[tree.resolve(request["path"])] = request["content"].encode("latin-1")
        elif op == "hang":
            meddling.hanging.add(tree.resolve(request["path"]))
        elif op == "ambush":
            meddling.sprung = False
            meddling.ambush = Ambush(
                request["pid"], tuple(request["accesses"]), request["left"], request["after"], request["number"]
            )
        elif op == "release":
            hung = bool(meddling.hanging)
            meddling.release()
            return {"hung": hung}
        elif op == "set":
            with contextlib.suppress(OSError):
                Tree.write(tree, tree.resolve(request["path"]), request["value"].encode() + b"\n")
        elif op == "mend":
            meddling.clear()
            with board.present():
                board.faults.clear()
        return {}

    def _new(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.close()
        self._meddling = Meddling()
        self._board = simulated_board(request["board"])
        tree = HostileTree(self._board.tree, self._meddling, _fuse_caller if request["backend"] == "fuse" else lambda: 0)
        self._board.tree = tree
        self._serving = serve(self._board, Path(request["root"]), request["backend"])
        settable = [path for path, node in tree.files() if node.write and node.read and path.endswith(_SETTABLE)]
        return {"settable": settable}

    def close(self) -> None:
        self._meddling.clear()
        if self._serving is not None:
            self._serving.close()


def _value(board: SimulatedBoard, path: str) -> str:
    node = board.tree.node(path) if board.tree.exists(path) else None
    read = getattr(node, "read", None)
    if read is None:
        return "gone"
    try:
        with board.present():
            value = read()
    except OSError as error:
        return str(error.strerror)
    return str(value)


def _fuse_caller() -> int:
    import mfusepy

    return int(mfusepy.fuse_get_context()[2])


def main() -> None:
    server = _Server()
    with contextlib.closing(server):
        for line in sys.stdin:
            try:
                answer = server.answer(json.loads(line))
            except (OSError, ProfilesError, KeyError, ValueError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps({"error": "", **answer}), flush=True)


def obstacle() -> str:
    """Why boards cannot be served with a kernel's semantics here, or an empty string."""
    return fuse.missing() or ("" if os.geteuid() == 0 else "root is needed")


if __name__ == "__main__":
    main()
