# SPDX-License-Identifier: Apache-2.0
"""Profile carried to another board: models at scaled clocks, and fitted rates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, TypeAlias

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from ...kernels.cost.board import Regressor
from ..board import ChipRates

Factor: TypeAlias = Annotated[float, Meta(gt=0, description="a positive number")]


class CarriedFactors(Struct, frozen=True):
    """Factors by which predictions were too low: times, idle and dynamic power."""

    compute: Factor = 1.0
    memory: Factor = 1.0
    host: Factor = 1.0
    idle: Factor = 1.0
    dynamic: Factor = 1.0

    def times(self, other: Mapping[str, float]) -> CarriedFactors:
        return CarriedFactors(**{name: value * other.get(name, 1.0) for name, value in asdict(self).items()})

    def rates(self, chip: ChipRates) -> ChipRates:
        flops = {dtype: rate / self.compute for dtype, rate in chip.flops_per_gpu_cycle.items()}
        return ChipRates(flops, chip.bytes_per_emc_cycle / self.memory)


class CarriedOrigin(Struct, frozen=True):
    """Origin of a carried profile.

    Attributes:
        profile: earlier profile; ``board`` is its board.
        clocks: its board's top clocks over the new board's; scales clocks for its models.
        factors: from observations; the files already include those of host and idle power.
        networks: observed networks, with ``observations`` in total.
    """

    profile: str
    board: str
    clocks: tuple[Factor, Factor, Factor]
    factors: CarriedFactors
    networks: tuple[str, ...]
    observations: int

    def time(self, model: Regressor) -> Regressor:
        return model if self.clocks == (1.0, 1.0, 1.0) else _ReclockedModel(model, self.clocks, 0.0)

    def power(self, model: Regressor) -> Regressor:
        return _ReclockedModel(model, self.clocks, math.log(self.factors.dynamic))


class _ReclockedModel(Struct, frozen=True):
    model: Regressor
    clocks: tuple[float, float, float]
    more: float

    def sweep(
        self, features: NDArray[np.float32], levels: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]], /
    ) -> NDArray[np.float32]:
        cpu, gpu, emc = (np.asarray(axis * factor, np.float32) for axis, factor in zip(levels, self.clocks, strict=True))
        return np.asarray(self.model.sweep(features, (cpu, gpu, emc)) + np.float32(self.more), np.float32)
