# SPDX-License-Identifier: Apache-2.0
"""An application that reports frames at its pace, each as long as a rule says of the clocks in force."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import jetdvfs
from jetdvfs.daemon.wire.client import Client, HeldLease, LoadedModel
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.surface import Surface
from jetdvfs.tests.support.daemons.board_daemon import Board
from jetdvfs.tests.support.paths import REFERENCE

MODEL = REFERENCE / "squeezenet1_0.pt"
IMAGE = ["1x3x224x224"]
FPS = 3.0


def run_frames(
    board: Board, lease: HeldLease, latency_ms: Callable[[FrequencyConfiguration], float], frames: int, every_s: float = 0.2
) -> list[float]:
    """Report so many frames; how long each took, in ms."""
    took = []
    for _ in range(frames):
        took.append(latency_ms(board.clocks))
        time.sleep(every_s)
        lease.report(took[-1])
    return took


@cache
def predicted() -> Surface:
    """What the profile predicts, whatever was learned meanwhile."""
    surface: Surface = jetdvfs.load_profile("agx-xavier-sim").surface(jetdvfs.decompose(str(MODEL), IMAGE[0]))
    return surface


class Application:
    """A network that takes longer than predicted, everywhere by the same factor."""

    def __init__(self, client: Client, slower: float = 1.3) -> None:
        self.network: LoadedModel = client.load(MODEL, IMAGE)
        self.slower = slower

    def predicted_ms(self, clocks: FrequencyConfiguration) -> float:
        return float(predicted().latency_ms[predicted().grid.index(clocks)])

    def __call__(self, clocks: FrequencyConfiguration) -> float:
        return self.slower * self.predicted_ms(clocks)

    def target_ms(self, times_the_fastest: float) -> float:
        return times_the_fastest * float(predicted().latency_ms.min())


def own(client: Client) -> dict[str, Any]:
    return dict(client.status()["leases"][0])
