# SPDX-License-Identifier: Apache-2.0
"""Power modes for a network: the smallest that is enough, and a better one for a lease.

A mode is judged at its highest clocks, as governors go there under load. It is proposed, never switched to, if it meets a
missed target, or gains :data:`WORTH`. DIPPM (Euro-Par '23), section 3.5, selects a slice of an A100 by memory alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ...kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...kernels.surface import Surface
from ...kernels.units import AXES
from ...profiles.board import BoardDescription, ModeSet, PowerMode
from ..errors import TargetNotAttainable, UsageError
from ..hardware.power_modes import UNITS_MASK, bound_levels, changed_masks
from .lease_plan import PlanRequest
from .limits import ClockLimits, Limits, permitted
from .plan import outlook
from .targets import FIGURE_NAMES, TargetBound, check_confidence

WORTH = 0.03
_AS_GOOD = 0.005
GIB = 1 << 30

#: Slices of an A100 of 40 GB in equation 2 of DIPPM, by memory in GiB.
A100_SLICES: Mapping[str, int] = {"1g.5gb": 5, "2g.10gb": 10, "3g.20gb": 20, "7g.40gb": 40}


class ModeChoice(Struct, frozen=True):
    """A power mode, or a slice of the GPU in one, and a network's figures at its highest clocks.

    Attributes:
        latency_ms, power_mw: not exceeded at the confidence, if given; power over the period of a frame rate.
        gpu_share: part of the GPU left on; None (unknown) is not enough. For a part, latency is scaled by it and power is the
            whole GPU's: upper bounds.
    """

    name: str
    mode: PowerMode
    configuration: FrequencyConfiguration
    latency_ms: float
    power_mw: float
    gpu_share: float | None
    lacking: tuple[str, ...]

    @property
    def enough(self) -> bool:
        return not self.lacking

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "mode": self.mode.id, "cores": self.mode.cores, "configuration": self.configuration._asdict(),
            "latency_ms": self.latency_ms, "power_mw": self.power_mw, "gpu_share": self.gpu_share,
            "enough": self.enough, "lacking": list(self.lacking),
        }  # fmt: skip


def evaluated_modes(
    surface: Surface,
    board: BoardDescription,
    modes: ModeSet,
    bounds: Sequence[TargetBound],
    *,
    memory_bytes: int = 0,
    available_bytes: float = 0,
    fps: float | None = None,
    confidence: float | None = None,
) -> list[ModeChoice]:
    """Every mode, and every slice of the GPU in each, the lowest power first; raises UsageError.

    Args:
        surface: with all of the GPU on.
        bounds: on latency, power and energy; a frame rate adds its period.
        available_bytes: 0 if unknown.
    """
    check_confidence(confidence)
    figures, busy = outlook(surface, fps, confidence), outlook(surface, None, confidence)
    needed = [*bounds, *([TargetBound("latency_ms", 1e3 / fps)] if fps else [])]
    short = []
    if available_bytes and memory_bytes > available_bytes:
        short = [f"memory {memory_bytes / GIB:.3g} GiB at least, of {available_bytes / GIB:.3g}"]
    found = []
    for mode in modes.table:
        configuration = highest(surface.grid, mode)
        index = surface.grid.index(configuration)
        at = {name: float(getattr(figures, name)[index]) for name in FIGURE_NAMES}
        share = share_on(mode.masks, modes)
        for name, part in ((mode.name, share), *_slices(board, mode, share)):
            slower = 1.0 if part is None else 1 / part
            here = {name: figure * slower for name, figure in at.items()}
            here["power_mw"] = min(here["power_mw"], float(busy.power_mw[index]))  # a pause draws no more than work
            lacking = short + [bound.exceeded(here[bound.figure]) for bound in needed if here[bound.figure] > bound.limit]
            lacking += ["which part of the GPU it leaves on is not known"] if part is None else []
            found.append(
                ModeChoice(name, mode, configuration, here["latency_ms"], here["power_mw"], part, tuple(dict.fromkeys(lacking)))
            )
    return sorted(found, key=lambda choice: (choice.power_mw * (choice.gpu_share or 1.0), choice.mode.cores or 0))


def smallest(choices: Sequence[ModeChoice]) -> ModeChoice:
    for choice in choices:
        if choice.enough:
            return choice
    best = min(choices, key=lambda choice: choice.latency_ms)
    raise TargetNotAttainable(f"no power mode is enough; the fastest, {best.name}, lacks: {'; '.join(best.lacking)}")


def modes_of(board: BoardDescription, firmware: str | None) -> ModeSet:
    found = [modes for modes in board.modes if firmware in (None, modes.name)]
    if not found:
        raise UsageError(f"--firmware {firmware}: {board.name} has {', '.join(modes.name for modes in board.modes) or 'none'}")
    return found[-1]


def a100_slice(memory_bytes: float) -> str | None:
    return next((name for name, gib in A100_SLICES.items() if memory_bytes < gib * GIB), None)


def highest(grid: FrequencyGrid, mode: PowerMode) -> FrequencyConfiguration:
    return FrequencyConfiguration(*(bound_levels(grid.levels(axis), getattr(mode, axis))[-1] for axis in AXES))


def share_on(masks: Mapping[str, int] | None, modes: ModeSet) -> float | None:
    """Part of the GPU left on, relative to the board's least restrictive mode; None if unknown."""
    largest = max(one.masks.get(UNITS_MASK, 0) for one in modes.table)
    if masks is None:
        return None if any(one.masks for one in modes.table) else 1.0
    fullest = min(modes.table, key=lambda one: sum(mask.bit_count() for mask in one.masks.values()))
    changed = {name for name, mask in masks.items() if mask != fullest.masks.get(name, 0)}
    if not changed:
        return 1.0
    if changed != {UNITS_MASK} or not largest:
        return None
    # A bit for each processing cluster; chips have four or eight.
    units = 4 if largest.bit_length() <= 4 else 8
    on, all_on = (units - one.get(UNITS_MASK, 0).bit_count() for one in (masks, fullest.masks))
    return min(on / all_on, 1.0)


