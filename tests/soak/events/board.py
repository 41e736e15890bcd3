# SPDX-License-Identifier: Apache-2.0
"""What a board does to itself, and what others do to it."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import time
from dataclasses import dataclass

from jetdvfs.profiles.twin.tools import nvpmodel
from jetdvfs.tests.soak.stage import Stage

_TOOL_S = 5.0

#: What files may say instead of their values.
CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "a newline": b"\n",
    "NULs": b"\0\0\0\0",
    "nan": b"nan\n",
    "inf": b"inf\n",
    "-1": b"-1\n",
    "a huge number": b"9" * 400 + b"\n",
    "a number beyond 64 bits": b"36893488147419103232\n",
    "garbage": b"\xff\xfe\x80 garbage \x1b[31m\n",
    "a page of garbage": b"\xa5" * 4096,
    "a word": b"<unsupported>\n",
    "0": b"0\n",
}


@dataclass(frozen=True)
class Refuse:
    """A file refuses."""

    path: str
    errno: str
    access: str
    times: int | None

    def words(self) -> str:
        return f"{self.path} answers {self.errno} to every {self.access}" + (f", {self.times} times" if self.times else "")

    def play(self, stage: Stage) -> None:
        stage.unusable.add("board")
        stage.board.fault(kind="refuse", path=self.path, errno=self.errno, access=self.access, times=self.times)


@dataclass(frozen=True)
class Pretend:
    """A file says what no kernel says."""

    path: str
    content: str

    def words(self) -> str:
        return f"{self.path} says {self.content}"

    def play(self, stage: Stage) -> None:
        stage.unusable.add("board")
        stage.board.pretend(self.path, CONTENTS[self.content])


@dataclass(frozen=True)
class Hang:
    """Whoever touches a file does not come back until it is mended."""

    path: str

    def words(self) -> str:
        return f"{self.path} hangs"

    def play(self, stage: Stage) -> None:
        stage.unusable.add("board")
        stage.board.hang(self.path)


@dataclass(frozen=True)
class Fault:
    """One of the faults that a simulated board has scripts for."""

    script: tuple[tuple[str, object], ...]

    def words(self) -> str:
        return "fault: " + ", ".join(f"{name} {value}" for name, value in self.script)

    def play(self, stage: Stage) -> None:
        stage.unusable.add("board")
        stage.board.fault(**dict(self.script))


@dataclass(frozen=True)
class Mend:
    """Everything works again."""

    def words(self) -> str:
        return "everything on the board works again"

    def play(self, stage: Stage) -> None:
        stage.board.mend()
        stage.unusable.discard("board")


@dataclass(frozen=True)
class Stranger:
    """Somebody else writes to a file of a clock."""

    path: str
    value: str

    def words(self) -> str:
        return f"somebody else writes {self.value} to {self.path}"

    def play(self, stage: Stage) -> None:
        note(stage, self.path, self.value)
        stage.board.set(self.path, self.value)
        note(stage, self.path, stage.board.settings().get(self.path, self.value))


@dataclass(frozen=True)
class Mode:
    """Somebody changes the power mode by the board's own program."""

    mode: int

    def words(self) -> str:
        return f"somebody runs nvpmodel -m {self.mode}"

    def play(self, stage: Stage) -> None:
        before = stage.board.settings()
        # A process of its own: files that hang for the daemon hang for everybody.
        child = os.fork()
        if child == 0:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(BaseException):
                nvpmodel.main(["-m", str(self.mode)], str(stage.board.root))
            os._exit(0)
        deadline = time.monotonic() + _TOOL_S
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            time.sleep(0.01)
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                stage.board.release()
        for path, value in stage.board.settings().items():
            if value != before.get(path):
                note(stage, path, value)


@dataclass(frozen=True)
class Wait:
    """Time passes."""

    seconds: float

    def words(self) -> str:
        return f"{self.seconds:g} s pass"

    def play(self, stage: Stage) -> None:
        time.sleep(self.seconds)


def note(stage: Stage, path: str, value: str) -> None:
    """Remember that this is somebody else's value."""
    stage.strangers.setdefault(path, []).append(value)
