# SPDX-License-Identifier: Apache-2.0
"""A verb's children: they end with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from jetdvfs.tests.support.daemons.board_daemon import eventually

VERB = """
import sys, time
from pathlib import Path
from jetdvfs.daemon.cli.children import spawn
child = spawn("a server", ["http.server", "--bind", "127.0.0.1", "0"], Path(sys.argv[1]))
print(child.popen.stdout.readline() and child.popen.pid, flush=True)
time.sleep(60)
"""


def test_a_verb_that_is_killed_leaves_no_child_and_no_folder_behind(tmp_path: Path) -> None:
    environment, folder = {**os.environ, "PYTHONUNBUFFERED": "1"}, tmp_path / "of the verb"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", VERB, str(folder)], stdout=subprocess.PIPE, text=True, cwd="/", env=environment
    ) as verb:
        assert verb.stdout is not None
        child = psutil.Process(int(verb.stdout.readline()))
        verb.send_signal(signal.SIGKILL)
    assert eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    assert eventually(lambda: not folder.exists())
