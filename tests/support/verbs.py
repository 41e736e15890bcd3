# SPDX-License-Identifier: Apache-2.0
"""The command line, run in this process or on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from typing import Any

import pytest

from jetdvfs.daemon.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit code, the output and the messages of a command line."""
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


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
