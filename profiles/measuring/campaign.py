# SPDX-License-Identifier: Apache-2.0
"""A measuring campaign: what to measure on which board at which frequency configurations, done in units that can be resumed.

Kernels are those of given networks, on every board, and random ones (MIRAGE, SEC '21, section 4.2), each on one board, at
random configurations; the host's issue time per call, and idle power over the whole grid, complete what a profile needs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...kernels.cost.host import issue_key
from ...kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...kernels.network import Call, HostOp, KernelInvocation, Network
from ..device import Device, MeasuredDevice
from .figures import LEAST_BUSY, Tables, above, configurations_at, figure_rows, kernel_power
from .fixed import fixed_kernels, fixed_network
from .keeping import KeptUnits
from .measurements import TABLES, Measurements, Rows, call_json
from .meters.meter import Meter

Progress = Callable[[int, int, str], None]
"""Called with the units done, the units in all, and what is being measured."""

_CALLS_OF_A_NAME = 48
_BURST = 32  # calls issued at once to time the host: well under a CUDA launch queue's 1,024
_MOSTLY_BUSY = 0.5  # the same for the host


@dataclass(frozen=True)
class CampaignSize:
    """How much to measure.

    Attributes:
        nodes: the boards to measure on.
        random_kernels: random kernels of each kind; ``random_kernels_default`` for kinds not named.
        configurations: random configurations per random kernel.
        network_configurations: random configurations per board and kernel of a network.
        whole_network_configurations: random configurations per board and network, measured as a whole.
        host_configurations: random configurations per board and call name.
        warm_configurations: random configurations per board and temperature of the die beside the campaign's.
        idle_configurations: random configurations per board that idle power is measured at; 0 for all.
        fixed_observations: of each network at the same few configurations on every board; its kernels are measured there once.
        kernels_at_once: how many kernels a step measures; an interruption loses no more.
    """

    nodes: tuple[int, ...]
    random_kernels: Mapping[str, int]
    random_kernels_default: int
    configurations: int
    network_configurations: int
    whole_network_configurations: int
    host_configurations: int
    warm_configurations: int = 0
    idle_configurations: int = 0
    fixed_observations: int = 0
    kernels_at_once: int = 64

    def kernels_of(self, kind: str) -> int:
        return self.random_kernels.get(kind, self.random_kernels_default)


@dataclass(frozen=True)
class Unit:
    """One resumable step: what kind of measurement, one board, some things, and how many random configurations for each."""

    kind: str
    node: int
    what: tuple[int, ...]
    configurations: int


@dataclass(frozen=True)
class Campaign:
    """Everything that will be measured, decided before the first measurement.

    Attributes:
        board: the board, or another device.
        silicon_version: version of the simulated silicon, or an empty string.
        temperature_c: the die temperature that boards are kept at.
        size: how much.
        seed: what random choices follow from.
        invocations: the kernels; the first ``network_kernels`` are those of networks.
        calls: the calls whose issue time is measured, some of each name.
        networks: the networks, measured as a whole to see what their kernels' models do not say.
        units: the steps, in order.
        temperatures_c: others that idle power is measured at.
        offered: the part of the board's grid that is measured, where it is not all of it.
    """

    board: MeasuredDevice
    silicon_version: str
    temperature_c: float
    size: CampaignSize
    seed: int
    invocations: tuple[KernelInvocation, ...]
    calls: tuple[Call, ...]
    networks: tuple[Network, ...]
    units: tuple[Unit, ...]
    temperatures_c: tuple[float, ...] = ()
    offered: FrequencyGrid | None = None

    @property
    def digest(self) -> str:
        """A name for exactly this campaign: equal campaigns measure the same things in the same order."""
        about = [self.board.name, self.silicon_version, self.temperature_c, self.temperatures_c, self.seed]
        about += [self.size.idle_configurations] if self.size.idle_configurations else []
        about += [self.offered.to_json()] if self.offered else []
        about += [[unit.kind, unit.node, unit.what, unit.configurations] for unit in self.units]
        about += [invocation.to_json() for invocation in self.invocations]
        about += [call_json(call) for call in self.calls]
        about += [network.digest for network in self.networks]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:24]


def plan_campaign(
    board: MeasuredDevice,
    networks: Sequence[Network],
    random_kernels: Callable[[str, int], Sequence[KernelInvocation]],
    size: CampaignSize,
    *,
    kinds: Sequence[str],
    temperature_c: float,
    others: Sequence[Network] = (),
    issued: Callable[[Call], bool] = lambda call: True,
    warmer_c: Sequence[float] = (),
    silicon_version: str = "",
    seed: int = 0,
) -> Campaign:
    """Decide what a campaign measures.

    Args:
        board: the board's description; where it has no energy rails, power is not measured.
        networks: the networks whose kernels and calls are measured on every board.
        random_kernels: gives so many random kernels of a kind.
        size: how much.
        kinds: the kernel kinds that get a model.
        temperature_c: the die temperature that boards are kept at.
        others: networks of which only the calls are measured.
        issued: which calls cost the host time of their own.
        warmer_c: others that idle power is measured at besides.
        silicon_version: version of the simulated silicon, or an empty string.
        seed: what random choices follow from.
    """
    unique = {launch.signature: launch for network in networks for launch in network.launches if launch.kind in kinds}
    of_networks = list(unique.values())
    drawn = [kernel for kind in kinds for kernel in random_kernels(kind, size.kernels_of(kind))]
    called = [call for network in (*networks, *others) for call in network.calls if issued(call)]
    calls = _some_of_each_name(called, np.random.default_rng([seed, 4]))
    order = np.random.default_rng([seed, 1]).permutation(len(drawn)) + len(of_networks)
    units: list[Unit] = []
    for position, node in enumerate(size.nodes):
        mine = order[position :: len(size.nodes)]
        if board.energy_rails:
            units.append(Unit("idle_mw", node, (0,), size.warm_configurations))
            units.append(Unit("host_active_mw", node, (0,), size.host_configurations))
        units += [Unit("host_us", node, tuple(range(len(calls))), size.host_configurations)]
        units += [Unit("network", node, (what,), size.whole_network_configurations) for what in range(len(networks))]
        for kind in ("kernel_ms", "kernel_mw") if board.energy_rails else ("kernel_ms",):
            units += [
                Unit(kind, node, part, size.network_configurations)
                for part in _parts(range(len(of_networks)), size.kernels_at_once)
            ]
            units += [Unit(kind, node, part, size.configurations) for part in _parts(mine, size.kernels_at_once)]
        if size.fixed_observations:
            units += [Unit("fixed_network", node, (what,), size.fixed_observations) for what in range(len(networks))]
            units += [Unit("fixed_kernel", node, part, 1) for part in _parts(range(len(of_networks)), size.kernels_at_once)]
    return Campaign(
        board,
        silicon_version,
        temperature_c,
        size,
        seed,
        (*of_networks, *drawn),
        tuple(calls),
        tuple(networks),
        tuple(units),
        tuple(warmer_c),
    )


def run_campaign(
    campaign: Campaign,
    meter: Callable[[int], Meter],
    folder: Path | None = None,
    progress: Progress = lambda done, total, text: None,
) -> Measurements:
    """Measure everything that is not yet in ``folder`` and return all of it.

    What is measured does not depend on interruptions: each unit's random choices follow from the campaign's seed and its own
    number. A meter's noise does, where it goes on from unit to unit: it starts anew with the meter.

    Args:
        campaign: what to measure.
        meter: gives the measuring instrument of a board by its number.
        folder: where each finished unit is kept, so that an interrupted campaign goes on from there; ``None`` keeps nothing.
        progress: called before each unit and at the end.

    Raises:
        MeasurementError: a measurement did not come out; what was measured until then is kept.
    """
    kept = KeptUnits(None if folder is None else folder / campaign.digest)
    finished: list[Tables] = []
    meters: dict[int, Meter] = {}
    for number, unit in enumerate(campaign.units):
        progress(number, len(campaign.units), f"board {unit.node}: {unit.kind}")
        rows = kept.get(number)
        if rows is None:
            if unit.node not in meters:
                meters = {unit.node: meter(unit.node)}
            rows = measure_unit(campaign, number, unit, meters[unit.node])
            kept.put(number, rows)
        finished.append(rows)
    progress(len(campaign.units), len(campaign.units), "done")
    return measurements_of(campaign, finished)


def measure_unit(campaign: Campaign, number: int, unit: Unit, meter: Meter) -> Tables:
    """Measure one step, on whichever board; its random choices follow from its number."""
    return _MEASURE[unit.kind](campaign, unit, meter, np.random.default_rng([campaign.seed, 2, number]))


def measurements_of(campaign: Campaign, finished: Sequence[Tables]) -> Measurements:
    """What finished steps have found together."""
    return Measurements(
        board=campaign.board.name,
        silicon_version=campaign.silicon_version,
        temperature_c=campaign.temperature_c,
        rails=campaign.board.energy_rails,
        invocations=campaign.invocations,
        calls=campaign.calls,
        networks=campaign.networks,
        tables={name: Rows.joined([rows[name] for rows in finished if name in rows]) for name in TABLES},
        temperatures_c=campaign.temperatures_c,
        device=campaign.board if isinstance(campaign.board, Device) else None,
    )


def _measure_kernel_ms(campaign: Campaign, unit: Unit, meter: Meter, rng: np.random.Generator) -> Tables:
    what, flat, calls, configurations = _pairs(campaign, unit, rng)
    return {"kernel_ms": figure_rows(what, unit.node, flat, meter.kernel_times_ms(calls, configurations))}


def _measure_kernel_mw(campaign: Campaign, unit: Unit, meter: Meter, rng: np.random.Generator) -> Tables:
    what, flat, calls, configurations = _pairs(campaign, unit, rng)
    return kernel_power(campaign.board, unit.node, what, flat, calls, configurations, meter)


def _measure_host_us(campaign: Campaign, unit: Unit, meter: Meter, rng: np.random.Generator) -> Tables:
    parts = []
    for what in unit.what:
        flat, configurations = _random_configurations(campaign, unit.configurations, rng)
        burst_ms = meter.host_time_ms([campaign.calls[what]] * _BURST, configurations)
        parts.append(figure_rows(what, unit.node, flat, np.asarray(burst_ms) * 1e3 / _BURST))
    return {"host_us": Rows.joined(parts)}


def _measure_host_active_mw(campaign: Campaign, unit: Unit, meter: Meter, rng: np.random.Generator) -> Tables:
    """The smallest kernel again and again: where launching it takes longer than running it, the host never rests.

    Where no rail is the host's own, calls that launch nothing instead.
    """
    smallest = min(campaign.invocations, key=_work)
    grid = campaign.offered or campaign.board.grid
    configurations = [FrequencyConfiguration(cpu_khz, grid.gpu_hz[-1], grid.emc_hz[-1]) for cpu_khz in grid.cpu_khz]
    top = _flat(campaign.board.grid, configurations)
    rails = campaign.board.host_rails
    parts = []
    for _ in range(max(unit.configurations // 8, 1)):
        idle = meter.idle_rails_mw(configurations)
        if not rails:
            parts.append(
                figure_rows(0, unit.node, top, above(meter.host_rails_mw(configurations), idle, campaign.board.energy_rails))
            )
            continue
        power = meter.kernel_powers([smallest] * len(configurations), configurations)
        busy = np.asarray(power.host_ms) / np.asarray(power.period_ms)
        above_idle = above(power.rails_mw, idle, rails)
        rows = figure_rows(0, unit.node, top, above_idle / np.maximum(busy, LEAST_BUSY))
        parts.append(rows.where(busy >= _MOSTLY_BUSY))
    return {"host_active_mw": Rows.joined(parts)}


def _measure_idle_mw(campaign: Campaign, unit: Unit, meter: Meter, rng: np.random.Generator) -> Tables:
    """Over the grid, and at other temperatures at random configurations."""
    grid = campaign.offered or campaign.board.grid
    if (some := campaign.size.idle_configurations) and some < grid.size:
        flat, configurations = _random_configurations(campaign, some, np.random.default_rng([campaign.seed, 6, unit.node]))
    else:
        configurations = list(grid)
        flat = _flat(campaign.board.grid, configurations)
    tables = {"idle_mw": _idle_rows(campaign, unit, flat, configurations, meter)}
    warm = []
    for what, temperature_c in enumerate(campaign.temperatures_c):
        flat, configurations = _random_configurations(campaign, unit.configurations, rng)
        warm.append(_idle_rows(campaign, unit, flat, configurations, meter, what, temperature_c))
    return {**tables, "warm_idle_mw": Rows.joined(warm)}


def _idle_rows(
    campaign: Campaign,
    unit: Unit,
    flat: NDArray[np.int64],
    configurations: Sequence[FrequencyConfiguration],
    meter: Meter,
    what: int = 0,
    temperature_c: float | None = None,
) -> Rows:
    rails = meter.idle_rails_mw(configurations, temperature_c)
    return figure_rows(what, unit.node, flat, above(rails, dict.fromkeys(rails, 0.0), campaign.board.energy_rails))


def _measure_network(campaign: Campaign, unit: Unit, meter: Meter, rng: np.random.Generator) -> Tables:
    (what,) = unit.what
    flat, configurations = _random_configurations(campaign, unit.configurations, rng)
    network, rails, tables = campaign.networks[what], campaign.board.energy_rails, dict[str, Rows]()
    if rails:
        measured = meter.network_rails_mw(network, configurations)
        tables["network_mw"] = figure_rows(what, unit.node, flat, above(measured, dict.fromkeys(measured, 0.0), rails))
    tables["network_ms"] = figure_rows(what, unit.node, flat, meter.network_latency_ms(network, configurations))
    return tables


def _measure_fixed_network(campaign: Campaign, unit: Unit, meter: Meter, rng: np.random.Generator) -> Tables:
    (what,) = unit.what
    return fixed_network(campaign.board, unit.node, what, campaign.networks[what], unit.configurations, meter)


def _measure_fixed_kernel(campaign: Campaign, unit: Unit, meter: Meter, rng: np.random.Generator) -> Tables:
    return fixed_kernels(campaign.board, unit.node, unit.what, campaign.invocations, meter)


_MEASURE: Mapping[str, Callable[[Campaign, Unit, Meter, np.random.Generator], Tables]] = {
    "kernel_ms": _measure_kernel_ms,
    "kernel_mw": _measure_kernel_mw,
    "host_us": _measure_host_us,
    "host_active_mw": _measure_host_active_mw,
    "idle_mw": _measure_idle_mw,
    "network": _measure_network,
    "fixed_network": _measure_fixed_network,
    "fixed_kernel": _measure_fixed_kernel,
}


def _pairs(
    campaign: Campaign, unit: Unit, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[KernelInvocation], list[FrequencyConfiguration]]:
    """Each kernel of a unit at random configurations: which kernel, which configuration (flat index), and both themselves."""
    drawn = [_random_configurations(campaign, unit.configurations, rng) for _ in unit.what]
    what = np.repeat(np.array(unit.what, np.int64), [len(flat) for flat, _ in drawn])
    configurations = [configuration for _, each in drawn for configuration in each]
    return what, np.concatenate([flat for flat, _ in drawn]), [campaign.invocations[index] for index in what], configurations


def _random_configurations(
    campaign: Campaign, count: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], list[FrequencyConfiguration]]:
    grid = campaign.offered or campaign.board.grid
    flat = rng.choice(grid.size, min(count, grid.size), replace=False)
    configurations = configurations_at(grid, flat)
    return (_flat(campaign.board.grid, configurations) if campaign.offered else flat), configurations


def _flat(grid: FrequencyGrid, configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.int64]:
    """The flat index of each configuration."""
    return np.array([np.ravel_multi_index(grid.index(one), grid.shape) for one in configurations], np.int64)


def _work(call: Call) -> int:
    return 0 if isinstance(call, HostOp) else call.flops + call.bytes


def _some_of_each_name(calls: Sequence[Call], rng: np.random.Generator) -> list[Call]:
    """A few different calls of each name, common ones the likelier: their mean is that of the networks."""
    names: dict[str, list[Call]] = {}
    for index in rng.permutation(len(calls)):
        same = names.setdefault(issue_key(calls[index])[0], [])
        if len(same) < _CALLS_OF_A_NAME and calls[index] not in same:
            same.append(calls[index])
    return [call for name in sorted(names) for call in names[name]]


def _parts(what: Sequence[int] | NDArray[np.int64], length: int) -> Iterator[tuple[int, ...]]:
    for start in range(0, len(what), length):
        yield tuple(int(index) for index in what[start : start + length])
