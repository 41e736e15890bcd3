# SPDX-License-Identifier: Apache-2.0
"""A board made of formulas, for tests of measuring, training and evaluation: every figure it gives is known exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.network import Call, HostOp, KernelInvocation, Network, TensorSpec
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.lab.measure.meters.meter import KernelPower

BOARD = load_board("agx-xavier")
ISSUE_US = {"relu": 10.0, "add": 20.0, "view": 5.0}
HOST_ACTIVE_MW = 700.0
LEAKAGE_FOLD_C = 30.0


def leakage_mw(gpu_hz: NDArray[np.float64]) -> NDArray[np.float64]:
    """What of the GPU's idle power leaks, at 45 C."""
    return np.asarray(300 + gpu_hz / 4e6)


def pointwise(kind: str, elements: int) -> KernelInvocation:
    inputs = ((1, elements),) * (2 if kind == "add" else 1)
    return KernelInvocation(kind, "", inputs, (1, elements), "float32", {}, elements, 4 * elements * (len(inputs) + 1))


def network(name: str, elements: Sequence[int]) -> Network:
    calls: list[Call] = []
    for size in elements:
        calls += [pointwise("relu", size), pointwise("add", size), HostOp("view", "")]
    return Network(name, (TensorSpec((1, elements[0])),), tuple(calls))


def one_rail(rails: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    return {"IN": np.sum(list(rails.values()), axis=0)}


class SyntheticMeter:
    """Kernels take a fixed time and their bytes at 60% of the memory's rate; boards differ by ``node`` percent."""

    def __init__(self, node: int = 0) -> None:
        self.factor = 1 + node / 100
        self.asked = 0

    def _clocks(self, configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        self.asked += 1
        return np.array(configurations, np.float64).T

    def kernel_times_ms(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> NDArray[np.float64]:
        _, gpu_hz, emc_hz = self._clocks(configurations)
        moved = np.array([call.bytes for call in invocations])
        taken_ms: NDArray[np.float64] = self.factor * (5e6 / gpu_hz + moved / (0.6 * 64 * emc_hz) * 1e3)
        return taken_ms

    def kernel_powers(
        self,
        invocations: Sequence[KernelInvocation],
        configurations: Sequence[FrequencyConfiguration],
        issued: bool = False,
    ) -> KernelPower:
        _, gpu_hz, emc_hz = self._clocks(configurations)
        gpu_ms = self.kernel_times_ms(invocations, configurations)
        each = zip(invocations, configurations, strict=True)
        host_ms = np.concatenate([self.host_time_ms([call], [configuration]) for call, configuration in each])
        period_ms = np.maximum(gpu_ms, host_ms)
        rails = {rail: level.copy() for rail, level in self.idle_rails_mw(configurations).items()}
        rails["GPU"] += self.factor * 3000 * (gpu_hz / 1.377e9) * gpu_ms / period_ms
        rails["VDDRQ"] += self.factor * 1000 * (emc_hz / 2.133e9) * gpu_ms / period_ms
        rails["CPU"] += self.factor * HOST_ACTIVE_MW * host_ms / period_ms
        return KernelPower(rails, period_ms, gpu_ms, host_ms)

    def host_time_ms(self, calls: Sequence[Call], configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        cpu_khz, _, emc_hz = self._clocks(configurations)
        total_us = sum(ISSUE_US[call.name if isinstance(call, HostOp) else call.kind] for call in calls)
        taken_ms: NDArray[np.float64] = self.factor * total_us * (0.1 + 0.7 * 2265600 / cpu_khz + 0.2 * 2.133e9 / emc_hz) / 1e3
        return taken_ms

    def host_rails_mw(self, configurations: Sequence[FrequencyConfiguration]) -> dict[str, NDArray[np.float64]]:
        rails = self.idle_rails_mw(configurations)
        return {**rails, "CPU": rails["CPU"] + self.factor * HOST_ACTIVE_MW}

    def idle_rails_mw(
        self, configurations: Sequence[FrequencyConfiguration], temperature_c: float | None = None
    ) -> dict[str, NDArray[np.float64]]:
        cpu_khz, gpu_hz, emc_hz = self._clocks(configurations)
        hot = 0.0 if temperature_c is None else np.expm1((temperature_c - 45) / LEAKAGE_FOLD_C)
        return {
            "GPU": self.factor * (500 + gpu_hz / 2e6 + hot * leakage_mw(gpu_hz)),
            "CPU": self.factor * (300 + cpu_khz / 1e4),
            "SOC": self.factor * (1000 + emc_hz / 2e6),
            "VDDRQ": self.factor * (200 + emc_hz / 1e7),
        }

    def _run(
        self, network: Network, configurations: Sequence[FrequencyConfiguration]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Latency in ms and energy in mJ of one inference."""
        host: NDArray[np.float64] = np.zeros(len(configurations))
        gpu, dynamic_mj = host, host
        _, gpu_hz, emc_hz = self._clocks(configurations)
        dynamic_mw = self.factor * (3000 * gpu_hz / 1.377e9 + 1000 * emc_hz / 2.133e9)
        for call in network.calls:
            host = host + self.host_time_ms([call], configurations)
            if isinstance(call, KernelInvocation):
                busy_ms = self.kernel_times_ms([call] * len(configurations), configurations)
                gpu = np.maximum(gpu, host) + busy_ms
                dynamic_mj = dynamic_mj + busy_ms * dynamic_mw / 1e3
        latency = np.maximum(gpu, host)
        idle_mw = sum(self.idle_rails_mw(configurations).values())
        return latency, idle_mw * latency / 1e3 + self.factor * HOST_ACTIVE_MW * host / 1e3 + dynamic_mj

    def network_latency_ms(self, network: Network, configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        return self._run(network, configurations)[0]

    def network_rails_mw(
        self, network: Network, configurations: Sequence[FrequencyConfiguration]
    ) -> dict[str, NDArray[np.float64]]:
        latency, energy = self._run(network, configurations)
        none = np.zeros(len(latency))
        return {"GPU": energy / latency * 1e3, "CPU": none, "SOC": none, "VDDRQ": none}


class OneRailMeter(SyntheticMeter):
    """The same board with one sensor for everything."""

    def __init__(self, node: int = 0) -> None:
        super().__init__(node)
        self._parts = SyntheticMeter(node)

    def kernel_powers(
        self,
        invocations: Sequence[KernelInvocation],
        configurations: Sequence[FrequencyConfiguration],
        issued: bool = False,
    ) -> KernelPower:
        power = self._parts.kernel_powers(invocations, configurations)
        return replace(power, rails_mw=one_rail(power.rails_mw))

    def host_rails_mw(self, configurations: Sequence[FrequencyConfiguration]) -> dict[str, NDArray[np.float64]]:
        return one_rail(self._parts.host_rails_mw(configurations))

    def idle_rails_mw(
        self, configurations: Sequence[FrequencyConfiguration], temperature_c: float | None = None
    ) -> dict[str, NDArray[np.float64]]:
        return one_rail(self._parts.idle_rails_mw(configurations, temperature_c))

    def network_rails_mw(
        self, network: Network, configurations: Sequence[FrequencyConfiguration]
    ) -> dict[str, NDArray[np.float64]]:
        return one_rail(self._parts.network_rails_mw(network, configurations))
