# SPDX-License-Identifier: Apache-2.0
"""Published batch sizes and GPU clocks: Inception V3 on a Jetson Nano and a Xavier NX.

CPU in mode 0, memory at its top clock; energy is mean board power times batch time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from ....kernels.correction.observation import Observation
from ....kernels.surface import Surface
from ...errors import ComparisonDataError, MeasurementError
from ...twin.measured.mapping import load_mapping
from ...twin.measured.tables import runs
from .fit import find_file

TABLE = "profiling.csv"
NETWORK = "inception_v3"
SIZES = (1, 2, 4, 8, 16)
#: The boards' names in the table, and the profiles that plans are made from.
PROFILES = {"NX": "xavier-nx-sim", "Nano": "nano-sim"}
#: Deadlines, as multiples of one image's time at the top clock.
SLACK = (1.5, 2.0, 3.0, 5.0, 8.0)
_NEAR = 0.02


class BatchMeasurement(Struct, frozen=True):
    batch: int
    gpu_hz: float
    latency_ms: float
    energy_mj: float

    @property
    def item_mj(self) -> float:
        return self.energy_mj / self.batch


def cells(data: Path) -> dict[str, list[BatchMeasurement]]:
    """Cells of each board at planned batch sizes. Raises ComparisonDataError."""
    mapping = load_mapping("gpu-clock-sweeps")
    named = {board: name for name, board in mapping.boards.items()}
    found: dict[str, list[BatchMeasurement]] = {}
    try:
        for run in runs(find_file(data, TABLE), mapping):
            if run.batch in SIZES:
                cell = BatchMeasurement(run.batch, run.levels[1], run.took_ms, run.drew_mw * run.took_ms / 1e3)
                found.setdefault(named[run.board], []).append(cell)
    except MeasurementError as error:
        raise ComparisonDataError(f"the table of batches is not as it was published ({error})") from error
    if not found:
        raise ComparisonDataError(f"the table {TABLE} has no rows of {', '.join(PROFILES)}")
    return found


def deadlines_ms(measured: Sequence[BatchMeasurement]) -> list[float]:
    least = min((cell.latency_ms for cell in measured if cell.batch == min(SIZES)), default=0.0)
    return [least * slack for slack in SLACK]


def best(measured: Sequence[BatchMeasurement], deadline_ms: float) -> BatchMeasurement | None:
    """Cell of least energy per image within a deadline, if any."""
    within = [cell for cell in measured if cell.latency_ms <= deadline_ms]
    return min(within, key=lambda cell: cell.item_mj, default=None)


def at(measured: Sequence[BatchMeasurement], batch: int, gpu_hz: float) -> BatchMeasurement | None:
    near = [cell for cell in measured if cell.batch == batch and abs(cell.gpu_hz / gpu_hz - 1) < _NEAR]
    return min(near, key=lambda cell: abs(cell.gpu_hz - gpu_hz), default=None)


def seen(surface: Surface, measured: Sequence[BatchMeasurement], batch: int) -> Observation | None:
    own = sorted((cell for cell in measured if cell.batch == batch), key=lambda cell: cell.gpu_hz)
    if not own:
        return None
    cell = own[len(own) // 2]
    there = surface.grid.top._replace(gpu_hz=min(surface.grid.gpu_hz, key=lambda level: abs(level - cell.gpu_hz)))
    return Observation(there, cell.latency_ms, 1e3 * cell.energy_mj / cell.latency_ms, frames=30)
