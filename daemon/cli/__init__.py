# SPDX-License-Identifier: Apache-2.0
"""The command line: one module per verb."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .verbs import Program

_NEXT = """jetdvfs: meet a latency, energy or power target on a Jetson at the right clocks. Next:
  jetdvfs doctor                                   diagnose the installation and the daemon
  jetdvfs plan MODEL --input SHAPE --target TARGET --profile NAME   choose clocks without setting them
  jetdvfs hold MODEL --input SHAPE --target TARGET -- ./my-application   set them while a command runs
All verbs: jetdvfs --help"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb of ``jetdvfs`` and return its exit code."""

    def program() -> Program:
        from .verbs import JETDVFS

        return JETDVFS

    if not (sys.argv[1:] if argv is None else argv):
        print(_NEXT)
        return _ended(0, argv)
    return launch("jetdvfs", program, argv)


def lab(argv: Sequence[str] | None = None) -> int:
    """As :func:`main`, for ``jetdvfs-lab``, a separate distribution."""
    from importlib import import_module

    try:
        run: Callable[[Sequence[str] | None], int] = import_module("...profiles.lab.cli", __package__).main
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.endswith("profiles.lab"):
            raise
        print("jetdvfs-lab: not installed; from a clone: pip install ./profiles/twin ./profiles/lab", file=sys.stderr)
        return 2
    return run(argv)


def launch(name: str, program: Callable[[], Program], argv: Sequence[str] | None) -> int:
    """As :func:`main`, for any program, loaded here so that an interrupt ends in one line."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in words if not word.startswith("-")), "")
    try:
        from .interrupts import interrupted_afterwards

        with interrupted_afterwards():
            from ...profiles.own_folders import forget_foreign_folders

            forget_foreign_folders()
            from .verbs import run

            own = program()
        code = run(own, words, verb)
    except KeyboardInterrupt:
        print(f"{name} {verb}: interrupted", file=sys.stderr)
        code = 130
    return _ended(code, argv)


def _ended(code: int, argv: Sequence[str] | None) -> int:
    if argv is None:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the interpreter's own end remains
    return code
