# SPDX-License-Identifier: Apache-2.0
"""A network's surface: latency, power and energy of one inference over a board's frequency configurations."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeAlias

from msgspec import Meta, MsgspecError, Struct, field, json
from msgspec.structs import asdict, force_setattr, replace

from .boundary import Boundary
from .errors import CostModelError
from .grid import FrequencyConfiguration, FrequencyGrid
from .heat import Heat
from .stored_files import replacing
from .units import AXES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray
else:
    from .lazy import numpy as np

_ABSENT = ("guessed_share", "leakage_mw", "least_ms")
FIGURES = ("latency_ms", "power_mw", "energy_mj", "idle_mw", "latency_sigma", "energy_sigma", *_ABSENT)
_NOT_PREDICTED = ("leakage_mw", "least_ms")
TERMS = ("compute_ms", "memory_ms", "host_ms")
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)

_NORMAL = NormalDist()
_Text: TypeAlias = Annotated[str, Meta(max_length=1024)]
_Count: TypeAlias = Annotated[int, Meta(gt=0)]
_Word: TypeAlias = Annotated[str, Meta(max_length=32)]
_Sigma: TypeAlias = Annotated[float, Meta(ge=0, le=10)]
_Share: TypeAlias = Annotated[float, Meta(ge=0, le=1.000001)]


class UnmodelledKind(Struct, frozen=True):
    """A kind bounded by the roofline for want of a model, with its launches and shares (0 to 1) of the network."""

    kind: _Text
    launches: _Count
    flops_share: _Share
    bytes_share: _Share


class Guess(Struct, frozen=True):
    """Kernels whose cost is guessed; ``why`` gives their properties and the measured range.

    ``time_share`` is their part of the GPU's time at the top clocks, 0 to 1.
    """

    kind: _Text
    why: _Text
    launches: _Count
    time_share: _Share


class Prediction(Struct, frozen=True):
    """One point of a surface; the sigmas are standard deviations of log(measured / predicted)."""

    configuration: FrequencyConfiguration
    latency_ms: float
    power_mw: float
    energy_mj: float
    idle_mw: float
    latency_sigma: float
    energy_sigma: float
    guessed_share: float = 0.0


class Tail(Struct, frozen=True):
    """Distribution of a figure's excess over its prediction.

    Beyond the 95th percentile it is a generalised Pareto distribution, as for peaks over a threshold (Coles, An Introduction to
    Statistical Modeling of Extreme Values, 2001, chapter 4).

    Attributes:
        quantiles: of its error at :data:`LEVELS`, in the units of :class:`Tails`; not negative, and not falling.
        shape, scale: of the generalised Pareto distribution beyond the last quantile.
    """

    quantiles: tuple[float, ...]
    shape: float
    scale: float

    def __post_init__(self) -> None:
        if len(self.quantiles) != len(LEVELS) or list(self.quantiles) != sorted(self.quantiles) or min(self.quantiles) < 0:
            raise ValueError(f"expected {len(LEVELS)} quantiles that are not negative and do not fall, got {self.quantiles}")
        if not (0 <= self.shape < 1 and 0 < self.scale < math.inf):
            raise ValueError(f"expected a shape from 0 to below 1 and a positive scale, got {self.shape:g} and {self.scale:g}")

    def quantile(self, probability: float) -> float:
        """Value not exceeded with a probability between 0 and 1; below one half, lower as in a normal distribution."""
        if probability <= LEVELS[0]:
            return self.quantiles[0] + _NORMAL.inv_cdf(probability)
        if probability > LEVELS[-1]:
            rarer = (1 - probability) / (1 - LEVELS[-1])
            excess = -math.log(rarer) if self.shape == 0 else (rarer**-self.shape - 1) / self.shape
            return self.quantiles[-1] + self.scale * excess
        upper = next(number for number, level in enumerate(LEVELS) if level >= probability)
        low, here, high = (_NORMAL.inv_cdf(level) for level in (LEVELS[upper - 1], probability, LEVELS[upper]))
        before, after = self.quantiles[upper - 1], self.quantiles[upper]
        return before + (after - before) * (here - low) / (high - low)


class Tails(Struct, frozen=True):
    """Excess of latencies and energies over predictions, in units of the prediction's deviation.

    ``frames`` is a frame's excess over the median at the same clocks, as a logarithm.
    """

    latency: Tail
    energy: Tail
    frames: Tail


def _read_only(values: ArrayLike) -> NDArray[np.float64]:
    """The values if read-only, as another surface's; else a copy."""
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and values.flags.owndata and not values.flags.writeable:
        return values
    array = np.array(values, np.float64)
    array.setflags(write=False)
    return array


class TermSigmas(Struct, frozen=True):
    """Standard deviations of log(measured / predicted) of a latency's components.

    Attributes:
        compute_sigma, memory_sigma, host_sigma: of each one's rate.
        all_sigma: of the error common to all three.
        idle_sigma, dynamic_sigma: of the idle power, and of the power above it.
        unpredicted: only the three clocks are known, not their overlap.
    """

    compute_sigma: _Sigma
    memory_sigma: _Sigma
    host_sigma: _Sigma
    all_sigma: _Sigma
    idle_sigma: _Sigma
    dynamic_sigma: _Sigma
    unpredicted: bool = False


