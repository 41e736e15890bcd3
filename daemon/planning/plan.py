# SPDX-License-Identifier: Apache-2.0
"""Plans: one configuration for a surface and a target, with the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from ...kernels.boundary import Boundary
from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Guess, Surface
from ...kernels.units import AXES, CLOCKS, mhz_text
from ..errors import InputError, TargetNotAttainable
from .limits import TIE, Limits, lowest_clocks
from .targets import FIGURE_NAMES, Target, TargetBound, TargetFigures, check_confidence, check_rate, parse_target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    from ...kernels.lazy import numpy as np

__all__ = ["Alternative", "Caveats", "Plan", "PlannedOption", "plan"]

Outlooks: TypeAlias = Callable[[Surface, "float | None", "float | None"], TargetFigures]
_Index: TypeAlias = "tuple[int, int, int]"
# Products and ratios of figures up to here are finite; no real network has more.
_MOST = 1e60


def outlook(surface: Surface, fps: float | None, confidence: float | None = None) -> TargetFigures:
    """Figures of a surface: medians, or values not exceeded with a confidence.

    With a frame rate, energy is per frame, power the mean over the period, and their relative error that of an inference's
    energy.

    Raises:
        UsageError: the rate is invalid.
        InputError: figures are out of proportion.
    """
    check_rate(fps)
    if fps is None:
        expected = TargetFigures(surface.latency_ms, surface.power_mw, surface.energy_mj)
    else:
        energy_mj = surface.energy_per_frame_mj(fps)
        expected = TargetFigures(surface.latency_ms, energy_mj * fps, energy_mj)
    if confidence is not None:
        cautious = surface.quantile(confidence)
        factor = cautious.energy_mj / surface.energy_mj
        expected = TargetFigures(cautious.latency_ms, expected.power_mw * factor, expected.energy_mj * factor)
    if not all(figure.min() > 1 / _MOST and figure.max() < _MOST for figure in asdict(expected).values()):
        raise InputError("surface: figures are out of all proportion; nothing can be planned or told from them")
    return expected


def requirements(target: Target, fps: float | None) -> list[TargetBound]:
    return [bound for bound in (target.bound, TargetBound("latency_ms", 1e3 / fps) if fps else None) if bound]


def longest_ms(target: Target, fps: float | None) -> float | None:
    return min((bound.limit for bound in requirements(target, fps) if bound.figure == "latency_ms"), default=None)


def in_time(outlook: TargetFigures, fps: float | None) -> NDArray[np.bool_]:
    met: NDArray[np.bool_] = outlook.latency_ms <= (1e3 / fps if fps else np.inf)
    return met


def pareto_front(outlook: TargetFigures, permitted: NDArray[np.bool_]) -> list[_Index]:
    cells = np.flatnonzero(permitted)
    latency, energy = outlook.latency_ms.ravel()[cells], outlook.energy_mj.ravel()[cells]
    order = np.argsort(latency, kind="stable")
    least = np.minimum.accumulate(energy[order])
    pays = np.append(True, least[1:] < least[:-1])[: len(order)]  # slower pays off if the least energy so far falls
    front = order[pays]
    last = np.append(latency[front][1:] != latency[front][:-1], True)[: len(front)]  # of those as fast
    indices = np.unravel_index(cells[front[last]], permitted.shape)
    return list(zip(*(index.tolist() for index in indices), strict=True))


_PLANS_KEPT = 32
_OUTLOOKS_KEPT = 16
# Share of GPU time in guessed kernels from which a plan begins with a warning.
MUCH_GUESSED = 0.1


class Caveats(Struct, frozen=True):
    method: str = ""
    guessed: tuple[Guess, ...] = ()
    boundary: Boundary | None = None
    execution: str = "eager"
    note: str = ""

    @classmethod
    def of(cls, surface: Surface) -> Caveats:
        return cls(surface.method, surface.guessed, surface.boundary, surface.execution, surface.execution_note)

    def to_json(self) -> dict[str, Any]:
        return {
            "guessed": [asdict(guess) for guess in self.guessed],
            "execution": self.execution,
            "execution_note": self.note,
            **({"boundary": self.boundary.to_json()} if self.boundary else {}),
        }


class PlannedOption(Struct, frozen=True):
    """A configuration and its prediction.

    Attributes:
        energy_per_frame_mj: with the idle energy until the next frame.
        guessed_share: share of GPU time in guessed kernels, 0 to 1.
        temperature_c: planned die temperature, if the profile has several.
        latency_high_ms, energy_high_mj: at the confidence, energy per frame with a rate.
    """

    configuration: FrequencyConfiguration
    latency_ms: float
    power_mw: float
    energy_mj: float
    guessed_share: float = 0.0
    energy_per_frame_mj: float | None = None
    latency_high_ms: float | None = None
    energy_high_mj: float | None = None
    temperature_c: float | None = None

    def to_json(self) -> dict[str, Any]:
        data = {**asdict(self), "configuration": self.configuration._asdict()}
        return {name: value for name, value in data.items() if value is not None}


class Alternative(Struct, frozen=True):
    """A neighbour of the choice, one clock one step away, and the reason against it."""

    step: str
    option: PlannedOption
    verdict: str


class Plan(Struct, frozen=True):
    """One configuration and the reasons.

    Attributes:
        front: permitted Pareto front of latency and energy, fastest first.
        alternatives: the choice's neighbours.
        considered: number of configurations within the limits; ``attaining`` of them meet the target.
    """

    target: Target
    fps: float | None
    confidence: float | None
    choice: PlannedOption
    top: PlannedOption
    front: tuple[PlannedOption, ...]
    alternatives: tuple[Alternative, ...]
    considered: int
    attaining: int
    reason: str
    saving: str
    caveats: Caveats = Caveats()

    @property
    def why(self) -> str:
        steps = (f"One step {other.step}: {other.verdict}." for other in self.alternatives)
        end, note = self.caveats.boundary, self.caveats.note
        part = [f"All of this is of a part of the network: {end.note}."] if end else []
        caution = [f"{self.caution}."] if self.caution else []
        die_c = self.choice.temperature_c
        warm = [] if die_c is None else [f"The die is taken to settle at {die_c:.0f} C."]
        launched = [f"Executed as {self.caveats.execution}: {note}."] if note else []
        return " ".join([*caution, self.reason, *steps, self.saving, *launched, *warm, *part])

    @property
    def caution(self) -> str:
        if self.choice.guessed_share < MUCH_GUESSED:
            return ""
        first, others = self.caveats.guessed[0], len(self.caveats.guessed) - 1
        more = f", and {others} more" if others else ""
        return f"Guessed: {self.choice.guessed_share:.0%} of the GPU's time ({first.kind}, {first.why}{more})"

    def __repr__(self) -> str:
        rate = f" at {self.fps:g} fps" if self.fps else ""
        sure = f" with {self.confidence:g} confidence" if self.confidence else ""
        figures = f"{self.latency_ms:.4g} ms, {self.power_mw / 1e3:.4g} W, {self.energy_mj:.4g} mJ"
        return f"<plan for {self.target}{rate}{sure}: {self.configuration}, {figures}>"

    @property
    def configuration(self) -> FrequencyConfiguration:
        return self.choice.configuration

    @property
    def latency_ms(self) -> float:
        return self.choice.latency_ms

    @property
    def power_mw(self) -> float:
        return self.choice.power_mw

    @property
    def energy_mj(self) -> float:
        return self.choice.energy_mj

    @property
    def energy_per_frame_mj(self) -> float | None:
        return self.choice.energy_per_frame_mj

    def thinned_front(self, most: int | None) -> tuple[PlannedOption, ...]:
        if most is None or len(self.front) <= most:
            return self.front
        return tuple(self.front[round(index * (len(self.front) - 1) / (most - 1))] for index in range(most))

    def to_json(self, front: int | None = None) -> dict[str, Any]:
        return {
            "target": str(self.target),
            "fps": self.fps,
            "confidence": self.confidence,
            "choice": self.choice.to_json(),
            "top": self.top.to_json(),
            "front": [option.to_json() for option in self.thinned_front(front)],
            "alternatives": [
                {"step": other.step, "verdict": other.verdict, **other.option.to_json()} for other in self.alternatives
            ],
            "considered": self.considered,
            "attaining": self.attaining,
            "why": self.why,
            **self.caveats.to_json(),
        }


def plan(
    surface: Surface,
    target: Target | str,
    *,
    fps: float | None = None,
    confidence: float | None = None,
    limits: Limits | None = None,
    outlooks: Outlooks = outlook,
) -> Plan:
    """Choose the configuration that meets a target best.

    Args:
        fps: frames per second. Each inference must then end within its period; energy is per frame (with the idle energy
            between frames, at the clocks held) and power over the period.
        confidence: probability, 0.5 to below 1, of meeting the target and the period; the preference is judged by the median.

    Raises:
        TargetNotAttainable: no permitted configuration meets the target; the text names the best attainable.
        UsageError: an argument is invalid.
        InputError: the surface's figures are out of proportion.

    Examples:
        >>> network = jetdvfs.decompose("model.pt", "1x3x224x224")
        >>> chosen = plan(jetdvfs.load_profile("agx-xavier-sim").surface(network), "min-energy", fps=30)
        >>> print(chosen.configuration)
        CPU 268.8 MHz, GPU 318.75 MHz, EMC 408.0 MHz
    """
    target = parse_target(target) if isinstance(target, str) else target
    return _Planner(surface, target, fps, confidence, limits or Limits(), outlooks).plan()


class Planning:
    """Makes plans and keeps the last ones. Thread-safe."""

    def __init__(self) -> None:
        self.outlook: Outlooks = lru_cache(maxsize=_OUTLOOKS_KEPT)(outlook)
        self._kept = lru_cache(maxsize=_PLANS_KEPT)(self._make)

    def plan(self, surface: Surface, target: str, fps: float | None, confidence: float | None, limits: Limits) -> Plan:
        return self._kept(surface, target, fps, confidence, limits)

    def choice(
        self, surface: Surface, target: str, fps: float | None, confidence: float | None, limits: Limits
    ) -> FrequencyConfiguration:
        """As :meth:`plan`, the configuration alone; not kept."""
        planner = _Planner(surface, parse_target(target), fps, confidence, limits, self.outlook)
        return surface.grid.configuration(planner.choose()[0])

    def _make(self, surface: Surface, target: str, fps: float | None, confidence: float | None, limits: Limits) -> Plan:
        return plan(surface, target, fps=fps, confidence=confidence, limits=limits, outlooks=self.outlook)


class _Planner:
    def __init__(
        self, surface: Surface, target: Target, fps: float | None, confidence: float | None, limits: Limits, outlooks: Outlooks
    ) -> None:
        check_rate(fps)
        check_confidence(confidence)
        self.surface, self.target, self.fps, self.confidence = surface, target, fps, confidence
        self.grid = surface.grid
        self.expected = outlooks(surface, fps, None)
        self.cautious = outlooks(surface, fps, confidence)
        self.limits = limits
        self.permitted = limits.permits(self.grid)
        self.requirements = requirements(target, fps)

    def plan(self) -> Plan:
        index, attaining, objective = self.choose()
        front = pareto_front(self.expected, self.permitted & in_time(self.expected, self.fps))
        cpus, gpus, emcs = self.grid.shape
        limit = self.limits.budget
        choice, top, *options = self._options([index, (cpus - 1, gpus - 1, emcs - 1), *front])
        return Plan(
            target=self.target,
            fps=self.fps,
            confidence=self.confidence,
            choice=choice,
            top=top,
            front=tuple(options),
            alternatives=tuple(self._alternatives(index, objective)),
            considered=int(self.permitted.sum()),
            attaining=int(attaining.sum()),
            reason=self._choice_reason(attaining, objective) + (f" The board may draw {limit}." if limit else ""),
            saving=self._saving(choice, top),
            caveats=Caveats.of(self.surface),
        )

    def choose(self) -> tuple[_Index, NDArray[np.bool_], NDArray[np.float64]]:
        """Place of the best configuration, those that attain the target, and the objective."""
        affordable = self.permitted & self.limits.affords(self.expected.power_mw)
        if not affordable.any():
            raise TargetNotAttainable(self._too_dear())
        self.permitted = affordable
        attaining = self.permitted.copy()
        for bound in reversed(self.requirements):  # the period first: every target presumes it
            met = attaining & self._meets(bound)
            if not met.any():
                raise TargetNotAttainable(self._unattainable(bound, attaining))
            attaining = met
        objective = self.target.objective(self.expected)
        best = objective <= objective[attaining].min() * (1 + TIE)
        return lowest_clocks(self.grid, attaining & best), attaining, objective

    def _meets(self, bound: TargetBound) -> NDArray[np.bool_]:
        met: NDArray[np.bool_] = getattr(self.cautious, bound.figure) <= bound.limit
        return met

    def _options(self, places: Sequence[_Index]) -> list[PlannedOption]:
        surface, paced, sure = self.surface, self.fps is not None, self.confidence is not None
        columns = (
            surface.latency_ms,
            surface.power_mw,
            surface.energy_mj,
            surface.guessed_share,
            self.expected.energy_mj if paced else None,
            self.cautious.latency_ms if sure else None,
            self.cautious.energy_mj if sure else None,
            surface.temperature_c,
        )
        among = tuple(np.array(places).T)
        figures = (repeat(None) if column is None else column[among].tolist() for column in columns)
        cpu_khz, gpu_hz, emc_hz = self.grid.cpu_khz, self.grid.gpu_hz, self.grid.emc_hz
        clocks = (FrequencyConfiguration(cpu_khz[cpu], gpu_hz[gpu], emc_hz[emc]) for cpu, gpu, emc in places)
        return list(map(PlannedOption, clocks, *figures))

    def _alternatives(self, index: _Index, objective: NDArray[np.float64]) -> Iterator[Alternative]:
        steps: dict[_Index, str] = {}
        for axis, name in enumerate(AXES):
            levels = self.grid.levels(name)
            for step, direction in ((-1, "down"), (1, "up")):
                if 0 <= (level := index[axis] + step) < len(levels):
                    place = [*index]
                    place[axis] = level
                    steps[place[0], place[1], place[2]] = f"{direction} on {CLOCKS[name]} ({mhz_text(name, levels[level])} MHz)"
        for other, option in zip(steps, self._options([*steps]), strict=True):
            yield Alternative(steps[other], option, self._verdict(other, index, objective))

    def _verdict(self, other: _Index, chosen: _Index, objective: NDArray[np.float64]) -> str:
        if not self.permitted[other]:
            return "outside the limits"
        for bound in self.requirements:
            if not self._meets(bound)[other]:
                return bound.exceeded(getattr(self.cautious, bound.figure)[other])
        if abs(objective[other] / objective[chosen] - 1) <= TIE:
            return f"the same {self._merit()}"
        return f"{self._merit()} {_share(objective[other], objective[chosen])}"

    def _merit(self) -> str:
        return f"{self.target.merit} per frame" if self.fps and self.target.prefers == "energy_mj" else self.target.merit

    def _choice_reason(self, attaining: NDArray[np.bool_], objective: NDArray[np.float64]) -> str:
        best = f"{self.target.best.capitalize()} {self._merit()}"
        considered = int(self.permitted.sum())
        if not self.requirements:
            return f"{best} of {considered:,} configurations."
        names = [str(bound) for bound in self.requirements]
        if self.fps:
            names[-1] = f"an inference within the period of {1e3 / self.fps:.4g} ms"
        sure = f", with {self.confidence:g} confidence" if self.confidence is not None else ""
        among = int(attaining.sum())
        share = f"all {considered:,}" if among == considered else f"the {among:,} (of {considered:,})"
        reason = f"{best} of {share} configurations with {' and '.join(names)}{sure}."
        attained = objective[attaining].min()
        for position, name in enumerate(names):
            others = self.permitted.copy()
            for bound in self.requirements[:position] + self.requirements[position + 1 :]:
                others &= self._meets(bound)
            if objective[others].min() < attained * (1 - TIE):
                gain = _share(objective[others].min(), attained)
                return f"{reason} The active constraint is {name}: without it, {self._merit()} could be {gain}."
        return f"{reason} No constraint is active: this is the global optimum."

    def _too_dear(self) -> str:
        power_mw = np.where(self.permitted, self.expected.power_mw, np.inf)
        least = f"{power_mw.min() / 1e3:.4g} W at {self.grid.at(power_mw.argmin())}"
        return f"no configuration stays within {self.limits.budget}; the least is {least}"

    def _saving(self, choice: PlannedOption, top: PlannedOption) -> str:
        if choice.configuration == top.configuration:
            return "These are the top clocks."
        mine, theirs = choice.energy_per_frame_mj or choice.energy_mj, top.energy_per_frame_mj or top.energy_mj
        unit = "energy per frame" if self.fps else "energy"
        return (
            f"Against the top clocks: {unit} {_share(mine, theirs)} ({mine:.4g} instead of {theirs:.4g} mJ), latency "
            f"{choice.latency_ms / top.latency_ms:.2f} times theirs ({choice.latency_ms:.4g} ms, {top.latency_ms:.4g} ms)."
        )

    def _unattainable(self, bound: TargetBound, among: NDArray[np.bool_]) -> str:
        figures = np.where(among, getattr(self.cautious, bound.figure), np.inf)
        best = f"{bound.text(figures.min())} at {self.grid.at(figures.argmin())}"
        sure = f" with {self.confidence:g} confidence" if self.confidence is not None else ""
        if self.fps and bound == self.requirements[-1]:
            need = f"{self.fps:g} frames per second need an inference within {bound.text(bound.limit)}{sure}"
            return f"{need}; the fastest takes {best}"
        within = f" within the period of {1e3 / self.fps:.4g} ms" if self.fps else ""
        within += f" within {self.limits.budget}" if self.limits.budget else ""
        return f"target {self.target}{within}{sure} is not attainable; the lowest {FIGURE_NAMES[bound.figure]} is {best}"


def _share(value: float, reference: float) -> str:
    change = value / reference - 1
    return f"{abs(change):.1%} {'higher' if change > 0 else 'lower'}"
