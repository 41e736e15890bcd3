# SPDX-License-Identifier: Apache-2.0
"""Surfaces corrected by observations, for the board's present warmth."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from math import exp, hypot
from statistics import median
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ....kernels.correction.pinning import TELLING, pinned
from ....kernels.surface import Surface
from ...planning.thermal_state import ThermalState, settled
from ..credible_range import has
from ..missed_targets import HEAVIER_FROM, SIGMAS, doubted
from .observation_store import ObservationStore, ProgramKey

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ....kernels.correction.observation import Observation
else:
    from ....kernels.lazy import numpy as np

_KEPT = 24

_Seen = tuple["Observation", ...]
_CorrectionKey = tuple[Surface, "ThermalState | None", "float | None", _Seen, _Seen, bool]


class SurfaceCorrector:
    """Makes and keeps surfaces by earlier observations and the board's warmth. Thread-safe."""

    def __init__(self, memory: ObservationStore, warmth: Callable[[], ThermalState | None]) -> None:
        self._memory = memory
        self._warmth = warmth
        self._kept: OrderedDict[_CorrectionKey, Surface] = OrderedDict()
        self._lock = threading.Lock()

    def make(
        self, original: Surface, key: ProgramKey | None, fps: float | None, observations: Sequence[Observation], cautious: bool
    ) -> Surface:
        """Surface for the board's warmth, by present and earlier observations; if ``cautious``, their slowdown applies
        everywhere.
        """
        asked = self._asked(original, key, fps, observations, cautious)
        if (kept := self._get(asked)) is not None:
            return kept
        # Observations are of several die temperatures: correct the prediction first, then let it settle.
        warmth, evidence = asked[1], asked[3:]
        anywhere: _CorrectionKey = (original, None, None, *evidence)
        if (surface := self._get(anywhere)) is None:
            surface = self._keep(anywhere, _seen_through(original, *evidence))
        return self._keep(asked, settled(surface, warmth, fps))

    def predicted(self, original: Surface, fps: float | None) -> Surface:
        return settled(original, self._warmth(), fps)

    def kept(self, original: Surface, key: ProgramKey | None, fps: float | None) -> Surface | None:
        return self._get(self._asked(original, key, fps, (), True))

    def _asked(
        self, original: Surface, key: ProgramKey | None, fps: float | None, observations: Sequence[Observation], cautious: bool
    ) -> _CorrectionKey:
        before = tuple(self._memory.observations(key)) if key is not None else ()
        return original, self._warmth(), fps, tuple(observations), before, cautious and bool(observations or before)

    def _get(self, key: _CorrectionKey) -> Surface | None:
        with self._lock:
            if (surface := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
            return surface

    def _keep(self, key: _CorrectionKey, surface: Surface) -> Surface:
        with self._lock:
            self._kept[key] = surface
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return surface


def _seen_through(original: Surface, observations: _Seen, before: _Seen, cautious: bool) -> Surface:
    seen = {one.configuration for one in observations}
    if observations and before:
        before = of_this_load(original, before, observations)
    known = (*observations, *(one for one in before if one.configuration not in seen))
    if not known:
        return original
    found = corrected(original, known, (observations or before) if cautious else ())
    return found if observations else within_uncertainty(found, original)


def within_uncertainty(surface: Surface, original: Surface) -> Surface:
    """Surface corrected by the past alone, within the prediction's uncertainty until new frames confirm more."""
    if original.terms is not None and original.terms.unpredicted:
        return surface
    latency_ms = _near(surface.latency_ms, original.latency_ms, original.latency_sigma)
    power_mw = _near(surface.power_mw, original.power_mw, original.energy_sigma)
    return replace(surface, latency_ms=latency_ms, power_mw=power_mw, energy_mj=power_mw * latency_ms / 1e3)


def _near(value: NDArray[np.float64], predicted: NDArray[np.float64], sigma: NDArray[np.float64]) -> NDArray[np.float64]:
    factor = np.exp(SIGMAS * sigma)
    return np.clip(value, predicted / factor, predicted * factor)


def corrected(surface: Surface, observations: Sequence[Observation], slow: Sequence[Observation] = ()) -> Surface:
    """Surface corrected by observations at its configurations.

    The slowdown of the observations ``slow`` applies everywhere if the correction finds less, as it may blame the wrong clock.
    """
    known = [seen for seen in observations if has(surface, seen.configuration)]
    if not known:
        return surface
    from ....kernels.correction.correct import correct  # not needed without observations

    found = correct(surface, known).surface
    if slow and not (surface.terms and surface.terms.unpredicted):
        slower = [
            seen.latency_ms / surface.at(seen.configuration).latency_ms
            for seen in known
            if seen in slow and seen.latency_ms is not None and seen.frames >= TELLING
        ]
        found = replace(found, latency_ms=np.maximum(found.latency_ms, max(slower, default=0.0) * surface.latency_ms))
    return pinned(found, known)


def of_this_load(
    surface: Surface, before: Sequence[Observation], observations: Sequence[Observation]
) -> tuple[Observation, ...]:
    known, telling = [one for one in before if has(surface, one.configuration)], []
    for one in observations:
        if one.latency_ms is not None and not one.disturbed and has(surface, one.configuration):
            telling.append((surface.grid.index(one.configuration), one.latency_ms))
    if not known or not telling:
        return tuple(before)
    then = corrected(surface, known)
    factor = median(latency_ms / float(then.latency_ms[place]) for place, latency_ms in telling)
    unsure = max(float(then.latency_sigma[place]) for place, _ in telling)
    # Underestimating a load costs late frames.
    if exp(-SIGMAS * unsure) / HEAVIER_FROM <= factor <= HEAVIER_FROM:
        return tuple(before)
    return tuple(map(partial(longer, factor=factor), before))


def longer(one: Observation, factor: float) -> Observation:
    latency_ms, period_ms = (None if figure is None else factor * figure for figure in (one.latency_ms, one.period_ms))
    return replace(one, latency_ms=latency_ms, period_ms=period_ms, frames=1, doubt=hypot(one.doubt, doubted(factor)))
