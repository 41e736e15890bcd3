# SPDX-License-Identifier: Apache-2.0
"""What may be asked of a plan: one class per kind of target, each saying what it permits and what it prefers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import UsageError

Figure: TypeAlias = Literal["latency_ms", "power_mw", "energy_mj"]

FIGURE_NAMES: dict[Figure, str] = {"latency_ms": "latency", "power_mw": "power", "energy_mj": "energy"}
FIGURE_UNITS: dict[Figure, str] = {"latency_ms": "ms", "power_mw": "mW", "energy_mj": "mJ"}


@dataclass(frozen=True, eq=False)
class Outlook:
    """The figures a target judges configurations by, over the grid.

    Attributes:
        latency_ms: of one inference.
        power_mw: mean power of the energy rails, over the frame's period where there is one, else over the inference.
        energy_mj: per frame where there is a frame rate, else per inference.
    """

    latency_ms: NDArray[np.float64]
    power_mw: NDArray[np.float64]
    energy_mj: NDArray[np.float64]


@dataclass(frozen=True)
class Bound:
    """A figure that must not exceed a limit, in the figure's unit."""

    figure: Figure
    limit: float

    def __str__(self) -> str:
        return f"{FIGURE_NAMES[self.figure]} at most {self.limit:g} {FIGURE_UNITS[self.figure]}"


class Target(ABC):
    """What an application needs. ``str(target)`` is the text it is parsed from.

    Attributes:
        keyword: what it is called in that text.
        goal: what it prefers among the configurations it permits, in words.
    """

    keyword: ClassVar[str]
    goal: ClassVar[str]

    @property
    def bound(self) -> Bound | None:
        """What it permits: a bound on one figure, or anything."""
        return None

    @abstractmethod
    def objective(self, outlook: Outlook) -> NDArray[np.float64]:
        """What it prefers: the figure of merit over the grid, the less the better."""

    @classmethod
    @abstractmethod
    def parse(cls, value: str | None) -> Target:
        """Make one from what follows the ``=`` of its text, None where there is no ``=``.

        Raises:
            ValueError: the value is missing, superfluous or no positive number.
        """

    @classmethod
    @abstractmethod
    def usage(cls) -> str:
        """The form of its text, for messages."""


@dataclass(frozen=True)
class _BoundedTarget(Target):
    """A limit on one figure: ``figure=limit``."""

    limit: float
    keyword: ClassVar[Figure]

    @property
    def bound(self) -> Bound:
        return Bound(self.keyword, self.limit)

    def __str__(self) -> str:
        return f"{self.keyword}={self.limit:g}"

    @classmethod
    def parse(cls, value: str | None) -> Target:
        try:
            limit = float(value or "")
        except ValueError:
            limit = math.nan
        if not 0 < limit < math.inf:
            raise ValueError("with a positive number")
        return cls(limit)

    @classmethod
    def usage(cls) -> str:
        return f"{cls.keyword}=NUMBER"


class LatencyTarget(_BoundedTarget):
    """The least energy that keeps the latency within a limit."""

    keyword = "latency_ms"
    goal = "least energy"

    def objective(self, outlook: Outlook) -> NDArray[np.float64]:
        return outlook.energy_mj


class EnergyTarget(_BoundedTarget):
    """The lowest latency that keeps the energy within a limit."""

    keyword = "energy_mj"
    goal = "lowest latency"

    def objective(self, outlook: Outlook) -> NDArray[np.float64]:
        return outlook.latency_ms


class PowerTarget(_BoundedTarget):
    """The lowest latency that keeps the mean power within a limit."""

    keyword = "power_mw"
    goal = "lowest latency"

    def objective(self, outlook: Outlook) -> NDArray[np.float64]:
        return outlook.latency_ms


class _UnboundedTarget(Target):
    """A preference alone: its keyword is its text."""

    def __str__(self) -> str:
        return self.keyword

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(self.keyword)

    @classmethod
    def parse(cls, value: str | None) -> Target:
        if value is not None:
            raise ValueError("without a value")
        return cls()

    @classmethod
    def usage(cls) -> str:
        return cls.keyword


class MinEnergy(_UnboundedTarget):
    """The least energy, however long it takes."""

    keyword = "min-energy"
    goal = "least energy"

    def objective(self, outlook: Outlook) -> NDArray[np.float64]:
        return outlook.energy_mj


class MinEdp(_UnboundedTarget):
    """The least product of energy and latency."""

    keyword = "min-edp"
    goal = "least energy-delay product"

    def objective(self, outlook: Outlook) -> NDArray[np.float64]:
        return outlook.energy_mj * outlook.latency_ms


TARGETS: tuple[type[Target], ...] = (LatencyTarget, EnergyTarget, PowerTarget, MinEnergy, MinEdp)


def parse_target(text: str) -> Target:
    """Read a target: ``latency_ms=50``, ``energy_mj=400``, ``power_mw=15000``, ``min-energy`` or ``min-edp``.

    Raises:
        UsageError: it is none of these.
    """
    keyword, equals, value = text.strip().partition("=")
    for kind in TARGETS:
        if kind.keyword == keyword.strip():
            try:
                return kind.parse(value if equals else None)
            except ValueError as error:
                raise UsageError(f"target {text!r}: expected {kind.usage()}, {error}") from error
    raise UsageError(f"target {text!r}; valid: {', '.join(kind.usage() for kind in TARGETS)}")
