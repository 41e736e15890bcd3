# SPDX-License-Identifier: Apache-2.0
"""The frequency configurations of one board: the product of its CPU, GPU and memory-clock axes.

Applications import this module too: it loads the standard library only.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex

from msgspec import Struct
from msgspec.structs import force_setattr

from .errors import GridError
from .units import AXES, CLOCKS, mhz, mhz_text, per_mhz

__all__ = ["FrequencyConfiguration", "FrequencyGrid", "parse_configuration"]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONFIGURATION_FORM = "CPU,GPU,EMC"

# No clock is as slow as this in kHz or Hz, and none as fast in MHz.
_MHZ_BELOW = 20_000
_EXTREMES: Mapping[str, Callable[[Sequence[int]], int]] = {"max": max, "min": min}


class FrequencyConfiguration(NamedTuple):
    """One setting of a board's three clocks, in the units of their kernel files."""

    cpu_khz: int
    gpu_hz: int
    emc_hz: int

    @property
    def mhz(self) -> tuple[float, float, float]:
        cpu, gpu, emc = (mhz(axis, level) for axis, level in zip(AXES, self, strict=True))
        return cpu, gpu, emc

    @property
    def mhz_texts(self) -> tuple[str, str, str]:
        cpu, gpu, emc = self.mhz
        return f"{cpu:.1f}", f"{gpu:.2f}", f"{emc:.1f}"

    def __str__(self) -> str:
        cpu, gpu, emc = self.mhz_texts
        # An idle, power-gated GPU has no clock.
        return f"CPU {cpu} MHz, GPU {f'{gpu} MHz' if self.gpu_hz else 'without power'}, EMC {emc} MHz"


def parse_configuration(text: str, levels: Mapping[str, Sequence[int]] | None = None) -> FrequencyConfiguration:
    """Read ``CPU,GPU,EMC``: numbers below 20,000 are in MHz, larger ones in the unit of the clock's kernel file.

    With ``levels`` of each axis, ``max`` and ``min`` are valid for one clock (``max,612,max``) or, alone, for all; a clock left
    to its governor (:func:`governed`) is the lowest. :meth:`FrequencyGrid.index` checks the result.

    Raises:
        GridError: these are not three positive numbers or valid words.

    Examples:
        >>> parse_configuration("1190.4,675.75,1600")
        FrequencyConfiguration(cpu_khz=1190400, gpu_hz=675750000, emc_hz=1600000000)
    """
    words = [word.strip() for word in text.split(",")]
    words = words * len(AXES) if len(words) == 1 and words[0] in _EXTREMES else words
    known: Mapping[str, Sequence[int]] = levels or {}
    if levels is not None and (left := governed(text)):
        words = ["min" if axis in left else word for axis, word in zip(AXES, words, strict=True)]
    try:
        cpu, gpu, emc = (_level(axis, word, known.get(axis)) for axis, word in zip(AXES, words, strict=True))
    except ValueError as error:
        words_too = "; each may be max or min, or empty for its governor" if levels else ""
        example = f"expected {CONFIGURATION_FORM} in MHz, for instance 2265.6,1377,2133, or in kHz,Hz,Hz{words_too}"
        raise GridError(f"configuration {text!r:.80}: {example}") from error
    return FrequencyConfiguration(cpu, gpu, emc)


def governed(text: str) -> frozenset[str]:
    """Axes that a configuration's text leaves empty (``,612,``) for their governors; none if it sets no axis."""
    words = [word.strip() for word in text.split(",")]
    left = [axis for axis, word in zip(AXES, words, strict=False) if not word]
    return frozenset(left) if len(words) == len(AXES) > len(left) else frozenset()


def needs_levels(text: str) -> bool:
    return bool(governed(text)) or any(word.strip() in _EXTREMES for word in text.split(","))


def _level(axis: str, word: str, levels: Sequence[int] | None) -> int:
    if levels is not None and word in _EXTREMES:
        if not levels:
            raise GridError(f"{CLOCKS[axis]} {word}: no frequency of this clock may be set now")
        return _EXTREMES[word](levels)
    value = float(word)
    if not 0 < value < math.inf:
        raise ValueError("not a frequency")
    return round(value * per_mhz(axis) if value < _MHZ_BELOW else value)


def neighbours(axis: str, level: int, levels: Sequence[int]) -> str:
    place = bisect(levels, level)
    near = " and ".join(mhz_text(axis, one) for one in levels[max(place - 1, 0) : place + 1])
    return f"{near} MHz" if near else "none"


class FrequencyGrid(Struct, frozen=True):
    """Every frequency configuration of a board: three strictly rising axes, CPU in kHz, GPU and EMC in Hz; raises GridError.

    Surfaces over the grid have shape ``(len(cpu_khz), len(gpu_hz), len(emc_hz))``.
    """

    cpu_khz: tuple[int, ...]
    gpu_hz: tuple[int, ...]
    emc_hz: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in AXES:
            axis = tuple(int(level) for level in getattr(self, name))
            if not axis or axis[0] <= 0 or any(b <= a for a, b in pairwise(axis)):
                raise GridError(f"grid axis {name}: expected positive frequencies in strictly rising order, got {axis!r}")
            force_setattr(self, name, axis)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (len(self.cpu_khz), len(self.gpu_hz), len(self.emc_hz))

    @property
    def size(self) -> int:
        cpu, gpu, emc = self.shape
        return cpu * gpu * emc

    @property
    def top(self) -> FrequencyConfiguration:
        return FrequencyConfiguration(self.cpu_khz[-1], self.gpu_hz[-1], self.emc_hz[-1])

    def levels_mhz(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """The axes as float32 MHz, the unit of tree ensembles."""
        import numpy as np

        cpu, gpu, emc = (np.asarray(np.asarray(self.levels(axis), np.float64) / per_mhz(axis), np.float32) for axis in AXES)
        return cpu, gpu, emc

    def levels(self, axis: str) -> tuple[int, ...]:
        return tuple(getattr(self, axis))

    def configuration(self, index: Sequence[int]) -> FrequencyConfiguration:
        cpu, gpu, emc = index
        return FrequencyConfiguration(self.cpu_khz[cpu], self.gpu_hz[gpu], self.emc_hz[emc])

    def at(self, cell: SupportsIndex) -> FrequencyConfiguration:
        """Configuration of a flat index into a surface."""
        rest, emc = divmod(int(cell), len(self.emc_hz))
        return self.configuration((*divmod(rest, len(self.gpu_hz)), emc))

    def index(self, configuration: FrequencyConfiguration) -> tuple[int, int, int]:
        """Grid index of a configuration, or GridError with the nearest frequencies."""
        for axis, level in zip(AXES, configuration, strict=True):
            levels = self.levels(axis)
            if level not in levels:
                given = f"{CLOCKS[axis]} {mhz_text(axis, level)} MHz"
                raise GridError(f"{given} is not a frequency of this board; nearest: {neighbours(axis, level, levels)}")
        cpu, gpu, emc = (self.levels(axis).index(level) for axis, level in zip(AXES, configuration, strict=True))
        return cpu, gpu, emc

    def __iter__(self) -> Iterator[FrequencyConfiguration]:
        for cpu in self.cpu_khz:
            for gpu in self.gpu_hz:
                for emc in self.emc_hz:
                    yield FrequencyConfiguration(cpu, gpu, emc)

    def to_json(self) -> dict[str, list[int]]:
        return {axis: list(self.levels(axis)) for axis in AXES}
