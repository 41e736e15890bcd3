# SPDX-License-Identifier: Apache-2.0
"""A surface as what was observed of a lease leaves it, on a board as warm as it is."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Surface
from ..planning.settling import Warmth, settled
from .memory import Memory

if TYPE_CHECKING:
    from ...kernels.correction.observation import Observation

_TELLING = 3
"""From how many frames on what they took is held against a configuration."""
_KEPT = 24

_Made = tuple[Surface, "Warmth | None", "float | None", "tuple[Observation, ...]", bool]


class Corrections:
    """Makes surfaces, and keeps the last ones. May be shared between threads.

    Args:
        memory: what was observed before.
        warmth: tells how warm the board is.
    """

    def __init__(self, memory: Memory, warmth: Callable[[], Warmth | None]) -> None:
        self._memory = memory
        self._warmth = warmth
        self._kept: OrderedDict[_Made, Surface] = OrderedDict()
        self._lock = threading.Lock()

    def make(
        self, original: Surface, key: str, fps: float | None, observations: Sequence[Observation], cautious: bool
    ) -> Surface:
        """A surface for the board as warm as it is, by what was observed now and before.

        Args:
            original: as it was predicted; ``key`` is what it is remembered by.
            fps: how often an inference is made; None for one after the other.
            observations, cautious: as of :func:`corrected`.
        """
        made = self._asked(original, key, fps, observations, cautious)
        if (kept := self._get(made)) is not None:
            return kept
        _, warmth, _, known, _ = made
        plain = (original, warmth, fps, (), False)
        if (surface := self._get(plain)) is None:
            surface = self._keep(plain, settled(original, warmth, fps))
        return self._keep(made, corrected(surface, known, cautious)) if known else surface

    def kept(self, original: Surface, key: str, fps: float | None) -> Surface | None:
        """What :meth:`make` makes at the beginning of a lease, if that takes no time."""
        return self._get(self._asked(original, key, fps, (), True))

    def _asked(
        self, original: Surface, key: str, fps: float | None, observations: Sequence[Observation], cautious: bool
    ) -> _Made:
        seen = {one.configuration for one in observations}
        before = (one for one in self._memory.observations(key) if one.configuration not in seen)
        known = (*observations, *before)
        return original, self._warmth(), fps, known, cautious and bool(known)

    def _get(self, made: _Made) -> Surface | None:
        with self._lock:
            if (surface := self._kept.get(made)) is not None:
                self._kept.move_to_end(made)
            return surface

    def _keep(self, made: _Made, surface: Surface) -> Surface:
        with self._lock:
            self._kept[made] = surface
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return surface


def corrected(surface: Surface, observations: Sequence[Observation], cautious: bool = False) -> Surface:
    """The surface by what was observed at its configurations; as it is where that is nothing.

    Args:
        cautious: take everything to be slower by as much as what was observed was, where the correction thinks less of it: what
            one configuration tells may be laid to the wrong clock, and a target that is missed cannot wait for more of them.
    """
    known = [seen for seen in observations if has(surface, seen.configuration)]
    if not known:
        return surface
    from ...kernels.correction.correct import correct  # a daemon that was told nothing starts and lives without

    found = correct(surface, known).surface
    if cautious and not (surface.terms and surface.terms.unpredicted):
        predicted_ms = [float(surface.latency_ms[surface.grid.index(seen.configuration)]) for seen in known]
        slower = max((seen.latency_ms or 0.0) / expected_ms for seen, expected_ms in zip(known, predicted_ms, strict=True))
        found = replace(found, latency_ms=np.maximum(found.latency_ms, slower * surface.latency_ms))
    return pinned(found, known)


def pinned(surface: Surface, observations: Sequence[Observation]) -> Surface:
    """The surface, nowhere at odds with what was seen: at its CPU clock, lower clocks take no less time, higher no more.

    Of the CPU's clock nothing follows: a faster host leaves less of the memory to the GPU
    (:mod:`jetdvfs.kernels.cost.crowding`).
    """
    latency_ms = surface.latency_ms.copy()
    for seen in sorted(observations, key=lambda one: -one.age_s):
        if seen.latency_ms is None or seen.disturbed or seen.frames < _TELLING:
            continue
        cpu, gpu, emc = surface.grid.index(seen.configuration)
        slower, faster = np.s_[cpu, : gpu + 1, : emc + 1], np.s_[cpu, gpu:, emc:]
        latency_ms[slower] = np.maximum(latency_ms[slower], seen.latency_ms)
        latency_ms[faster] = np.minimum(latency_ms[faster], seen.latency_ms)
    return replace(surface, latency_ms=latency_ms, energy_mj=surface.power_mw * latency_ms / 1e3)


def has(surface: Surface, configuration: FrequencyConfiguration) -> bool:
    """Whether a configuration is one of the surface's."""
    return all(level in surface.grid.levels(axis) for axis, level in configuration._asdict().items())
