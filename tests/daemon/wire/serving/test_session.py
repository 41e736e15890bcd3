# SPDX-License-Identifier: Apache-2.0
"""Names of clients' programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from jetdvfs.daemon.wire.serving.session import Peer, process_name


@pytest.mark.parametrize("name", ["cat", "fifteen_letters", "an_inference_node_with_a_long_name"])
def test_a_program_has_its_whole_name(name: str, tmp_path: Path) -> None:
    program = shutil.which("cat")
    assert program is not None
    shutil.copy(program, tmp_path / name)
    with subprocess.Popen([tmp_path / name], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None and running.stdout is not None
        running.stdin.write(b"runs\n")
        running.stdin.flush()
        running.stdout.readline()
        assert process_name(Peer(running.pid, 0, 0)) == name
    assert process_name(Peer(running.pid, 0, 0)) == f"pid {running.pid}"


def test_a_name_of_its_own_that_a_program_took_stays_as_it_is() -> None:
    script = "from pathlib import Path; Path('/proc/self/comm').write_text('a_name_of_its_own'); print(flush=True); input()"
    with subprocess.Popen(["python3", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert process_name(Peer(running.pid, 0, 0)) == "a_name_of_its_o"
        running.kill()
