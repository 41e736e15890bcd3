# SPDX-License-Identifier: Apache-2.0
"""Targets of plans: one class per kind, with its limit and its preference.

Every concrete class derived from :class:`Target`, in any module, is parsed and listed. Loads no NumPy.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from ...kernels.text import closest_match
from ..errors import UsageError

__all__ = [
    "BatteryLifeTarget",
    "BoundedTarget",
    "EnergyPerToken",
    "EnergyTarget",
    "LatencyTarget",
    "MinEdp",
    "MinEnergy",
    "PowerTarget",
    "Target",
    "TimeToFirstToken",
    "TokensPerSecond",
    "UnboundedTarget",
    "parse_target",
    "target_classes",
]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...kernels.execution import Phase
    from ...kernels.surface import Surface

Figure: TypeAlias = Literal["latency_ms", "power_mw", "energy_mj"]

FIGURE_NAMES: dict[Figure, str] = {"latency_ms": "latency", "power_mw": "power", "energy_mj": "energy"}
FIGURE_UNITS: dict[Figure, str] = {"latency_ms": "ms", "power_mw": "mW", "energy_mj": "mJ"}
# More than the range of any inference on a Jetson, without overflow in arithmetic.
FIGURE_RANGES: dict[Figure, tuple[float, float]] = {
    "latency_ms": (1e-3, 1e7),
    "power_mw": (1e-3, 1e7),
    "energy_mj": (1e-3, 1e9),
}
FPS_RANGE = (0.001, 100_000)  # frames per second

_TIMES: Mapping[str, float] = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_POWERS: Mapping[str, float] = {"mW": 1.0, "W": 1e3}
_ENERGIES: Mapping[str, float] = {"mJ": 1.0, "J": 1e3}
_TEXT = re.compile(r"(?:(?P<name>[^<>=]*)(?P<sign><=|>=|=)\s*)?(?P<value>.*)", re.DOTALL)
_WITH_UNIT = re.compile(r"(?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[+-]?[0-9]+)?)\s*(?P<unit>[^\W\d]*)")
HOURS_RANGE = (0.01, 10_000)


class TargetFigures(Struct, frozen=True, eq=False):
    """Figures by which a target judges configurations, over the grid: of a frame with a frame rate, else of an inference."""

    latency_ms: NDArray[np.float64]
    power_mw: NDArray[np.float64]
    energy_mj: NDArray[np.float64]


class TargetBound(Struct, frozen=True):
    figure: Figure
    limit: float

    def __str__(self) -> str:
        return f"{FIGURE_NAMES[self.figure]} at most {self.limit:g} {FIGURE_UNITS[self.figure]}"

    def text(self, value: float) -> str:
        return f"{value:.4g} {FIGURE_UNITS[self.figure]}"

    def exceeded(self, value: float) -> str:
        return f"{FIGURE_NAMES[self.figure]} {self.text(value)}, over {self.text(self.limit)}"


class TokenRate(TargetBound, frozen=True):
    def __str__(self) -> str:
        return f"at least {1e3 / self.limit:g} tokens per second"

    def text(self, value: float) -> str:
        return f"{value:.4g} ms ({1e3 / value:.4g} tokens per second)"


class Target(ABC):
    """Requirement and preference of an application; ``str(target)`` is its parsed text, which begins with ``keyword``.

    Attributes:
        prefers: figure to be low among permitted configurations; None for an objective of its own.
        phase: phase of a language model that it is for; None for any network.
    """

    keyword: ClassVar[str] = ""
    prefers: ClassVar[Figure | None] = None
    merit: ClassVar[str] = ""
    phase: ClassVar[Phase | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.prefers is not None and "merit" not in vars(cls):
            cls.merit = FIGURE_NAMES[cls.prefers]

    @property
    def bound(self) -> TargetBound | None:
        return None

    def objective(self, outlook: TargetFigures) -> NDArray[np.float64]:
        """Figure of merit over the grid; lower is better."""
        assert self.prefers is not None
        figure: NDArray[np.float64] = getattr(outlook, self.prefers)
        return figure

    def sigma(self, surface: Surface) -> NDArray[np.float64]:
        return surface.latency_sigma if self.prefers == "latency_ms" else surface.energy_sigma

    @property
    def frugal(self) -> bool:
        """True if it prefers energy or power: a shared GPU may then lower its clocks below the plan."""
        return self.prefers in ("energy_mj", "power_mw")

    @property
    def best(self) -> str:
        return "lowest" if self.prefers in ("latency_ms", "power_mw") else "least"

    @property
    def goal(self) -> str:
        return f"{self.best} {self.merit}"

    @property
    def meaning(self) -> str:
        return f"the {self.goal}{f' with {self.bound}' if self.bound else ''}"

    @classmethod
    @abstractmethod
    def parse(cls, value: str | None) -> Target:
        """Make one from the text after ``=``, None without ``=``, or raise ValueError."""

    @classmethod
    @abstractmethod
    def usage(cls) -> str:
        """Form of its text, for messages."""

    @classmethod
    @abstractmethod
    def example(cls) -> Target:
        """Example for lists of targets."""


@dataclass(frozen=True)
class BoundedTarget(Target):
    """Limit on one figure: ``keyword=limit``.

    Attributes:
        quantity: name in a text with a unit, as in ``latency=20ms``.
        units: factor of each valid unit there to the limit's own.
        unnamed: True if a value alone, such as ``20ms``, is this target.
        sign: inequality that may replace ``=``.
    """

    limit: float
    figure: ClassVar[Figure]
    typical: ClassVar[float]
    quantity: ClassVar[str] = ""
    units: ClassVar[Mapping[str, float]] = {}
    unnamed: ClassVar[bool] = False
    sign: ClassVar[str] = "<="

    @property
    def bound(self) -> TargetBound | None:
        return TargetBound(self.figure, self.limit)

    @classmethod
    def limits(cls) -> tuple[float, float]:
        return FIGURE_RANGES[cls.figure]

    def __str__(self) -> str:
        return f"{self.keyword}={self.limit:.10g}"

    @classmethod
    def in_unit(cls, value: str) -> Target:
        """Make one from a number and its unit, such as ``20ms``, or raise ValueError."""
        found = _WITH_UNIT.fullmatch(value)
        if found is None or found["unit"] not in cls.units:
            raise ValueError(f"or {cls.quantity}=NUMBER with one of the units {', '.join(cls.units)}")
        return cls.parse(repr(float(found["number"]) * cls.units[found["unit"]]))

    @classmethod
    def parse(cls, value: str | None) -> Target:
        try:
            limit = float(value or "")
        except ValueError:
            limit = math.nan
        low, high = cls.limits()
        if not low <= limit <= high:
            raise ValueError(f"with a number from {low:g} to {high:.10g}")
        return cls(limit)

    @classmethod
    def usage(cls) -> str:
        return f"{cls.keyword}=NUMBER"

    @classmethod
    def example(cls) -> Target:
        return cls(cls.typical)


class LatencyTarget(BoundedTarget):
    keyword = "latency_ms"
    quantity = "latency"
    units = _TIMES
    unnamed = True
    figure = "latency_ms"
    prefers = "energy_mj"
    typical = 50


class EnergyTarget(BoundedTarget):
    keyword = "energy_mj"
    quantity = "energy"
    units = _ENERGIES
    unnamed = True
    figure = "energy_mj"
    prefers = "latency_ms"
    typical = 400


class PowerTarget(BoundedTarget):
    keyword = "power_mw"
    quantity = "power"
    units = _POWERS
    unnamed = True
    figure = "power_mw"
    prefers = "latency_ms"
    typical = 15_000


class BatteryLifeTarget(BoundedTarget):
    """Fastest clocks that make a battery of separately given charge last for these hours."""

    keyword = "hours"
    sign = ">="
    prefers = "latency_ms"
    typical = 6

    @property
    def bound(self) -> None:
        return None

    @property
    def meaning(self) -> str:
        return f"the {self.goal} with which the battery lasts {self.limit:g} hours (--battery-wh)"

    @classmethod
    def limits(cls) -> tuple[float, float]:
        return HOURS_RANGE


class TokensPerSecond(LatencyTarget):
    """Least energy at a rate of tokens, after the first one."""

    keyword = "tokens_per_s"
    quantity = ""
    unnamed = False
    sign = ">="
    typical = 20
    phase = "decode"

    @property
    def bound(self) -> TargetBound:
        return TokenRate(self.figure, 1e3 / self.limit)

    @classmethod
    def limits(cls) -> tuple[float, float]:
        low, high = super().limits()
        return 1e3 / high, 1e3 / low


class TimeToFirstToken(LatencyTarget):
    """Least energy that reads a prompt in time."""

    keyword = "ttft_ms"
    quantity = "ttft"
    unnamed = False
    typical = 500
    phase = "prefill"


class EnergyPerToken(EnergyTarget):
    """Fastest tokens within an energy each."""

    keyword = "mj_per_token"
    quantity = ""
    unnamed = False
    typical = 1_000
    phase = "decode"


class UnboundedTarget(Target):
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

    @classmethod
    def example(cls) -> Target:
        return cls()


class MinEnergy(UnboundedTarget):
    keyword = "min-energy"
    prefers = "energy_mj"


class MinEdp(UnboundedTarget):
    keyword = "min-edp"
    merit = "energy-delay product"

    def objective(self, outlook: TargetFigures) -> NDArray[np.float64]:
        return outlook.energy_mj * outlook.latency_ms


def target_classes() -> tuple[type[Target], ...]:
    """Classes of all targets.

    Examples:
        >>> LatencyTarget in target_classes()
        True
    """
    return tuple(target for target in _derived(Target) if target.keyword)


def _derived(base: type[Any]) -> Iterator[type[Target]]:
    for target in base.__subclasses__():
        yield target
        yield from _derived(target)


@lru_cache(maxsize=256)
def parse_target(text: str) -> Target:
    """Parse a target's text, such as ``latency_ms=50``, ``latency<=50ms``, ``50ms`` or ``min-energy``; raises UsageError.

    Examples:
        >>> parse_target("50ms")
        LatencyTarget(limit=50.0)
    """
    found = _TEXT.fullmatch(text.strip())
    name, sign, value = found.group("name", "sign", "value") if found else ("", None, text)
    name = name and name.rstrip()
    for target in target_classes():
        signs = ("=", target.sign) if issubclass(target, BoundedTarget) else ("=",)
        if target.keyword == (value if sign is None else name) and sign in (None, *signs):
            return _made(target, text, None if sign is None else value)
    for target in _bounded():
        named = sign in ("=", target.sign) and target.quantity == name
        if target.quantity and (named or (sign is None and target.unnamed and _unit(value) in target.units)):
            return _made(target, text, value, in_unit=True)
    unit, hint = _unit(value), ""
    if sign is None and unit is not None:
        hint = f": expected a number with one of the units {', '.join(_units())}"
    elif unit:
        hint = f": expected one of {', '.join(one.quantity for one in _bounded() if one.quantity)} with a unit"
    forms = {target.keyword: target.usage() for target in target_classes()}
    meant = closest_match(name or value, list(forms))
    hint += f"; did you mean {forms[meant]!r}?" if meant else ";"
    raise UsageError(f"target {text!r:.80}{hint} valid: {', '.join(forms.values())}")


def _made(target: type[Target], text: str, value: str | None, *, in_unit: bool = False) -> Target:
    try:
        if in_unit and value is not None and issubclass(target, BoundedTarget):
            return target.in_unit(value)
        return target.parse(value)
    except ValueError as error:
        raise UsageError(f"target {text!r:.80}: expected {target.usage()}, {error}") from error


def _bounded() -> Iterator[type[BoundedTarget]]:
    return (target for target in target_classes() if issubclass(target, BoundedTarget))


def _unit(value: str) -> str | None:
    found = _WITH_UNIT.fullmatch(value)
    return None if found is None else found["unit"]


def _units() -> list[str]:
    return [unit for target in _bounded() if target.unnamed for unit in target.units]


_PHASES: dict[Phase, str] = {"prefill": "reading a prompt", "decode": "making tokens"}


def check_phase(target: Target, phase: Phase | None) -> None:
    """Raise UsageError for a target of another phase of a language model than the launches'."""
    if target.phase and target.phase != phase:
        said = f"not of {_PHASES[phase]}" if phase else "and this network is none"
        raise UsageError(f"target {target} is for a language model {_PHASES[target.phase]} (--{target.phase}), {said}")


def check_rate(fps: float | None) -> None:
    low, high = FPS_RANGE
    if fps is not None and not low <= fps <= high:
        raise UsageError(f"fps={fps:g}: expected a frame rate from {low:g} to {high:g}")


def listing() -> str:
    examples = [target.example() for target in target_classes()]
    width = max(len(str(example)) for example in examples)
    lines = [f"{example!s:{width}}  {example.meaning}" for example in examples]
    return "\n".join([*lines, f"Limits with a unit: latency=20ms, latency<=20ms, 20ms, power=8W, 0.5J ({', '.join(_units())})"])


def check_confidence(confidence: float | None) -> None:
    if confidence is not None and not 0.5 <= confidence < 1:
        raise UsageError(f"confidence={confidence:g}: expected a probability of at least 0.5 and below 1")