class Terms(TermSigmas, frozen=True, eq=False, kw_only=True):
    """Components of a latency, for its correction by observations.

    Attributes:
        compute_ms, memory_ms, host_ms: time of each alone, of the grid's shape; 0 if absent.
    """

    compute_ms: NDArray[np.float32]
    memory_ms: NDArray[np.float32]
    host_ms: NDArray[np.float32]

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return {name: getattr(self, name) for name in TERMS}


class SurfaceInfo(Struct, frozen=True):
    """A surface without grid and arrays."""

    method: _Word
    guessed: tuple[Guess, ...] = ()
    unmodelled: tuple[UnmodelledKind, ...] = ()
    boundary: Boundary | None = None
    heat: Heat | None = None
    tails: Tails | None = None
    execution: _Word = "eager"
    execution_note: _Text = ""
    terms: TermSigmas | None = None


class Surface(Struct, frozen=True, eq=False):
    """Latency, power and energy of one inference over a grid, whose shape every array has, read-only; raises CostModelError.

    Attributes:
        power_mw: mean power of the board's energy rails during the inference.
        idle_mw: their power while nothing runs, at the same clocks.
        latency_sigma, energy_sigma: standard deviation of log(measured / predicted), 0 if certain; power shares the energy's.
        guessed_share: guessed kernels' part of the GPU's time, 0 to 1.
        leakage_mw: part of the idle power that grows with the die's temperature.
        least_ms: latency that no execution can undercut, by the roofline; 0 if unknown.
        heat: temperature dependence; None if unknown, or for a surface taken to another temperature.
        tails: excess of measured frames over these figures; None for log-normal errors.
        execution_note: unmeasured parts of the execution on this board.
        temperature_c: the die's, of the grid's shape, after :meth:`warmed`. It is not saved.
        terms: components of the latency; None if unknown, as after a correction.
    """

    grid: FrequencyGrid
    latency_ms: NDArray[np.float64]
    power_mw: NDArray[np.float64]
    energy_mj: NDArray[np.float64]
    idle_mw: NDArray[np.float64]
    latency_sigma: NDArray[np.float64]
    energy_sigma: NDArray[np.float64]
    method: str
    guessed_share: NDArray[np.float64] = field(default_factory=lambda: np.zeros(()))
    guessed: tuple[Guess, ...] = ()
    unmodelled: tuple[UnmodelledKind, ...] = ()
    boundary: Boundary | None = None
    leakage_mw: NDArray[np.float64] = field(default_factory=lambda: np.zeros(()))
    least_ms: NDArray[np.float64] = field(default_factory=lambda: np.zeros(()))
    heat: Heat | None = None
    tails: Tails | None = None
    execution: str = "eager"
    execution_note: str = ""
    temperature_c: NDArray[np.float64] | None = None
    terms: Terms | None = None

    def __post_init__(self) -> None:
        for name in _ABSENT:
            if getattr(self, name).ndim == 0:
                force_setattr(self, name, np.full(self.grid.shape, getattr(self, name)))
        for name in FIGURES:
            array = _read_only(getattr(self, name))
            positive = name in ("latency_ms", "power_mw", "energy_mj")
            if array.shape != self.grid.shape:
                raise CostModelError(f"surface: {name} has shape {array.shape}, the grid has {self.grid.shape}")
            if not np.isfinite(array).all() or (array < 0).any() or (positive and (array == 0).any()):
                raise CostModelError(
                    f"surface: {name} holds values that are not finite or not {'above' if positive else 'at least'} 0"
                )
            force_setattr(self, name, array)
        for name, times in (self.terms.arrays if self.terms else {}).items():
            if times.shape != self.grid.shape or not np.isfinite(times).all() or (times < 0).any():
                raise CostModelError(f"surface: the term {name} has not the grid's shape, or values that are no times")

    @classmethod
    def of(cls, grid: FrequencyGrid, info: SurfaceInfo, arrays: Mapping[str, NDArray[Any]]) -> Surface:
        """Surface of a description, and arrays by name; raises CostModelError."""
        described: dict[str, Any] = {name: getattr(info, name) for name in info.__struct_fields__}
        if info.terms is not None:
            times: dict[str, Any] = {name: arrays[name].astype(np.float32) for name in TERMS}
            described["terms"] = Terms(**asdict(info.terms), **times)
        return cls(grid=grid, **described | {name: arrays[name] for name in FIGURES if name in arrays})

    @property
    def info(self) -> SurfaceInfo:
        described = {name: getattr(self, name) for name in SurfaceInfo.__struct_fields__}
        if self.terms is not None:
            described["terms"] = TermSigmas(*(getattr(self.terms, name) for name in TermSigmas.__struct_fields__))
        return SurfaceInfo(**described)

    def at(self, configuration: FrequencyConfiguration) -> Prediction:
        """Prediction at one configuration, or GridError."""
        index = self.grid.index(configuration)
        figures = {name: float(getattr(self, name)[index]) for name in FIGURES if name not in _NOT_PREDICTED}
        return Prediction(configuration=FrequencyConfiguration(*configuration), **figures)

    def quantile(self, probability: float) -> Surface:
        """The surface that frames stay under with this probability, configuration by configuration.

        The excess follows :attr:`tails`, or a log-normal error. Separate quantiles: energy is not power times latency. The
        result has no uncertainty.
        """
        if not 0 < probability < 1:
            raise CostModelError(f"quantile {probability}: expected a probability between 0 and 1, both excluded")
        more = _NORMAL.inv_cdf(probability) if self.tails is None else self.tails.energy.quantile(probability)
        certain = np.zeros(self.grid.shape)
        return replace(
            self,
            latency_ms=self.latency_quantile_ms(probability),
            power_mw=self.power_mw * np.exp(more * self.energy_sigma),
            energy_mj=self.energy_mj * np.exp(more * self.energy_sigma),
            latency_sigma=certain,
            energy_sigma=certain,
        )

    def latency_quantile_ms(self, probability: float) -> NDArray[np.float64]:
        slower, late = self.slower(probability)
        latency_ms: NDArray[np.float64] = self.latency_ms * np.exp(np.maximum(slower * self.latency_sigma, late))
        return latency_ms

    def slower(self, probability: float) -> tuple[float, float]:
        """Quantile of a latency's error: in deviations of the prediction, and the least as a logarithm."""
        if not 0 < probability < 1:
            raise CostModelError(f"quantile {probability}: expected a probability between 0 and 1, both excluded")
        if self.tails is None:
            return _NORMAL.inv_cdf(probability), -math.inf
        return self.tails.latency.quantile(probability), self.tails.frames.quantile(probability)

    def warmed(self, temperature_c: float | NDArray[np.float64]) -> Surface:
        """The surface at another temperature of the die, one for all configurations or one for each; raises CostModelError."""
        if self.heat is None:
            raise CostModelError("surface: it is not known how its power depends on temperature")
        more_mw = self.leakage_mw * self.heat.growth(temperature_c)
        energy_mj = self.energy_mj + more_mw * self.latency_ms / 1e3
        return replace(
            self,
            power_mw=energy_mj / self.latency_ms * 1e3,
            energy_mj=energy_mj,
            idle_mw=self.idle_mw + more_mw,
            leakage_mw=self.leakage_mw + more_mw,
            heat=None,
            temperature_c=np.broadcast_to(np.asarray(temperature_c, np.float64), self.grid.shape),
        )

    def energy_per_frame_mj(self, fps: float) -> NDArray[np.float64]:
        """Energy of one frame at a steady rate: the inference, then idle at the same clocks until the next frame, if any time
        is left.
        """
        if not 0 < fps < float("inf"):
            raise CostModelError(f"fps={fps}: expected a positive frame rate")
        waiting_ms = np.maximum(1e3 / fps - self.latency_ms, 0)
        energy: NDArray[np.float64] = self.energy_mj + self.idle_mw * waiting_ms / 1e3
        return energy

    def save(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Write an ``.npz`` to a path or an open file; raises CostModelError.

        Its arrays: 1-D ``cpu_khz, gpu_hz, emc_hz``; 3-D in that axis order ``latency_ms, power_mw, energy_mj, idle_mw,
        guessed_share, leakage_mw, least_ms``, the two ``*_sigma`` and, if known, ``compute_ms, memory_ms, host_ms``; and
        ``about``, a JSON text with the other members.
        """
        arrays: dict[str, Any] = {axis: np.array(self.grid.levels(axis), np.int64) for axis in AXES}
        arrays |= {name: getattr(self, name) for name in FIGURES}
        arrays |= self.terms.arrays if self.terms else {}
        try:
            # A name without .npz stays as given.
            with replacing(path) if isinstance(path, (str, os.PathLike)) else nullcontext(path) as file:
                np.savez(file, **arrays, about=np.array(json.encode(self.info).decode()))  # hardly any smaller if compressed
        except OSError as error:
            raise CostModelError(f"{_name(path)}: cannot write the surface ({error.strerror or error})") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str] | BinaryIO) -> Surface:
        """Read the output of :meth:`save`; raises CostModelError."""
        from .npz import check_npz  # not needed by most programs

        try:
            check_npz(path, 1 << 28)
            with np.load(path, allow_pickle=False) as data:
                grid = FrequencyGrid(*(tuple(int(level) for level in data[name]) for name in AXES))
                return cls.of(grid, json.decode(str(data["about"][()]), type=SurfaceInfo), data)
        except (OSError, EOFError, KeyError, TypeError, ValueError, MsgspecError, zipfile.BadZipFile) as error:
            raise CostModelError(f"{_name(path)}: not a saved surface ({error})") from error


def _name(path: str | os.PathLike[str] | BinaryIO) -> str:
    return os.fspath(path) if isinstance(path, (str, os.PathLike)) else "surface"
