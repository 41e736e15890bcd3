# SPDX-License-Identifier: Apache-2.0
"""Gate: difficulty of the simulated AGX Xavier compared with real boards.

Each row is a value and its band (:mod:`.gate_bands`). All rows must pass before other recipes are tried.

- *sums*: MIRAGE (SEC '21), Table 1: networks at top clocks, and the sum of their kernels timed alone.
- *boards*: its Figure 2: spread of thirteen boards.
- *kernels*: one model on kernels of desktop GPUs (sitar-lab/NeuSight), measured and simulated.
- *kinds*: plain recipe (:mod:`jetdvfs.profiles.lab.paper.difficulty`), Tables 4 and 5: predictions within 10%.
- *networks*: Table 6: sum of the plain recipe's kernels and the network's latency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ....kernels.grid import FrequencyConfiguration
from ....kernels.network import Network
from ...board import BoardDescription, load_board
from ...twin.silicon.chip import Clocks
from ...twin.silicon.silicon import Silicon, execute
from ..measure.meters.simulated import TwinMeter
from ..paper.characterization import NODES
from ..paper.characterization import measured as run_of
from ..paper.difficulty import ALL_KINDS
from ..paper.published import PAPER
from . import desktop
from . import gate_bands as bands
from .gate_kinds import GateEffort, GateRow, KindModels, table_6

BOARD = "agx-xavier"

Doing = Callable[[str], None]


def rows(
    networks: Sequence[Network], effort: GateEffort, data: Path | None, doing: Doing = lambda what: None
) -> Iterator[GateRow]:
    """Yield each row as soon as it is known; without ``data``, without desktop GPUs. Raises ComparisonDataError."""
    board = load_board(BOARD)
    doing("networks at top clocks")
    yield from sums(networks, board)
    doing("thirteen boards")
    yield from boards(networks, board)
    if data is not None:
        yield from kernels(effort, data, doing)
    models = {}
    for kind in ALL_KINDS:
        models[kind] = KindModels(kind, networks, board, effort, doing)
        yield from models[kind].rows()
    doing("networks at random clocks")
    yield from table_6(networks, board, models, effort)


def sums(networks: Sequence[Network], board: BoardDescription) -> Iterator[GateRow]:
    runs = {network.name: run_of(network, board) for network in networks}
    apart = [100.0 * abs(run.time_ms / PAPER[name].time_ms - 1.0) for name, run in runs.items()]
    for share, most in bands.RUNTIME_UP_TO.items():
        band = bands.GateBand(0.0, most, "MIRAGE, Table 1, Figure 2a")
        yield GateRow.of(
            "sums", f"ten networks' times, {share:.0%} quantile, % off the paper's", np.quantile(apart, share), 0.0, band
        )
    shares = {name: 100.0 * run.all_ms / run.time_ms for name, run in runs.items()}
    real, band = bands.over_whole()
    yield GateRow.of(
        "sums", "networks whose kernels take over 100% of them", sum(share > 100.0 for share in shares.values()), real, band
    )
    points = np.mean([abs(share - PAPER[name].all_kernels) for name, share in shares.items()])
    yield GateRow.of("sums", "kernels' share of the network, points off the paper's", float(points), 0.0, bands.sums_apart())


def boards(networks: Sequence[Network], board: BoardDescription) -> Iterator[GateRow]:
    found = {network.name: network for network in networks}
    three = [*_low_and_middle(board), board.grid.top]
    silicons = [Silicon(node, board) for node in range(NODES)]
    for name, real in bands.POWER_RANGE.items():
        runs = [(execute(found[name], silicon, Clocks.of(three)), silicon) for silicon in silicons]
        watts = np.array([
            np.sum([silicon.sensed(run.rail_energy_j)[rail] for rail in board.energy_rails], axis=0) / run.latency_s
            for run, silicon in runs
        ])  # fmt: skip
        range_ = 100.0 * np.max(np.ptp(watts, axis=0) / np.median(watts, axis=0))
        yield GateRow.of("boards", f"{name}, power, range in % of the median", range_, real, bands.power_range(name))
    latency = np.array([TwinMeter(silicon).network_latency_ms(found["shufflenet_v2_x1_0"], three) for silicon in silicons])
    apart = 100.0 * np.abs(latency / np.median(latency, axis=0) - 1.0)
    for share, real in bands.RUNTIME_UP_TO.items():
        value = float(np.quantile(apart, share, axis=0).max())
        name = f"shufflenet_v2_x1_0, runtime, {share:.0%} quantile, % off the median"
        yield GateRow.of("boards", name, value, real, bands.runtime_quantile(share))


def _low_and_middle(board: BoardDescription) -> list[FrequencyConfiguration]:
    grid = board.grid
    axes = (grid.cpu_khz, grid.gpu_hz, grid.emc_hz)
    return [FrequencyConfiguration(*(axis[int(share * (len(axis) - 1))] for axis in axes)) for share in (0.0, 0.5)]


def kernels(effort: GateEffort, data: Path, doing: Doing = lambda what: None) -> Iterator[GateRow]:
    for kind in desktop.FILES:
        doing(f"{kind} on desktop GPUs")
        real, simulated = desktop.errors(kind, BOARD, data, effort.learn, effort.seed)
        band = bands.of_gpus(list(real.values()))
        for gpu, value in simulated.items():
            yield GateRow.of("kernels", f"{kind}, shapes measured on {gpu}, mean error in %", value, real[gpu], band)
