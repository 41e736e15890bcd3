# SPDX-License-Identifier: Apache-2.0
"""Measuring campaign in resumable units, after MIRAGE (SEC '21, section 4.2).

Every board measures the networks' kernels; random kernels are spread over the boards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ....kernels.cost.host import issue_key
from ....kernels.grid import FrequencyGrid
from ....kernels.network import Call, KernelInvocation, Network
from ...adapt.measurements import call_json
from ...device import MeasuredDevice

_CALLS_OF_A_NAME = 48
_KERNELS_AT_ONCE = 64

Thing = TypeVar("Thing")


class CampaignSize(Struct, frozen=True):
    """Extent of a campaign.

    Attributes:
        random_kernels: per kind; ``random_kernels_default`` for other kinds.
        idle_configurations: per board; 0 for all.
        power_kernels: kernels that share configurations and one idle measurement.
        power_configurations: per kernel; 0 for as many as for time.
        fixed_observations: of each network and its kernels at the shared configurations.
        graphs: networks are measured as CUDA graphs, too.
        small_steps: one kernel, call or configuration per step, to lose little at an interruption.
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
    power_kernels: int = 1
    power_configurations: int = 0
    fixed_observations: int = 0
    graphs: bool = False
    small_steps: bool = False

    def kernels_of(self, kind: str) -> int:
        return self.random_kernels.get(kind, self.random_kernels_default)


class CampaignUnit(Struct, frozen=True):
    """Resumable step; a non-empty ``part`` selects configurations by order."""

    kind: str
    node: int
    what: tuple[int, ...]
    configurations: int
    part: tuple[int, ...] = ()

    def of(self, items: Sequence[Thing]) -> list[Thing]:
        return [items[place] for place in self.part] if self.part else list(items)


class Campaign(Struct, frozen=True):
    """All measurements, decided before the first.

    Attributes:
        invocations: kernels; the first ``network_kernels`` belong to networks.
        temperatures_c: further die temperatures for idle power.
        offered: measured part of the board's grid; None for all of it.
    """

    board: MeasuredDevice
    silicon_version: str
    temperature_c: float
    size: CampaignSize
    seed: int
    invocations: tuple[KernelInvocation, ...]
    calls: tuple[Call, ...]
    networks: tuple[Network, ...]
    units: tuple[CampaignUnit, ...]
    temperatures_c: tuple[float, ...] = ()
    offered: FrequencyGrid | None = None

    @property
    def grid(self) -> FrequencyGrid:
        return self.offered or self.board.grid

    def samples(self, unit: CampaignUnit) -> int:
        size, grid = self.size, self.grid
        if unit.part:
            return len(unit.what) * len(unit.part)
        if unit.kind == "idle_mw":
            return min(size.idle_configurations or grid.size, grid.size)
        return len(grid.cpu_khz) if unit.kind == "host_active_mw" else len(unit.what) * min(unit.configurations, grid.size)

    @property
    def about(self) -> dict[str, Any]:
        return {
            "board": self.board.name, "clocks": self.grid.to_json(), "networks": [network.name for network in self.networks],
            "kernels": len(self.invocations), "seed": self.seed,
        }  # fmt: skip

    @property
    def digest(self) -> str:
        """Identity: equal campaigns measure the same in the same order."""
        about = [self.board.name, self.silicon_version, self.temperature_c, self.temperatures_c, self.seed]
        about += [self.size.idle_configurations] if self.size.idle_configurations else []
        about += [self.offered.to_json()] if self.offered else []
        about += [[u.kind, u.node, u.what, u.configurations, *([u.part] if u.part else [])] for u in self.units]
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
    offered: FrequencyGrid | None = None,
) -> Campaign:
    """Plan a campaign.

    Args:
        networks: their kernels and calls are measured on every board.
        random_kernels: draws kernels, by kind and count.
        kinds: kernel kinds that get a model.
        others: networks of which only calls are measured.
        issued: selects calls with an issue time of their own.
        warmer_c: further die temperatures for idle power.
    """
    offered = None if offered == board.grid else offered
    grid = offered or board.grid
    small = size.small_steps

    def parts(kind: str, node: int, what: tuple[int, ...], configurations: int, count: int) -> list[CampaignUnit]:
        return [
            CampaignUnit(kind, node, what, configurations, (place,) if small else ()) for place in range(count if small else 1)
        ]

    def powers(node: int, what: Sequence[int] | NDArray[np.int64], configurations: int) -> list[CampaignUnit]:
        if size.power_kernels == 1:
            return [CampaignUnit("kernel_mw", node, part, configurations) for part in _parts(what, at_once)]
        some = min(size.power_configurations or configurations, configurations, grid.size)
        return [unit for group in _parts(what, size.power_kernels) for unit in parts("kernel_mw", node, group, some, some)]

    at_once = 1 if small else _KERNELS_AT_ONCE
    unique = {launch.signature: launch for network in networks for launch in network.launches if launch.kind in kinds}
    of_networks = list(unique.values())
    drawn = [kernel for kind in kinds for kernel in random_kernels(kind, size.kernels_of(kind))]
    called = [call for network in (*networks, *others) for call in network.calls if issued(call)]
    calls = _some_of_each_name(called, np.random.default_rng([seed, 4]))
    order = np.random.default_rng([seed, 1]).permutation(len(drawn)) + len(of_networks)
    units: list[CampaignUnit] = []
    for position, node in enumerate(size.nodes):
        mine = order[position :: len(size.nodes)]
        if board.energy_rails:
            idle = min(size.idle_configurations or grid.size, grid.size)
            units += parts("idle_mw", node, (0,), size.warm_configurations, idle)
            units += parts("host_active_mw", node, (0,), size.host_configurations, len(grid.cpu_khz))
        each = [(what,) for what in range(len(calls))] if small else [tuple(range(len(calls)))]
        units += [CampaignUnit("host_us", node, some, size.host_configurations) for some in each]
        whole = size.whole_network_configurations
        for what in range(len(networks)):
            for kind in ("network", "graph") if size.graphs else ("network",):
                units += parts(kind, node, (what,), whole, min(whole, grid.size))
        kernels = ((range(len(of_networks)), size.network_configurations), (mine, size.configurations))
        for some, count in kernels:
            units += [CampaignUnit("kernel_ms", node, part, count) for part in _parts(some, at_once)]
        if board.energy_rails:
            units += [unit for some, count in kernels for unit in powers(node, some, count)]
        if size.fixed_observations:
            units += [CampaignUnit("fixed_network", node, (what,), size.fixed_observations) for what in range(len(networks))]
            units += [CampaignUnit("fixed_kernel", node, part, 1) for part in _parts(range(len(of_networks)), at_once)]
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
        offered,
    )


def _some_of_each_name(calls: Sequence[Call], rng: np.random.Generator) -> list[Call]:
    names: dict[str, list[Call]] = {}
    for index in rng.permutation(len(calls)):
        same = names.setdefault(issue_key(calls[index])[0], [])
        if len(same) < _CALLS_OF_A_NAME and calls[index] not in same:
            same.append(calls[index])
    return [call for name in sorted(names) for call in names[name]]


def _parts(what: Sequence[int] | NDArray[np.int64], length: int) -> Iterator[tuple[int, ...]]:
    for start in range(0, len(what), length):
        yield tuple(int(index) for index in what[start : start + length])
