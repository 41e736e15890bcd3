# SPDX-License-Identifier: Apache-2.0
"""The command line, run in this process or on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.cli.children import ENDING
from jetdvfs.profiles.lab.cli import main as lab
from jetdvfs.profiles.lab.cli.actions import LAB


@contextlib.contextmanager
def signals_restored() -> Iterator[None]:
    """Restore this process's signals at the end: a verb that is a process of its own leaves them as its command needs them."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handlers = {number: signal.getsignal(number) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit code, the output and the messages of a command line, of ``jetdvfs`` or of ``jetdvfs-lab`` by its verb."""
    try:
        with signals_restored():
            code = (lab if arguments and arguments[0] in LAB.verbs else main)(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_in(folder: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in this process like a process of its own: in a folder, with variables, its output in files.

    The output of programs that it starts is not in there.
    """
    words = [str(argument) for argument in arguments]
    with (
        tempfile.TemporaryDirectory() as outputs,
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(record=True) as warned,
    ):
        out, err = Path(outputs, "out"), Path(outputs, "err")
        patch.chdir(folder)
        for name, value in environment.items():
            patch.setenv(name, value)
        # As outside of tests; and RuntimeWarning is that of an installation without the C core.
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        with (
            out.open("w") as stdout,
            err.open("w") as stderr,
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
        ):
            try:
                with signals_restored():
                    code = main(words)
            except SystemExit as stop:
                code = int(stop.code or 0)
        said = err.read_text() + "".join(f"warning: {one.message}\n" for one in warned)
        return subprocess.CompletedProcess(words, code, out.read_text(), said)


def answered(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command line that ran to its end: in this process, or in one of its own if it runs a command, whose output counts."""
    if "--" not in arguments:
        return run_in(Path("/"), *arguments, **environment)
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", *map(str, arguments)]
    env = {**os.environ, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd="/", timeout=60)


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command line that succeeds without a message answers in JSON."""
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def on_terminal(*arguments: object, **environment: str) -> str:
    """The output of a command line on a terminal."""
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", *map(str, arguments)]
    shown = b""
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, env={**os.environ, **environment}):
        os.close(terminal)
        with contextlib.suppress(OSError):  # a terminal whose last program has ended cannot be read
            while part := os.read(screen, 1 << 16):
                shown += part
    os.close(screen)
    return shown.decode().replace("\r\n", "\n")
