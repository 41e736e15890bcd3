# SPDX-License-Identifier: Apache-2.0
"""The daemon's process with the system calls of Linux 4.9 alone, on a Jetson Nano with JetPack 4."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import InputError
from jetdvfs.profiles.reference import reference_input, reference_model
from jetdvfs.tests.support.daemons.board_daemon import Daemon, eventually, served_board
from jetdvfs.tests.support.daemons.confined import needs_filter

GOVERNOR = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
OLD_KERNEL = (sys.executable, "-m", "jetdvfs.tests.support.daemons.old_kernel")


@needs_filter
def test_the_kernel_has_no_later_calls() -> None:
    program = "import os; os.pidfd_open(os.getpid())"
    done = subprocess.run([*OLD_KERNEL, sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Function not implemented" in done.stderr


@needs_filter
def test_models_are_read_predicted_and_held_on_linux_4_9(tmp_path: Path) -> None:
    with served_board(tmp_path / "root", "auto", "nano") as board:
        before = board.read(GOVERNOR)
        with Daemon(board, tmp_path, through=OLD_KERNEL) as daemon:
            with daemon.client() as client:
                network = client.load(reference_model("mobilenet_v2"), [str(reference_input("mobilenet_v2"))])
                broken = tmp_path / "broken.pt"
                broken.write_bytes(b"no model")
                with pytest.raises(InputError, match="TorchScript"):
                    client.load(broken, ["1x3x224x224:float32"])
                lease = client.hold(network, "min-energy", fps=5)
                assert lease.applied is not None and lease.applied["verified"], lease.applied
                assert board.read(GOVERNOR) == "userspace" != before
            assert eventually(lambda: board.read(GOVERNOR) == before)
            log = daemon.log.read_text()
            assert "Landlock" not in log and "a filter of system calls" in log
