# SPDX-License-Identifier: Apache-2.0
"""How version 2 of the simulated chips was calibrated: a few parameters of each chip, by least squares on the logarithms of
what was measured, each table counting as much as any other. Run once; what came out stands in the chips' files. Needs SciPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from ...twin.silicon.chip import Array, Chip
from .tables import Table

PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "agx-xavier": ("library.conv2d", "host.scale", "energies.operation_j", "energies.soc_byte_j"),
    "xavier-nx": (
        *("library.conv2d", "start.start_cycles"),
        *("energies.operation_j", "energies.active_gpu_j", "idle.other_w"),
    ),
    "nano": (
        *("library.conv2d", "start.start_cycles"),
        *("energies.operation_j", "energies.active_gpu_j", "idle.other_w"),
    ),
    "agx-orin-64gb": ("detail.engines.tensorrt.start", "host.cycles", "host.fixed"),
    "orin-nano-8gb": ("memory.fabric_bytes_per_cycle", "library.gelu", "detail.limiter.watts"),
    "agx-thor": (
        *("rates.int8.matrix", "rates.int8.energy", "l2_bytes_per_cycle"),
        *("detail.limiter.watts", "detail.operands.share"),
    ),
}
"""What is fitted on each board; everything else of a chip is as its file says."""
_STAYING = 0.03  # how much a table's error must fall to move a parameter by the factor e
_FARTHEST = 4.0  # the largest factor by which a parameter moves


def value(chip: Chip, name: str) -> float:
    """A number of a chip by its dotted name; 1 where a mapping does not have it."""
    found: Any = chip
    for part in name.split("."):
        found = found.get(part, 1.0) if isinstance(found, Mapping) else getattr(found, part)
    return float(found)


def changed(chip: Chip, values: Mapping[str, float]) -> Chip:
    """A chip with other numbers, by their dotted names."""
    for name, number in values.items():
        made = _changed(chip, name.split("."), number)
        assert isinstance(made, Chip)
        chip = made
    return chip


def _changed(found: Any, way: Sequence[str], number: float) -> Any:
    if not way:
        return number
    if is_dataclass(found) and not isinstance(found, type):
        assert way[0] in {field.name for field in fields(found)}, way[0]
        return replace(found, **{way[0]: _changed(getattr(found, way[0]), way[1:], number)})
    return {**found, way[0]: _changed(found.get(way[0], {}), way[1:], number)}


@dataclass(frozen=True)
class Calibration:
    """What a fit came to: the chip, and the parameters that make it."""

    chip: Chip
    values: Mapping[str, float]


def fitted(chip: Chip, names: Sequence[str], tables: Sequence[Table]) -> Calibration:
    """The chip with the parameters that fit the tables best, from where it stands."""
    from scipy.optimize import least_squares

    start = np.array([value(chip, name) for name in names])

    def made(steps: Array) -> dict[str, float]:
        return dict(zip(names, (start * np.exp(steps - 1.0)).tolist(), strict=True))  # from 1, since differences are relative

    def residuals(steps: Array) -> Array:
        candidate = changed(chip, made(steps))
        parts = [np.log1p(table.errors(candidate)) / np.sqrt(len(table.measured)) for table in tables]
        return np.concatenate([*parts, _STAYING * (steps - 1.0)])

    bounds = (1.0 - np.log(_FARTHEST), 1.0 + np.log(_FARTHEST))
    found = least_squares(residuals, np.ones(len(names)), bounds=bounds, diff_step=0.01, loss="soft_l1", f_scale=0.1)
    values = made(found.x)
    return Calibration(changed(chip, values), values)