def _slices(board: BoardDescription, mode: PowerMode, share: float | None) -> Iterator[tuple[str, float]]:
    if board.mig is not None and share == 1.0:
        for one in board.mig.slices:
            yield f"{mode.name}, MIG {one.name}", one.multiprocessors / board.mig.multiprocessors


class ModeProposal(Struct, frozen=True):
    """A better power mode; ``gain`` is None if the mode in force misses the target."""

    mode: PowerMode
    configuration: FrequencyConfiguration
    gain: float | None
    note: str

    def to_json(self) -> dict[str, Any]:
        mode = {"id": self.mode.id, "name": self.mode.name}
        held = self.configuration._asdict()
        return {"mode": mode, "cores": self.mode.cores, "configuration": held, "gain": self.gain, "note": self.note}


def propose(
    request: PlanRequest,
    modes: ModeSet,
    active: PowerMode,
    held: FrequencyConfiguration | None,
    bounds: ClockLimits | None = None,
) -> ModeProposal | None:
    """Best power mode for a request, if it is worth a change; ``held`` is the present configuration, if any."""
    found = []
    for mode in modes.table:
        if mode.id == active.id or share_on(mode.masks, modes) != 1.0:
            continue
        try:
            configuration = request.choice(within_mode(request.surface.grid, mode, bounds))
        except (TargetNotAttainable, UsageError):
            continue
        gain = None if held is None else request.gain(held, configuration)
        if gain is None or gain >= WORTH:
            found.append((mode, configuration, gain))
    if not found:
        return None
    reference = found[0][1]
    least = min(-request.gain(reference, configuration) for _, configuration, _ in found)
    alike = [one for one in found if -request.gain(reference, one[1]) <= least + _AS_GOOD]
    mode, configuration, gain = min(alike, key=lambda one: (one[0].cores or 0, one[1].gpu_hz, one[0].id))
    return ModeProposal(mode, configuration, gain, _note(request, mode, active, configuration, gain))


def against_default(request: PlanRequest, modes: ModeSet) -> ModeProposal | None:
    """As :func:`propose`, for a board in its boot mode."""
    default = next(mode for mode in modes.table if mode.id == modes.default)
    held: FrequencyConfiguration | None = None
    with contextlib.suppress(TargetNotAttainable, UsageError):
        held = request.choice(within_mode(request.surface.grid, default))
    return propose(request, modes, default, held)


def within_mode(grid: FrequencyGrid, mode: PowerMode, bounds: ClockLimits | None = None) -> Limits:
    offered = FrequencyGrid(**{axis: bound_levels(grid.levels(axis), getattr(mode, axis)) for axis in AXES})
    return permitted(offered, bounds or ClockLimits())


def _note(
    request: PlanRequest, mode: PowerMode, active: PowerMode, configuration: FrequencyConfiguration, gain: float | None
) -> str:
    what = f"{request.target} is met" if gain is None else f"{gain:.0%} {request.merit} less for {request.target}"
    cores = f", {mode.cores} cores online" if mode.cores is not None else ""
    reboot = "; it may need a reboot" if changed_masks(active, mode) else ""
    return (
        f"power mode {mode.name} instead of {active.name}{cores}: {what}, at {configuration} "
        f"(sudo jetdvfs board mode {mode.name}{reboot})"
    )
