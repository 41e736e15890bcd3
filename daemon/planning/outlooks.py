# SPDX-License-Identifier: Apache-2.0
"""What a surface offers a target: the figures it is judged by over the grid, and which configurations no other beats."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...kernels.surface import Surface
from ..errors import InputError
from .targets import Bound, Outlook, Target, check_rate

Outlooks: TypeAlias = Callable[[Surface, "float | None", "float | None"], Outlook]
"""Tells what :func:`outlook` does, made anew or kept."""
# Products and ratios of figures up to here are finite; a network that is predicted more is nobody's.
_MOST = 1e60


def outlook(surface: Surface, fps: float | None, confidence: float | None = None) -> Outlook:
    """What a surface offers, by median or as what is not exceeded with a confidence.

    With a frame rate, energy is that of a frame and power the mean over the period; their relative error is taken to be that of
    an inference's energy, although the idle part is better known.

    Raises:
        UsageError: the rate makes no sense.
        InputError: figures are so large that nothing can be told from them.
    """
    check_rate(fps)
    if fps is None:
        expected = Outlook(surface.latency_ms, surface.power_mw, surface.energy_mj)
    else:
        energy_mj = surface.energy_per_frame_mj(fps)
        expected = Outlook(surface.latency_ms, energy_mj * fps, energy_mj)
    if confidence is not None:
        cautious = surface.quantile(confidence)
        factor = cautious.energy_mj / surface.energy_mj
        expected = Outlook(cautious.latency_ms, expected.power_mw * factor, expected.energy_mj * factor)
    if not all(figure.min() > 1 / _MOST and figure.max() < _MOST for figure in vars(expected).values()):
        raise InputError("surface: figures are out of all proportion; nothing can be planned or told from them")
    return expected


def requirements(target: Target, fps: float | None) -> list[Bound]:
    """What a plan must keep: the target's bound, and with a frame rate the period."""
    return [bound for bound in (target.bound, Bound("latency_ms", 1e3 / fps) if fps else None) if bound]


def longest_ms(target: Target, fps: float | None) -> float | None:
    """How long a frame may take by target and rate; None for any time."""
    return min((bound.limit for bound in requirements(target, fps) if bound.figure == "latency_ms"), default=None)


def in_time(outlook: Outlook, fps: float | None) -> NDArray[np.bool_]:
    """Where an inference ends within the period of a frame rate; without one, everywhere."""
    met: NDArray[np.bool_] = outlook.latency_ms <= (1e3 / fps if fps else np.inf)
    return met


def pareto_front(outlook: Outlook, permitted: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """Grid indices of the permitted configurations that no other beats in both latency and energy, fastest first."""
    cells = np.flatnonzero(permitted)
    latency, energy = outlook.latency_ms.ravel()[cells], outlook.energy_mj.ravel()[cells]
    order = np.lexsort((energy, latency))
    least = np.minimum.accumulate(energy[order])
    first = np.ones(len(order), bool)
    first[1:] = least[1:] < least[:-1]  # where the least energy so far falls, something was won by being slower
    indices = np.unravel_index(cells[order[first]], permitted.shape)
    return list(zip(*(index.tolist() for index in indices), strict=True))
