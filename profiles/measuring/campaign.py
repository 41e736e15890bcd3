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

import numpy as np
from numpy.typing import NDArray

from ...kernels.cost.host import issue_key
from ...kernels.grid import FrequencyGrid
from ...kernels.network import Call, KernelInvocation, Network
from ..device import MeasuredDevice
from .measurements import call_json

_CALLS_OF_A_NAME = 48


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
