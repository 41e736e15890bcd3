# SPDX-License-Identifier: Apache-2.0
"""The surface of a network: latency, power and energy of one inference at every frequency configuration of a board."""

from __future__ import annotations

import json
import math
import os
import zipfile
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import NormalDist
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from .boundary import Boundary
from .errors import CostModelError
from .grid import FrequencyConfiguration, FrequencyGrid
from .heat import Heat
from .stored import check_npz, replacing
from .units import AXES

T = TypeVar("T", "Guess", "UnmodelledKind")
_ABSENT = ("guessed_share", "leakage_mw", "least_ms")
FIGURES = ("latency_ms", "power_mw", "energy_mj", "idle_mw", "latency_sigma", "energy_sigma", *_ABSENT)
_NOT_PREDICTED = ("leakage_mw", "least_ms")
TERMS = ("compute_ms", "memory_ms", "host_ms")
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""At which probabilities quantiles are kept."""

_NORMAL = NormalDist()


@dataclass(frozen=True)
class UnmodelledKind:
    """A kind whose kernels were bounded by the roofline for want of a model, and how much of the network it is.

    Attributes:
        launches: how often it is launched.
        flops_share, bytes_share: its part of the network's FLOPs and bytes, 0 to 1.
    """

    kind: str
    launches: int
    flops_share: float
    bytes_share: float


@dataclass(frozen=True)
class Guess:
    """Kernels whose cost is guessed: nothing like them was measured.

    Attributes:
        kind: their kind.
        why: what they are or have, and what was measured.
        launches: how many there are.
        time_share: their part of the GPU's time at the top clocks, 0 to 1.
    """

    kind: str
    why: str
    launches: int
    time_share: float


@dataclass(frozen=True)
class Prediction:
    """One point of a surface.

    The sigmas are standard deviations of log(measured / predicted), ``guessed_share`` is the part of the GPU's time that
    guessed kernels take, 0 to 1.
    """

    configuration: FrequencyConfiguration
    latency_ms: float
    power_mw: float
    energy_mj: float
    idle_mw: float
    latency_sigma: float
    energy_sigma: float
    guessed_share: float = 0.0


@dataclass(frozen=True)
class Tail:
    """How a figure exceeds its prediction.

    Beyond the 95th percentile what exceeds is taken to follow a generalised Pareto distribution, as peaks over a threshold do
    (Coles, An Introduction to Statistical Modeling of Extreme Values, 2001, chapter 4): frames that something delays are rarer
    than one in twenty and much later than a normal distribution has them.

    Attributes:
        quantiles: of its error at :data:`LEVELS`, in units that :class:`Tails` says; not negative, and not falling.
        shape, scale: of the generalised Pareto distribution of what exceeds the last of them.

    Raises:
        ValueError: they are not of that form.
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
        """What is not exceeded with a probability between 0 and 1; below one half, so much less as of a normal distribution."""
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


@dataclass(frozen=True)
class Tails:
    """How latencies and energies exceed what is predicted.

    Attributes:
        latency, energy: in units of the prediction's deviation.
        frames: how a frame exceeds the median of frames at the same clocks, as a logarithm: what is left however well that
            median is known.
    """

    latency: Tail
    energy: Tail
    frames: Tail


