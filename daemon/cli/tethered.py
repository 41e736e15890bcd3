# SPDX-License-Identifier: Apache-2.0
"""Run a module for the lifetime of the starting process, which may end without notice.

    python -m jetdvfs.daemon.cli.tethered PID FOLDER MODULE [ARGUMENT ...]

Once that process has ended, its folder is removed. Linux, prctl(2): PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import shutil
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, folder, module = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the folder goes; modules have their own
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:  # it has ended already, unseen
        return
    sys.argv = sys.argv[3:]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        # Not while a simulated board is mounted there.
        if os.getppid() != parent and folder.is_dir() and not any(map(os.path.ismount, folder.iterdir())):
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
