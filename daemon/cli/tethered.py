# SPDX-License-Identifier: Apache-2.0
"""Runs a module for as long as the process lives that started it, which may end without a word to its children.

    python -m jetdvfs.daemon.cli.tethered PID MODULE [ARGUMENT ...]

Linux, prctl(2): PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, module = int(sys.argv[1]), sys.argv[2]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:  # it has ended already, and nobody will be told
        return
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