@dataclass(frozen=True, eq=False)
class Terms:
    """What a latency is made of, for its correction by what is observed.

    Attributes:
        compute_ms, memory_ms, host_ms: what each would take alone, each of the grid's shape; 0 where there is none.
        compute_sigma, memory_sigma, host_sigma: standard deviation of log(measured / predicted) of each one's rate.
        all_sigma: of what errs alike in all three.
        idle_sigma, dynamic_sigma: of the power while nothing runs, and of what is drawn above it.
        unpredicted: whether there is nothing behind them but that there are three clocks, and nobody knows either how far they
            hide each other.
    """

    compute_ms: NDArray[np.float32]
    memory_ms: NDArray[np.float32]
    host_ms: NDArray[np.float32]
    compute_sigma: float
    memory_sigma: float
    host_sigma: float
    all_sigma: float
    idle_sigma: float
    dynamic_sigma: float
    unpredicted: bool = False

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The three over the grid, by name."""
        return {name: getattr(self, name) for name in TERMS}


@dataclass(frozen=True, eq=False)
class Surface:
    """Latency, power and energy of one inference over a grid; every array is read-only and has the grid's shape.

    Attributes:
        grid: the axes.
        latency_ms: from the start of the inference to its end.
        power_mw: mean power of the board's energy rails during it.
        energy_mj: their energy during it.
        idle_mw: their power while nothing runs, at the same clocks.
        latency_sigma, energy_sigma: standard deviation of log(measured / predicted); 0 where nothing is uncertain. Power, whose
            errors are mostly those of energy, shares the energy's.
        method: ``timeline`` or ``sum``.
        guessed_share: the part of the GPU's time that guessed kernels take, 0 to 1; by default none.
        guessed: which kernels those are, those that take most first.
        unmodelled: those of them that were bounded by the roofline for want of a model.
        boundary: where the list of launches ends that it was made from, if before the end of its network.
        leakage_mw: the part of the idle power that grows with the die's temperature.
        least_ms: latency that no execution of the network can undercut, by its roofline; 0 if unknown.
        heat: how, and at which temperature the figures hold; None where nobody knows, or where they were taken to another one.
        tails: how what is measured, frame by frame, exceeds these figures; None where errors are taken to be log-normal.
        execution: how the network's launches reach the GPU: ``eager``, ``graph`` or ``engine``.
        execution_note: what nobody measured of that on this board, in words; empty where all was.
        temperature_c: the die's to which they were taken, of the grid's shape; None where they were not. It is not saved.
        terms: what the latency is made of; None where nobody knows, as of surfaces that were corrected.

    Raises:
        CostModelError: an array has not the grid's shape or holds a value that is not a finite number.
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
                object.__setattr__(self, name, np.full(self.grid.shape, getattr(self, name)))
        for name in FIGURES:
            array = np.array(getattr(self, name), np.float64)
            positive = name in ("latency_ms", "power_mw", "energy_mj")
            if array.shape != self.grid.shape:
                raise CostModelError(f"surface: {name} has shape {array.shape}, the grid has {self.grid.shape}")
            if not np.isfinite(array).all() or (array < 0).any() or (positive and (array == 0).any()):
                raise CostModelError(
                    f"surface: {name} holds values that are not finite or not {'above' if positive else 'at least'} 0"
                )
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        for name, times in (self.terms.arrays if self.terms else {}).items():
            if times.shape != self.grid.shape or not np.isfinite(times).all() or (times < 0).any():
                raise CostModelError(f"surface: the term {name} has not the grid's shape, or values that are no times")

    def at(self, configuration: FrequencyConfiguration) -> Prediction:
        """The prediction at one configuration.

        Raises:
            GridError: it is not one of the grid's.
        """
        index = self.grid.index(configuration)
        figures = {name: float(getattr(self, name)[index]) for name in FIGURES if name not in _NOT_PREDICTED}
        return Prediction(configuration=FrequencyConfiguration(*configuration), **figures)

    def quantile(self, probability: float) -> Surface:
        """The surface that frames stay under with this probability, configuration by configuration.

        How far they exceed the prediction follows from :attr:`tails`; without them errors are taken as log-normal. Latency,
        power and energy are each taken to their own quantile, so that energy is no longer power times latency; the result has
        no uncertainty of its own.

        Raises:
            CostModelError: the probability is not between 0 and 1.
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
        """The latency of :meth:`quantile` alone.

        Raises:
            CostModelError: the probability is not between 0 and 1.
        """
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
        """The surface at another temperature of the die, one for all configurations or one for each.

        Raises:
            CostModelError: nobody knows how its power depends on temperature, or there is no such temperature.
        """
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
        """Energy of one frame at a steady rate: the inference, then idle at the same clocks until the next frame.

        Where an inference outlasts the period, frames are late and their energy is that of the inference alone.

        Raises:
            CostModelError: the rate is not positive.
        """
        if not 0 < fps < float("inf"):
            raise CostModelError(f"fps={fps}: expected a positive frame rate")
        waiting_ms = np.maximum(1e3 / fps - self.latency_ms, 0)
        energy: NDArray[np.float64] = self.energy_mj + self.idle_mw * waiting_ms / 1e3
        return energy

    def save(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Write an ``.npz`` to a path or an open file.

        Its arrays: 1-D ``cpu_khz, gpu_hz, emc_hz``; 3-D ``latency_ms, power_mw, energy_mj, idle_mw, guessed_share, leakage_mw,
        least_ms``, the two ``*_sigma`` and, if known, the terms ``compute_ms, memory_ms, host_ms``, in that axis order; and
        ``about``, a JSON text with the method, what was guessed and not modelled, the boundary, the heat, the tails and the
        terms' sigmas (null if there is none), and the execution.

        Raises:
            CostModelError: the file cannot be written.
        """
        arrays: dict[str, Any] = {axis: np.array(self.grid.levels(axis), np.int64) for axis in AXES}
        arrays |= {name: getattr(self, name) for name in FIGURES}
        arrays |= self.terms.arrays if self.terms else {}
        about = json.dumps(
            {
                "method": self.method,
                "guessed": [asdict(guess) for guess in self.guessed],
                "unmodelled": [asdict(kind) for kind in self.unmodelled],
                "boundary": self.boundary and self.boundary.to_json(),
                "heat": self.heat and asdict(self.heat),
                "tails": self.tails and asdict(self.tails),
                "execution": self.execution,
                "execution_note": self.execution_note,
                "terms": self.terms and {name: value for name, value in vars(self.terms).items() if name not in TERMS},
            }
        )
        try:
            # A name without .npz stays as it was given.
            with replacing(path) if isinstance(path, (str, os.PathLike)) else nullcontext(path) as file:
                np.savez(file, **arrays, about=np.array(about))  # hardly any smaller if compressed
        except OSError as error:
            raise CostModelError(f"{_name(path)}: cannot write the surface ({error.strerror or error})") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str] | BinaryIO) -> Surface:
        """Read what :meth:`save` wrote.

        Raises:
            CostModelError: the file cannot be read as a surface.
        """
        try:
            check_npz(path, 1 << 28)
            with np.load(path, allow_pickle=False) as data:
                axes = (tuple(int(level) for level in data[name]) for name in AXES)
                about = json.loads(str(data["about"][()]))
                return cls(
                    grid=FrequencyGrid(*axes),
                    method=str(about["method"]),
                    guessed=tuple(_member(Guess, item) for item in about.get("guessed", ())),
                    unmodelled=tuple(_member(UnmodelledKind, item) for item in about["unmodelled"]),
                    boundary=Boundary.from_json(about.get("boundary")),
                    heat=Heat(**about["heat"]) if about.get("heat") else None,
                    tails=_tails(about.get("tails")),
                    execution=str(about.get("execution", "eager")),
                    execution_note=str(about.get("execution_note", "")),
                    terms=Terms(**about["terms"], **{name: data[name] for name in TERMS}) if about.get("terms") else None,
                    **{name: data[name] for name in FIGURES if name in data or name not in _ABSENT},
                )
        except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise CostModelError(f"{_name(path)}: not a saved surface ({error})") from error


def _tails(item: Any) -> Tails | None:
    """What :meth:`Surface.save` wrote of them."""
    if not item:
        return None
    kept = (item[each.name] for each in fields(Tails))
    return Tails(*(Tail(tuple(map(float, one["quantiles"])), float(one["shape"]), float(one["scale"])) for one in kept))


def _member(kind: type[T], item: Any) -> T:
    return kind(**{each.name: item[each.name] for each in fields(kind)})


def _name(path: str | os.PathLike[str] | BinaryIO) -> str:
    return os.fspath(path) if isinstance(path, (str, os.PathLike)) else "surface"
