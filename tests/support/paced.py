# SPDX-License-Identifier: Apache-2.0
"""An application that reports frames at its pace, each as long as a rule says of the clocks in force."""

from __future__ import annotations

import time
from collections.abc import Callable

from jetdvfs.daemon.wire.held import HeldLease
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.board_daemon import Board


def run_frames(
    board: Board, lease: HeldLease, latency_ms: Callable[[FrequencyConfiguration], float], frames: int, every_s: float = 0.3
) -> list[float]:
    """Report so many frames; how long each took, in ms."""
    took = []
    for _ in range(frames):
        took.append(latency_ms(board.clocks))
        time.sleep(every_s)
        lease.report(took[-1])
    return took
