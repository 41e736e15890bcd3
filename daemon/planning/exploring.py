# SPDX-License-Identifier: Apache-2.0
"""Which configuration to run at next while a program is being got to know, without missing its target on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ...kernels.correction.correct import correct, information
from ...kernels.correction.observation import Corrected, Observation
from ...kernels.correction.pinning import pinned
from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Surface
from ...kernels.units import AXES
from ..errors import TargetNotAttainable
from .lease_plan import SAFE
from .limits import Limits
from .plan import in_time, longest_ms, outlook, plan, requirements
from .targets import Target, parse_target

# So many configurations are looked at before the rates are known well enough to judge what is left to gain.
_FIRST, _LOOKED_AT = 4, 10
# What else could be gained, as a part, so that it is worth trying on; and how many standard deviations are hoped for.
_WORTH, _HOPE = 0.01, 1.5
# How far a program that nobody predicted may be from what is thought of it: as Student's t has it with so many degrees of
# freedom and one more for each configuration that was seen, for few that agree do not prove that others will.
_FREEDOM = 6
# Until so many were seen, each step lowers one clock of a configuration that was seen: which clock a program waits for shows
# at once.
_ONE_BY_ONE = 3
# By how much frames may take longer than seen by noise alone, where clocks prove that they keep the deadline.
_NOISE = 0.02
# Of a program that is not known a clock is not lowered by more than this part at once.
_STEP = 0.5
_MOST_CERTAIN = 1 - 1e-9


@dataclass(frozen=True)
class Step:
    """Where to run next.

    Attributes:
        configuration: where.
        reason: why, in words.
        exploring: whether it is tried for what it tells; else it is the plan, and there is nothing left to try.
        corrected: the surface that it was chosen from; None before anything was observed.
    """

    configuration: FrequencyConfiguration
    reason: str
    exploring: bool
    corrected: Corrected | None = None


def next_configuration(
    surface: Surface,
    target: Target | str,
    observations: Sequence[Observation],
    *,
    fps: float | None = None,
    confidence: float | None = None,
    limits: Limits | None = None,
    most: int = 20,
) -> Step:
    """Choose where to run next.

    The first step is the highest permitted clocks. Later ones keep the target (and the period) with the probability
    :data:`SAFE`, or by their clocks: no frame takes longer by more than the clock that is lowered most. At first they are those
    that tell most about all that may keep the target, from the fourth on those that may be best, of a predicted network by
    turns. Exploration ends when ten were looked at and nothing that is left could gain 1%, or ``most`` were observed.

    Args:
        surface: as it was predicted, or :func:`jetdvfs.kernels.correction.flat.flat_surface`.
        target, fps, confidence, limits: as of :func:`jetdvfs.daemon.planning.plan.plan`.
        observations: all that were made, as of :func:`jetdvfs.kernels.correction.correct.correct`.

    Raises:
        UsageError: an argument makes no sense.
    """
    target = parse_target(target) if isinstance(target, str) else target
    permitted = (limits or Limits()).permits(surface.grid)
    if not observations:
        return Step(surface.grid.configuration(_top(permitted)), "nothing was observed yet: the highest clocks", True)
    corrected = correct(surface, observations)
    now = corrected.surface
    seen = np.zeros(surface.grid.shape, bool)
    for one in observations:
        seen[surface.grid.index(one.configuration)] = True
    expected = outlook(now, fps)
    affordable = permitted if limits is None else permitted & limits.affords(expected.power_mw)
    sure = max(confidence or 0.0, SAFE)
    count = int(seen.sum())
    safe = _safe(now, target, fps, sure)
    unpredicted = surface.terms is not None and surface.terms.unpredicted
    if unpredicted:
        safe &= _safe(now, target, fps, _with_tails(sure, _FREEDOM + count))
        safe |= _never_late(surface, target, fps, observations)
    safe &= affordable & ~_far_below(surface, seen) & ~_below_late(surface, target, fps, observations)
    try:
        chosen = plan(pinned(now, observations), target, fps=fps, confidence=confidence, limits=limits)
    except TargetNotAttainable as error:
        top = surface.grid.configuration(_top(permitted))
        return Step(top, f"the highest clocks: {error}", False, corrected)
    open_cells = safe & ~seen
    if count >= most or not open_cells.any():
        return Step(chosen.configuration, chosen.reason, False, corrected)
    objective = target.objective(expected)
    hoped = objective * np.exp(-_HOPE * target.sigma(now))
    best = objective[seen & safe].min(initial=np.inf)
    promising = open_cells & (hoped < best * (1 - _WORTH))
    if count >= _LOOKED_AT and not promising.any():
        return Step(chosen.configuration, chosen.reason, False, corrected)
    turn = unpredicted or count % 2 == 0 or count >= _LOOKED_AT
    if count >= _FIRST and turn and promising.any():
        cell = np.where(promising, hoped, np.inf).argmin()
        return _at(surface, int(cell), "it may be better than the plan", corrected)
    if unpredicted and count < _ONE_BY_ONE and (open_cells & _one_axis_apart(seen)).any():
        open_cells &= _one_axis_apart(seen)
    middling = _safe(now, target, fps, 0.5)
    wanted = np.where(middling, 1.0, 0.1)
    gained = information(surface, observations, open_cells, wanted)
    return _at(surface, int(gained.argmax()), "it tells most of all that keep the target", corrected)


def _safe(surface: Surface, target: Target, fps: float | None, confidence: float) -> NDArray[np.bool_]:
    cautious = outlook(surface, fps, confidence)
    safe = in_time(cautious, fps)
    for bound in requirements(target, fps):
        safe = safe & (getattr(cautious, bound.figure) <= bound.limit)
    return safe


def _with_tails(confidence: float, freedom: int) -> float:
    """The confidence whose quantile in the normal distribution is the one asked for of Student's t distribution.

    The first terms of Fisher's expansion (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5).
    """
    normal = NormalDist()
    x = normal.inv_cdf(confidence)
    further = (x**3 + x) / (4 * freedom) + (5 * x**5 + 16 * x**3 + 3 * x) / (96 * freedom**2)
    return min(normal.cdf(x + further), _MOST_CERTAIN)


def _never_late(surface: Surface, target: Target, fps: float | None, observations: Sequence[Observation]) -> NDArray[np.bool_]:
    """Where no frame can be late but for noise: none takes more times as long as seen than the clock that is lowered most."""
    never, limit_ms = np.zeros(surface.grid.shape, bool), longest_ms(target, fps)
    clocks = [np.array(surface.grid.levels(axis), np.float64) for axis in AXES]
    for one in observations:
        if limit_ms is not None and one.latency_ms is not None and not one.disturbed:
            places = surface.grid.index(one.configuration)
            cpu, gpu, emc = (np.maximum(levels[place] / levels, 1.0) for levels, place in zip(clocks, places, strict=True))
            lower = np.maximum(np.maximum(cpu[:, None, None], gpu[:, None]), emc)
            never |= one.latency_ms * lower * (1 + _NOISE) <= limit_ms
    return never


def _below_late(surface: Surface, target: Target, fps: float | None, observations: Sequence[Observation]) -> NDArray[np.bool_]:
    """What has no clock above those at which frames were late, whatever is thought of them."""
    below, limit_ms = np.zeros(surface.grid.shape, bool), longest_ms(target, fps)
    for one in observations:
        if limit_ms is not None and one.latency_ms is not None and one.latency_ms > limit_ms and not one.disturbed:
            cpu, gpu, emc = surface.grid.index(one.configuration)
            below[: cpu + 1, : gpu + 1, : emc + 1] = True
    return below


def _far_below(surface: Surface, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """What of a program that nobody predicted lies far below all clocks that it was seen at."""
    far = np.zeros(surface.grid.shape, bool)
    if surface.terms is None or not surface.terms.unpredicted:
        return far
    for axis, levels in enumerate(surface.grid.to_json().values()):
        clocks = np.array(levels, np.float64)
        lowest = clocks[np.flatnonzero(seen.any(axis=tuple({0, 1, 2} - {axis})))[0]]
        shape = [-1 if one == axis else 1 for one in range(3)]
        far |= (clocks < lowest * _STEP).reshape(shape)
    return far


def _one_axis_apart(seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """True where one clock alone differs from a configuration that was seen."""
    lines = [np.broadcast_to(seen.any(axis=axis, keepdims=True), seen.shape) for axis in range(seen.ndim)]
    return np.asarray(np.logical_or.reduce(lines) & ~seen)


def _at(surface: Surface, cell: int, reason: str, corrected: Corrected) -> Step:
    cpu, gpu, emc = (int(place) for place in np.unravel_index(cell, surface.grid.shape))
    return Step(surface.grid.configuration((cpu, gpu, emc)), reason, True, corrected)


def _top(permitted: NDArray[np.bool_]) -> tuple[int, int, int]:
    cpu, gpu, emc = (int(places[-1]) for places in np.nonzero(permitted))
    return cpu, gpu, emc
