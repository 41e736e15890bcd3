# SPDX-License-Identifier: Apache-2.0
"""Behaviour of a simulated chip beyond nominal values: unevenness, heat, over-current, sharing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ....kernels.network import Call, KernelInvocation, Network
from ...errors import TwinError
from .chip import AMBIENT_DIE_C, Array, Chip, ChipDetails, Clocks, EngineRuntime, Regulator
from .engine import START, compiled
from .fused import Products, product_of
from .host import clock_factor, issue_us
from .irregular import mixed, seeds, spread, uniform
from .kinds import ROWS, SiliconKind
from .passes import CodePass, Variation, seconds
from .power import idle_w, pass_energy_j

_LEAST_SUPPLY = 0.25  # assumed: least share of the bandwidth for the GPU
_NOTHING = Regulator(0.0, 0.0, 0.0)
# Which of a shape's numbers is which.
_OF_BOARD, _OF_CLOCKS, _OF_OPERANDS, _OF_ISSUE = 11, 12, 13, 14


class KernelConditions(Struct, frozen=True):
    """Surroundings of a kernel.

    Attributes:
        inside: True within a network: parameters have left the caches, the host issues work, operands are not random.
        temperature_c: of the die and the DRAM.
        bytes_s: DRAM traffic besides the GPU's, per configuration or for all.
        zeros: True for operands of zeros instead of random ones.
    """

    inside: bool = False
    temperature_c: float = AMBIENT_DIE_C
    bytes_s: Array | float = 0.0
    zeros: bool = False


class PassConditions(Struct, frozen=True):
    """Pass at given clocks: effective clocks, remaining bandwidth, and unexplained factor on its time."""

    work: CodePass
    clocks: Clocks
    supply: Array | float = 1.0
    longer: Array | float = 1.0


class Behaviour:
    """Behaviour of one simulated chip. Raises TwinError for an unknown engine or type."""

    def __init__(self, chip: Chip, variation: Variation, number: int, engine: str, dtype: str) -> None:
        self.chip = chip
        self.variation = variation
        self._number = number
        self._detail = chip.detail
        self._engine = _engine(chip, chip.detail, engine, dtype)
        self._dtype = dtype
        self._products = Products(chip, chip.detail, self._engine)

    def prepared(self, network: Network) -> Network:
        """Network compiled for an engine. Raises TwinError without its data flow."""
        return network if self._engine is None else compiled(network, self._engine, self._dtype)

    def passes(self, kind: str, calls: Sequence[KernelInvocation]) -> list[CodePass]:
        """Passes of invocations of one kind. Raises TwinError."""
        product = product_of(kind)
        result = self._products.passes(product, calls) if product else self._row(kind).work(self.chip, calls)
        name = product or kind
        factor = np.array([self.chip.work(name, call.dtype) for call in calls], np.float64)
        moved = self._detail.moved.get(name, 1.0)
        return [
            replace(
                one,
                cycles=one.cycles * factor,
                operations=one.operations * factor,
                dram_bytes=one.dram_bytes * moved,
                cold_bytes=one.cold_bytes * moved,
            )
            for one in result
        ]

    def _row(self, kind: str) -> SiliconKind:
        row = ROWS.get(product_of(kind) or kind)
        if row is None:
            raise TwinError(
                f"simulated silicon {self.chip.version} knows no kernels of kind {kind!r}; valid: {', '.join(ROWS)}"
            )
        return row

    def conditions(
        self,
        work: CodePass,
        clocks: Clocks,
        calls: Sequence[KernelInvocation],
        rows: NDArray[np.intp],
        around: KernelConditions,
    ) -> PassConditions:
        """Rows of a pass, each at its clocks; ``rows`` index their calls."""
        exact, near = (mixed(one, self.chip.seed) for one in seeds(calls))
        here = exact[rows]
        uneven = self._detail.irregular.get(product_of(calls[0].kind) or calls[0].kind, self._detail.irregular["other"])
        longer = np.exp(
            (uneven.near * spread(near) + uneven.shape * spread(exact))[rows]
            + (uneven.board * spread(mixed(here, _OF_BOARD, self._number)) if self._number >= 0 else 0.0)
            + uneven.clocks * spread(mixed(here, _OF_CLOCKS, clocks.gpu_hz / 1e6, clocks.emc_hz / 1e6))
        )
        work = replace(work, toggling=work.toggling * self._toggled(here, around))
        supply = self._supply(clocks, around)
        return PassConditions(work, self._limited(work, clocks, supply, around), supply, longer)

    def _toggled(self, shape: NDArray[np.uint64], around: KernelConditions) -> Array | float:
        operands = self._detail.operands
        if around.zeros:
            return 1.0 - operands.share
        if not around.inside:
            return 1.0
        kept = operands.inside + (1.0 - operands.inside) * uniform(mixed(shape, _OF_OPERANDS))
        return 1.0 - operands.share * (1.0 - kept)

    def _supply(self, clocks: Clocks, around: KernelConditions) -> Array:
        refresh = self._detail.refresh
        left = 1.0 - refresh.time * self._more_often(around.temperature_c) - around.bytes_s / self._peak(clocks)
        return np.asarray(np.maximum(left, _LEAST_SUPPLY))

    def _peak(self, clocks: Clocks) -> Array:
        memory = self.chip.memory
        return np.asarray(
            memory.dram_bytes_per_cycle * clocks.emc_hz * np.interp(clocks.emc_hz, memory.emc_hz, memory.efficiency)
        )

    def _more_often(self, temperature_c: float) -> float:
        """DRAM refresh rate relative to 45 degrees."""
        refresh = self._detail.refresh
        return float(np.interp(temperature_c, refresh.celsius, refresh.rate)) - 1.0

    def _limited(self, work: CodePass, clocks: Clocks, supply: Array, around: KernelConditions) -> Clocks:
        limit = self._detail.limiter
        if limit is None:
            return clocks
        busy = seconds(work, clocks, self.chip, self.variation, cold=around.inside, supply=supply)
        above = pass_energy_j(work, busy, clocks, self.chip, self.variation, cold=around.inside)["gpu"] / busy
        idle = idle_w(self.chip, clocks, self.variation, around.temperature_c)["gpu"]
        left = np.clip((limit.watts - idle) / np.maximum(above, 1e-9), limit.least, 1.0)
        return Clocks(clocks.cpu_hz, clocks.gpu_hz * left, clocks.emc_hz)

    def issue_us(self, calls: Sequence[Call], launches: Sequence[float]) -> Array:
        """Issue times in us at the reference clocks, shape ``(len(calls),)``."""
        if self._engine is not None:
            return np.array([self._engine.start_us if call == START else self._engine.launch_us for call in calls], np.float64)
        listed = issue_us(calls, launches, self._row)
        kernels = [number for number, call in enumerate(calls) if isinstance(call, KernelInvocation)]
        if kernels:
            exact, _ = seeds([call for call in calls if isinstance(call, KernelInvocation)])
            listed[kernels] *= np.exp(self._detail.issue_spread * spread(mixed(exact, _OF_ISSUE, self.chip.seed)))
        return listed

    def timing_s(self, clocks: Clocks) -> Array | float:
        detail = self._detail
        taken = detail.timing_cycles / clocks.cpu_hz + detail.timing_gpu_cycles / clocks.gpu_hz
        return np.asarray(np.maximum(taken + detail.timing_s, 0.0))

    def host_bytes(self, issue_s: Array, clocks: Clocks) -> Array | float:
        """DRAM traffic of the host per issue time at each configuration."""
        listed_s = issue_s / clock_factor(clocks, self.chip, self.variation)
        return np.asarray(self._detail.traffic.bytes_per_cycle * self.chip.host.reference_cpu_hz * listed_s)

    def waits(self, clocks: Clocks, bytes_s: Array) -> Array | float:
        """Factor on issue time under this GPU traffic."""
        return np.asarray(1.0 + self._detail.traffic.waits * np.minimum(bytes_s / self._peak(clocks), 1.0))

    def refresh_w(self, temperature_c: float) -> float:
        """Power of DRAM refresh above 45 degrees' rate."""
        return self._detail.refresh.watts * self._more_often(temperature_c)

    def drawn(self, rails: Mapping[str, Array], before: Mapping[str, Array] | None) -> dict[str, Array]:
        """Power in W of rails for loads behind their regulators, beyond that for loads ``before``."""
        result = {}
        for rail, watts in rails.items():
            own = self._detail.regulators.get(rail, _NOTHING)
            if before is None:
                result[rail] = np.asarray(watts + own.fixed_w + own.share * watts + own.per_w * watts**2)
            else:
                result[rail] = np.asarray(watts * (1.0 + own.share + own.per_w * (2.0 * before[rail] + watts)))
        return result


def _engine(chip: Chip, detail: ChipDetails, name: str, dtype: str) -> EngineRuntime | None:
    if not name:
        return None
    engine = detail.engines.get(name)
    if engine is None:
        raise TwinError(
            f"simulated silicon {chip.version} has no engine {name!r}; valid: {', '.join(detail.engines) or 'none'}"
        )
    if dtype not in engine.types:
        raise TwinError(f"engine {name} of {chip.version} builds nothing for {dtype!r}; valid: {', '.join(engine.types)}")
    return engine
