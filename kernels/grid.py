# SPDX-License-Identifier: Apache-2.0
"""The frequency configurations of one board: the product of its CPU, GPU and memory-clock axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import GridError


class FrequencyConfiguration(NamedTuple):
    """One setting of a board's three clocks, in the units of the kernel files that take them."""

    cpu_khz: int
    gpu_hz: int
    emc_hz: int

    def __str__(self) -> str:
        return f"CPU {self.cpu_khz / 1e3:.1f} MHz, GPU {self.gpu_hz / 1e6:.2f} MHz, EMC {self.emc_hz / 1e6:.1f} MHz"


@dataclass(frozen=True)
class FrequencyGrid:
    """Every frequency configuration of a board: three strictly rising axes, CPU in kHz, GPU and EMC in Hz.

    Surfaces over the grid are arrays of shape ``(len(cpu_khz), len(gpu_hz), len(emc_hz))``, in that axis order.

    Raises:
        GridError: an axis is empty, not strictly rising, or holds a frequency that is not positive.
    """

    cpu_khz: tuple[int, ...]
    gpu_hz: tuple[int, ...]
    emc_hz: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("cpu_khz", "gpu_hz", "emc_hz"):
            axis = tuple(int(level) for level in getattr(self, name))
            if not axis or axis[0] <= 0 or any(b <= a for a, b in pairwise(axis)):
                raise GridError(f"grid axis {name}: expected positive frequencies in strictly rising order, got {axis!r}")
            object.__setattr__(self, name, axis)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (len(self.cpu_khz), len(self.gpu_hz), len(self.emc_hz))

    @property
    def size(self) -> int:
        """The number of configurations."""
        cpu, gpu, emc = self.shape
        return cpu * gpu * emc

    @property
    def top(self) -> FrequencyConfiguration:
        return FrequencyConfiguration(self.cpu_khz[-1], self.gpu_hz[-1], self.emc_hz[-1])

    def levels_mhz(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """The axes as float32 MHz, the unit in which tree ensembles see frequencies."""
        return (
            np.asarray(np.asarray(self.cpu_khz, np.float64) / 1e3, np.float32),
            np.asarray(np.asarray(self.gpu_hz, np.float64) / 1e6, np.float32),
            np.asarray(np.asarray(self.emc_hz, np.float64) / 1e6, np.float32),
        )

    def configuration(self, index: Sequence[int]) -> FrequencyConfiguration:
        """The configuration at a grid index ``(cpu, gpu, emc)``."""
        cpu, gpu, emc = index
        return FrequencyConfiguration(self.cpu_khz[cpu], self.gpu_hz[gpu], self.emc_hz[emc])

    def index(self, configuration: FrequencyConfiguration) -> tuple[int, int, int]:
        """The grid index of a configuration.

        Raises:
            GridError: one of its frequencies is not on its axis; the text lists the valid ones.
        """
        found = []
        for name, value in zip(("cpu_khz", "gpu_hz", "emc_hz"), configuration, strict=True):
            axis: tuple[int, ...] = getattr(self, name)
            if value not in axis:
                raise GridError(f"{name}={value} is not a frequency of this board; valid: {', '.join(map(str, axis))}")
            found.append(axis.index(value))
        return (found[0], found[1], found[2])

    def __iter__(self) -> Iterator[FrequencyConfiguration]:
        for cpu in self.cpu_khz:
            for gpu in self.gpu_hz:
                for emc in self.emc_hz:
                    yield FrequencyConfiguration(cpu, gpu, emc)

    def to_json(self) -> dict[str, list[int]]:
        return {"cpu_khz": list(self.cpu_khz), "gpu_hz": list(self.gpu_hz), "emc_hz": list(self.emc_hz)}

    @classmethod
    def from_json(cls, data: dict[str, list[int]]) -> FrequencyGrid:
        try:
            return cls(tuple(data["cpu_khz"]), tuple(data["gpu_hz"]), tuple(data["emc_hz"]))
        except (KeyError, TypeError, ValueError) as error:
            raise GridError(f"grid: expected integer lists cpu_khz, gpu_hz and emc_hz ({error})") from error
