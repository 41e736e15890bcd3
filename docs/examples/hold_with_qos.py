# SPDX-License-Identifier: Apache-2.0
"""Application that requests clocks from the daemon and reports its frame times.

    python docs/examples/hold_with_qos.py MODEL SHAPE TARGET [FRAMES]

Without a daemon it runs the same and holds nothing. ``$JETDVFS_SOCKET`` names another socket.
"""

from __future__ import annotations

import sys
import time

from jetdvfs import qos  # the standard library and nothing else

FPS = 30.0


def infer() -> None:
    """Stand-in for the network and the wait for its result; with PyTorch, ``qos.frame`` waits for the GPU."""
    time.sleep(0.020)


model, shape, target = sys.argv[1:4]
frames = int(sys.argv[4]) if len(sys.argv) > 4 else 60
with qos.hold(model, [shape], target, fps=FPS, reason="an example", required=False) as lease:
    if lease.plan is None:
        print("no daemon: running at the clocks there are")
    else:
        print(f"held: {lease.plan['choice']['configuration']}")
    for _ in range(frames):
        with qos.frame(lease) as frame:
            infer()
        time.sleep(max(0.0, 1 / FPS - frame.latency_ms / 1e3))
print(f"the last of {frames} frames took {frame.latency_ms:.1f} ms; the clocks are given back")
