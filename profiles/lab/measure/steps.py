# SPDX-License-Identifier: Apache-2.0
"""Run a campaign: measure each step, keep it, and make rows of a record.

All boards share the lowest, a middle and the highest configuration (MIRAGE, SEC '21, sections 3.1 and 6.2).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ....kernels.network import Call, HostOp, KernelInvocation, Network
from ...adapt.measurements import TABLES, MeasurementRows, Measurements
from ...device import Device, MeasuredDevice
from .campaign import Campaign, CampaignUnit
from .figures import LEAST_BUSY, Tables, above, figure_rows, kernel_power
from .meters.meter import EventMeter, GraphMeter, Meter
from .meters.notes import CampaignNotes
from .unit_store import UnitStore

Progress = Callable[[int, int, str], None]
"""Called with units done, units in all, and the current measurement."""

_BURST = 32  # calls issued at once to time the host: well under a CUDA launch queue's 1,024
_SMALLEST = 4  # kernels that are tried to keep the host busy
_MOSTLY_BUSY = 0.5  # of the host: its power is then that above idle


def run_campaign(
    campaign: Campaign,
    meter: Callable[[int], Meter],
    folder: Path | None = None,
    progress: Progress = lambda done, total, text: None,
    notebook: CampaignNotes | None = None,
    lasts_s: Callable[[CampaignUnit], float] | None = None,
) -> Measurements:
    """Measure everything not yet in ``folder``; return all of it. Raises MeasurementError; finished units are kept.

    Random choices follow from seed and unit number. A meter's noise restarts with the meter.

    Args:
        meter: makes the meter of a board, by number.
        progress: called before each unit and at the end; with ``lasts_s``, in s instead of units.
        lasts_s: estimated duration of a unit.
    """
    meters: dict[int, Meter] = {}

    def one(node: int, number: int) -> Meter:
        if node not in meters:
            meters.clear()
            meters[node] = meter(node)
        return meters[node]

    return run_units(campaign, one, folder, progress, notebook, lasts_s)


def run_units(
    campaign: Campaign,
    meter: Callable[[int, int], Meter],
    folder: Path | None = None,
    progress: Progress = lambda done, total, text: None,
    notebook: CampaignNotes | None = None,
    lasts_s: Callable[[CampaignUnit], float] | None = None,
) -> Measurements:
    """Run a campaign with a meter per unit; noise does not depend on interruptions."""
    kept = UnitStore(folder, campaign.digest, campaign.about)
    finished: list[Tables] = []
    pace = _CampaignPace(campaign, lasts_s)
    for number, unit in enumerate(campaign.units):
        progress(*pace.so_far(number), f"board {unit.node}: {unit.kind}{pace.left(number)}")
        rows = kept.get(number)
        if rows is None:
            rows = measure_unit(campaign, number, unit, meter(unit.node, number))
            kept.put(number, rows, None if notebook is None else notebook.turn())
            pace.measured(number)
        elif notebook is not None:
            notebook.put_back(kept.page(number))
        finished.append(rows)
    progress(*pace.so_far(len(campaign.units)), "done")
    return measurements_of(campaign, finished)


class _CampaignPace:
    """Progress and remaining time, by expected durations and the pace so far."""

    def __init__(self, campaign: Campaign, lasts_s: Callable[[CampaignUnit], float] | None) -> None:
        self._known = lasts_s is not None
        each = [lasts_s(unit) if lasts_s is not None else 1.0 for unit in campaign.units]
        self._each_s, self._until_s = each, np.cumsum([0.0, *each])
        self._began_s, self._expected_s = time.monotonic(), 0.0

    def measured(self, number: int) -> None:
        self._expected_s += self._each_s[number]

    def so_far(self, number: int) -> tuple[int, int]:
        return int(self._until_s[number]), int(self._until_s[-1])

    def left(self, number: int) -> str:
        if not self._known:
            return ""
        pace = (time.monotonic() - self._began_s) / self._expected_s if self._expected_s else 1.0
        left_s = pace * float(self._until_s[-1] - self._until_s[number])
        return f", {left_s / 3600:.1f} h left" if left_s > 5400 else f", {left_s / 60:.0f} min left"


def measure_unit(campaign: Campaign, number: int, unit: CampaignUnit, meter: Meter) -> Tables:
    return _MEASURE[unit.kind](campaign, unit, meter, np.random.default_rng([campaign.seed, 2, number]))


def measurements_of(campaign: Campaign, finished: Sequence[Tables]) -> Measurements:
    return Measurements(
        board=campaign.board.name,
        silicon_version=campaign.silicon_version,
        temperature_c=campaign.temperature_c,
        rails=campaign.board.energy_rails,
        invocations=campaign.invocations,
        calls=campaign.calls,
        networks=campaign.networks,
        tables={name: MeasurementRows.joined([rows[name] for rows in finished if name in rows]) for name in TABLES},
        temperatures_c=campaign.temperatures_c,
        device=campaign.board if isinstance(campaign.board, Device) else None,
    )


def fixed_configurations(grid: FrequencyGrid) -> tuple[int, ...]:
    """Lowest, middle and highest configuration as flat indices (MIRAGE, SEC '21, sections 3.1 and 6.2).

    The CPU's lowest is a sixth up its clocks: below, the host dominates (footnote 3).
    """
    cpu, *others = grid.shape
    chosen = (
        ((cpu - 1) // 6, *(0 for _ in others)),
        tuple(size // 2 for size in grid.shape),
        tuple(size - 1 for size in grid.shape),
    )
    return tuple(dict.fromkeys(int(np.ravel_multi_index(each, grid.shape)) for each in chosen))


def fixed_network(board: MeasuredDevice, node: int, what: int, network: Network, observations: int, meter: Meter) -> Tables:
    """Observations of a network at each shared configuration, in turn."""
    flat = np.tile(np.array(fixed_configurations(board.grid), np.int64), observations)
    configurations = [board.grid.at(index) for index in flat]
    tables = {"fixed_network_ms": figure_rows(what, node, flat, meter.network_latency_ms(network, configurations))}
    if rails := board.energy_rails:
        measured = meter.network_rails_mw(network, configurations)
        tables["fixed_network_mw"] = figure_rows(what, node, flat, above(measured, dict.fromkeys(measured, 0.0), rails))
    return tables


def fixed_kernels(
    board: MeasuredDevice, node: int, what: Sequence[int], invocations: Sequence[KernelInvocation], meter: Meter
) -> Tables:
    fixed = np.array(fixed_configurations(board.grid), np.int64)
    index, flat = np.repeat(np.array(what, np.int64), len(fixed)), np.tile(fixed, len(what))
    calls, configurations = [invocations[each] for each in index.tolist()], [board.grid.at(index) for index in flat]
    tables = {"fixed_kernel_ms": figure_rows(index, node, flat, meter.kernel_times_ms(calls, configurations))}
    if board.energy_rails:
        tables["fixed_kernel_mw"] = kernel_power(board, node, index, flat, calls, configurations, meter)["kernel_mw"]
    return tables


def _measure_kernel_ms(campaign: Campaign, unit: CampaignUnit, meter: Meter, rng: np.random.Generator) -> Tables:
    what, flat, calls, configurations = _pairs(campaign, unit, rng)
    tables = {"kernel_ms": figure_rows(what, unit.node, flat, meter.kernel_times_ms(calls, configurations))}
    if isinstance(meter, EventMeter):
        each, first = np.unique(what, return_index=True)
        counts = meter.kernel_events([campaign.invocations[number] for number in each])
        tables["kernel_events"] = figure_rows(each, unit.node, flat[first], counts)
    return tables


def _measure_kernel_mw(campaign: Campaign, unit: CampaignUnit, meter: Meter, rng: np.random.Generator) -> Tables:
    if campaign.size.power_kernels == 1:
        return kernel_power(campaign.board, unit.node, *_pairs(campaign, unit, rng), meter)
    rng = np.random.default_rng([campaign.seed, 8, unit.node, *unit.what])  # a part of them does not depend on its own number
    flat, configurations = _random_configurations(campaign, unit.configurations, rng)
    group, flat, configurations = len(unit.what), np.array(unit.of(flat.tolist()), np.int64), unit.of(configurations)
    what, flat = np.tile(np.array(unit.what, np.int64), len(flat)), np.repeat(flat, group)
    calls = [campaign.invocations[index] for index in what]
    each = [configuration for configuration in configurations for _ in range(group)]
    return kernel_power(campaign.board, unit.node, what, flat, calls, each, meter, together=group)


def _measure_host_us(campaign: Campaign, unit: CampaignUnit, meter: Meter, rng: np.random.Generator) -> Tables:
    parts = []
    for what in unit.what:
        flat, configurations = _random_configurations(campaign, unit.configurations, rng)
        burst_ms = meter.host_time_ms([campaign.calls[what]] * _BURST, configurations)
        parts.append(figure_rows(what, unit.node, flat, np.asarray(burst_ms) * 1e3 / _BURST))
    return {"host_us": MeasurementRows.joined(parts)}


def _measure_host_active_mw(campaign: Campaign, unit: CampaignUnit, meter: Meter, rng: np.random.Generator) -> Tables:
    grid = campaign.grid
    repeats = max(unit.configurations // 8, 1)
    parts: list[MeasurementRows] = []
    for gpu_hz in (grid.gpu_hz[-1], grid.gpu_hz[len(grid.gpu_hz) // 2]):
        if not any(map(len, parts)):  # at first, or where nothing counts at the GPU's top clock
            configurations = [FrequencyConfiguration(cpu_khz, gpu_hz, grid.emc_hz[-1]) for cpu_khz in unit.of(grid.cpu_khz)]
            parts = [_host_active_rows(campaign, unit, meter, configurations) for _ in range(repeats)]
    return {"host_active_mw": MeasurementRows.joined(parts)}


def _host_active_rows(
    campaign: Campaign, unit: CampaignUnit, meter: Meter, configurations: Sequence[FrequencyConfiguration]
) -> MeasurementRows:
    flat, rails = _flat(campaign.board.grid, configurations), campaign.board.host_rails
    idle = meter.idle_rails_mw(configurations)
    if not rails:
        return figure_rows(0, unit.node, flat, above(meter.host_rails_mw(configurations), idle, campaign.board.energy_rails))
    for smallest in sorted(campaign.invocations, key=_work)[:_SMALLEST]:  # the worker may be unable to run one
        power = meter.kernel_powers([smallest] * len(configurations), configurations, issued=True)
        if not np.isnan(np.asarray(power.period_ms)).all():
            break
    busy = np.asarray(power.host_ms) / np.asarray(power.period_ms)
    above_idle, known = above(power.rails_mw, idle, rails), busy >= _MOSTLY_BUSY
    return figure_rows(0, unit.node, flat[known], (above_idle / np.maximum(busy, LEAST_BUSY))[known])


def _measure_idle_mw(campaign: Campaign, unit: CampaignUnit, meter: Meter, rng: np.random.Generator) -> Tables:
    grid = campaign.grid
    if (some := campaign.size.idle_configurations) and some < grid.size:
        flat, configurations = _random_configurations(campaign, some, np.random.default_rng([campaign.seed, 6, unit.node]))
    else:
        configurations = list(grid)
        flat = _flat(campaign.board.grid, configurations)
    flat, configurations = np.array(unit.of(flat.tolist()), np.int64), unit.of(configurations)
    tables = {"idle_mw": _idle_rows(campaign, unit, flat, configurations, meter)}
    warm = []
    for what, temperature_c in enumerate(campaign.temperatures_c):
        flat, configurations = _random_configurations(campaign, unit.configurations, rng)
        warm.append(_idle_rows(campaign, unit, flat, configurations, meter, what, temperature_c))
    return {**tables, "warm_idle_mw": MeasurementRows.joined(warm)}


def _idle_rows(
    campaign: Campaign,
    unit: CampaignUnit,
    flat: NDArray[np.int64],
    configurations: Sequence[FrequencyConfiguration],
    meter: Meter,
    what: int = 0,
    temperature_c: float | None = None,
) -> MeasurementRows:
    rails = meter.idle_rails_mw(configurations, temperature_c)
    return figure_rows(what, unit.node, flat, above(rails, dict.fromkeys(rails, 0.0), campaign.board.energy_rails))


def _measure_network(campaign: Campaign, unit: CampaignUnit, meter: Meter, rng: np.random.Generator) -> Tables:
    (what,) = unit.what
    flat, configurations = _of_network(campaign, unit, rng)
    network, rails = campaign.networks[what], campaign.board.energy_rails
    power_mw = np.zeros(len(flat))
    if rails:
        measured = meter.network_rails_mw(network, configurations)
        power_mw = above(measured, dict.fromkeys(measured, 0.0), rails)
    latency_ms = np.asarray(meter.network_latency_ms(network, configurations))
    both = ~np.isnan(latency_ms) & ~np.isnan(power_mw)  # one says little without the other
    tables = {"network_ms": figure_rows(what, unit.node, flat[both], latency_ms[both])}
    return {**tables, "network_mw": figure_rows(what, unit.node, flat[both], power_mw[both])} if rails else tables


def _of_network(
    campaign: Campaign, unit: CampaignUnit, rng: np.random.Generator
) -> tuple[NDArray[np.int64], list[FrequencyConfiguration]]:
    if unit.part:  # of configurations that do not depend on the unit's own number
        rng = np.random.default_rng([campaign.seed, 7, unit.node, *unit.what])
    flat, configurations = _random_configurations(campaign, unit.configurations, rng)
    return np.array(unit.of(flat.tolist()), np.int64), unit.of(configurations)


def _measure_graph(campaign: Campaign, unit: CampaignUnit, meter: Meter, rng: np.random.Generator) -> Tables:
    assert isinstance(meter, GraphMeter)
    (what,) = unit.what
    flat, configurations = _of_network(campaign, unit, rng)
    found, rails = meter.network_graphs(campaign.networks[what], configurations), campaign.board.energy_rails
    figures = {"graph_ms": found.latency_ms, "graph_gpu_ms": found.gpu_ms}
    if rails:
        figures["graph_mw"] = above(found.rails_mw, dict.fromkeys(found.rails_mw, 0.0), rails)
    return {name: figure_rows(what, unit.node, flat, value) for name, value in figures.items()}


def _measure_fixed_network(campaign: Campaign, unit: CampaignUnit, meter: Meter, rng: np.random.Generator) -> Tables:
    (what,) = unit.what
    return fixed_network(campaign.board, unit.node, what, campaign.networks[what], unit.configurations, meter)


def _measure_fixed_kernel(campaign: Campaign, unit: CampaignUnit, meter: Meter, rng: np.random.Generator) -> Tables:
    return fixed_kernels(campaign.board, unit.node, unit.what, campaign.invocations, meter)


_MEASURE: Mapping[str, Callable[[Campaign, CampaignUnit, Meter, np.random.Generator], Tables]] = {
    "kernel_ms": _measure_kernel_ms,
    "kernel_mw": _measure_kernel_mw,
    "host_us": _measure_host_us,
    "host_active_mw": _measure_host_active_mw,
    "idle_mw": _measure_idle_mw,
    "network": _measure_network,
    "graph": _measure_graph,
    "fixed_network": _measure_fixed_network,
    "fixed_kernel": _measure_fixed_kernel,
}


def _pairs(
    campaign: Campaign, unit: CampaignUnit, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[KernelInvocation], list[FrequencyConfiguration]]:
    drawn = [_random_configurations(campaign, unit.configurations, rng) for _ in unit.what]
    what = np.repeat(np.array(unit.what, np.int64), [len(flat) for flat, _ in drawn])
    configurations = [configuration for _, each in drawn for configuration in each]
    return what, np.concatenate([flat for flat, _ in drawn]), [campaign.invocations[index] for index in what], configurations


def _random_configurations(
    campaign: Campaign, count: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], list[FrequencyConfiguration]]:
    grid = campaign.grid
    flat = rng.choice(grid.size, min(count, grid.size), replace=False)
    configurations = [grid.at(index) for index in flat]
    return (_flat(campaign.board.grid, configurations) if campaign.offered else flat), configurations


def _flat(grid: FrequencyGrid, configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.int64]:
    return np.array([np.ravel_multi_index(grid.index(one), grid.shape) for one in configurations], np.int64)


def _work(call: Call) -> int:
    return 0 if isinstance(call, HostOp) else call.flops + call.bytes
