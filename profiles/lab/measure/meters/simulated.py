# SPDX-License-Identifier: Apache-2.0
"""Meter of a simulated board in virtual time, with a real one's noise; boards that run networks by an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .....kernels.engine.fusing import ENGINE_TYPES, as_engine, engine_of
from .....kernels.grid import FrequencyConfiguration
from .....kernels.network import Call, KernelInvocation, Network
from ....twin.silicon.chip import AMBIENT_DIE_C, Array, Clocks
from ....twin.silicon.silicon import Activity, Execution, Silicon, execute
from .meter import POWER_READINGS, TIMINGS, KernelPower

_EVENT_MS = 0.5e-3  # resolution of GPU event timers
_CHUNK = 4096
_DRIFT = 0.006  # of a measurement's logarithm
_OUTLIERS, _OUTLIER = 0.03, 0.25  # share of frames that something delays, and by how much of its logarithm at most


class TwinMeter:
    """:class:`~jetdvfs.profiles.lab.measure.meters.meter.Meter` of one simulated chip; ``seed`` fixes the noise."""

    def __init__(self, silicon: Silicon, seed: int = 0, temperature_c: float = AMBIENT_DIE_C) -> None:
        self.silicon = silicon
        self._temperature_c = temperature_c
        self._random = np.random.default_rng([0x13221, silicon.node, seed])
        self._frames = np.random.default_rng([0x13221, silicon.node, seed, 1])  # without effect on other measurements
        # The next request is mostly for another figure of the same runs: the last ones are kept.
        self._ran: tuple[Network, list[FrequencyConfiguration], Execution] | None = None
        self._active: tuple[list[KernelInvocation], list[FrequencyConfiguration], Activity] | None = None

    def kernel_times_ms(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> NDArray[np.float64]:
        activity = self._activity(invocations, configurations)
        return self._gpu_ms(activity.seconds + self.silicon.timing_s(Clocks.of(configurations)))

    def kernel_powers(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration], issued: bool = False
    ) -> KernelPower:
        clocks = Clocks.of(configurations)
        activity = self._activity(invocations, configurations)
        return self._power(activity, self.silicon.issue_pairs_s(invocations, clocks), clocks)

    def host_time_ms(self, calls: Sequence[Call], configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        true = 1e3 * self.silicon.issue_s(calls, Clocks.of(configurations)).sum(axis=0)
        return self._median(true, drift=0.010, spread=0.030, outliers=0.05, outlier=0.30, step_ms=1e-4)

    def host_rails_mw(self, configurations: Sequence[FrequencyConfiguration]) -> dict[str, NDArray[np.float64]]:
        clocks = Clocks.of(configurations)
        rails = self.silicon.idle_rails_w(clocks)
        for rail, power in self.silicon.issue_rails_w(clocks).items():
            rails[rail] = rails[rail] + power
        return self._read_rails(rails)

    def idle_rails_mw(
        self, configurations: Sequence[FrequencyConfiguration], temperature_c: float | None = None
    ) -> dict[str, NDArray[np.float64]]:
        die_c = self._temperature_c if temperature_c is None else temperature_c
        return self._read_rails(self.silicon.idle_rails_w(Clocks.of(configurations), die_c))

    def network_latency_ms(self, network: Network, configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        run = self._executed(network, configurations)
        return self._median(
            1e3 * run.latency_s, drift=_DRIFT, spread=self._spread(run), outliers=_OUTLIERS, outlier=_OUTLIER, step_ms=_EVENT_MS
        )

    def network_frames_ms(
        self, network: Network, configurations: Sequence[FrequencyConfiguration], frames: int
    ) -> NDArray[np.float64]:
        """Frame latencies, ``(configurations, frames)``."""
        run = self._executed(network, configurations)
        shape = (len(configurations), frames)
        drift = _DRIFT * self._frames.standard_normal((len(configurations), 1))
        jitter = self._spread(run)[:, None] * self._frames.standard_normal(shape)
        late = _OUTLIER * (self._frames.random(shape) < _OUTLIERS) * self._frames.random(shape)
        return np.asarray(1e3 * run.latency_s[:, None] * np.exp(drift + jitter + late))

    def _executed(self, network: Network, configurations: Sequence[FrequencyConfiguration]) -> Execution:
        chosen = list(configurations)
        if self._ran is None or self._ran[0] is not network or self._ran[1] != chosen:
            self._ran = network, chosen, execute(network, self.silicon, Clocks.of(chosen), self._temperature_c)
        return self._ran[2]

    def _activity(self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]) -> Activity:
        calls, chosen = list(invocations), list(configurations)
        if self._active is None or self._active[0] != calls or self._active[1] != chosen:
            self._active = calls, chosen, self.silicon.pairs(calls, Clocks.of(chosen))
        return self._active[2]

    def _spread(self, run: Execution) -> Array:
        """Spread of log frame time, larger if the GPU waits for the host."""
        waiting = np.clip(1.0 - run.gpu_busy_s / run.latency_s, 0.0, 1.0)
        return np.asarray(0.006 + 0.030 * waiting)

    def network_rails_mw(
        self, network: Network, configurations: Sequence[FrequencyConfiguration]
    ) -> dict[str, NDArray[np.float64]]:
        run = self._executed(network, configurations)
        return self._read_rails({rail: energy / run.latency_s for rail, energy in run.rail_energy_j.items()})

    def _gpu_ms(self, seconds: Array) -> Array:
        return self._median(1e3 * seconds, drift=0.006, spread=0.006, outliers=0.015, outlier=0.20, step_ms=_EVENT_MS)

    def _median(
        self, true_ms: Array, *, drift: float, spread: Array | float, outliers: float, outlier: float, step_ms: float
    ) -> Array:
        random = self._random
        common = true_ms * np.exp(drift * random.standard_normal(len(true_ms)))
        spread = np.broadcast_to(spread, true_ms.shape)

        def observe(rows: slice) -> Array:
            shape = (TIMINGS, len(common[rows]))
            jitter = spread[rows] * random.standard_normal(shape, np.float32)
            slow = random.random(shape, np.float32) < outliers
            timed = common[rows] * np.exp(jitter + outlier * slow * random.random(shape, np.float32))
            # Both ends of an interval fall at random within the timer's step.
            return np.asarray(np.median(step_ms * np.floor(timed / step_ms + random.random(shape, np.float32)), axis=0))

        return np.maximum(_in_chunks(observe, len(common)), step_ms)

    def _power(self, activity: Activity, issue_s: Array, clocks: Clocks) -> KernelPower:
        period = np.maximum(issue_s, activity.seconds + self.silicon.gap_s(clocks))
        rails = self.silicon.idle_rails_w(clocks)
        for rail in self.silicon.busy_rails:
            rails[rail] = rails[rail] + activity.energy_j[rail] / period
        for rail, power in self.silicon.issue_rails_w(clocks).items():
            rails[rail] = rails[rail] + power * issue_s / period
        return KernelPower(self._read_rails(rails), 1e3 * period, self._gpu_ms(activity.seconds), 1e3 * issue_s)

    def _read_rails(self, rails_w: dict[str, Array]) -> dict[str, Array]:
        random = self._random
        result = {}
        session = 0.018 * random.standard_normal(len(next(iter(rails_w.values()))))
        for rail, watts in self.silicon.sensed(rails_w).items():
            true = 1e3 * watts * np.exp(session)

            step_mw = self.silicon.sensor_step_mw[rail]

            def observe(rows: slice, true: Array = true, step_mw: float = step_mw) -> Array:
                level = true[rows]
                noise = (35.0 + 0.012 * level) * random.standard_normal((POWER_READINGS, len(level)), np.float32)
                return np.asarray(np.mean(step_mw * np.maximum(np.rint((level + noise) / step_mw), 0.0), axis=0))

            result[rail] = _in_chunks(observe, len(true))
        return result


def _in_chunks(observe: Callable[[slice], Array], count: int) -> Array:
    parts = [observe(slice(start, min(start + _CHUNK, count))) for start in range(0, count, _CHUNK)]
    return np.concatenate(parts) if parts else np.empty(0)


def listed(network: Network, compiled: str) -> Network:
    """Launches of a network by an engine, if ``compiled``. Raises ModelError."""
    return as_engine(network, ENGINE_TYPES[compiled]) if compiled else network


def engines_of(board: str) -> list[str]:
    """Engines that the simulated board runs. Raises TwinError."""
    runtime, _ = engine_of(next(iter(ENGINE_TYPES)))
    types = board_of(board, None).chip.detail.engines[runtime].types
    return [name for name, dtype in ENGINE_TYPES.items() if dtype in types]


def board_of(board: str, node: int | None, compiled: str = "", perturbed: int = 0) -> Silicon:
    """Simulated board, without an engine if ``compiled`` is empty. Raises TwinError."""
    engine, dtype = engine_of(compiled)
    return Silicon(node, board, perturbed=perturbed, engine=engine, dtype=dtype)


def twin_meter(
    board: str, node: int, seed: int, compiled: str = "", temperature_c: float = AMBIENT_DIE_C, perturbed: int = 0
) -> TwinMeter:
    return TwinMeter(board_of(board, node, compiled, perturbed), seed + 1000 * node, temperature_c)
