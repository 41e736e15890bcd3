# SPDX-License-Identifier: Apache-2.0
"""Measuring a GPU at clocks that somebody sets: PyTorch runs what is measured, counters tell what it takes.

The GPU and its host are two: kernels are timed by the GPU's own events, issuing them by the host's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....kernels.grid import FrequencyConfiguration
from ....kernels.network import Call, HostOp, KernelInvocation, Network
from ...errors import MeasurementError
from .cpu import CpuMeter, Patience, Worker
from .meter import KernelPower

_TRIES = 4
_HOST_CALLS = [{"name": "view"}]
_BURST = 32
_ENDLESS = 10_000_000

Found = TypeVar("Found")


class Clocks(Protocol):
    """What sets the clocks of a device that is measured."""

    def set(self, configuration: FrequencyConfiguration) -> None:
        """Hold this configuration from now on, after what was amiss before is over."""
        ...

    def amiss(self) -> str:
        """Why what was measured since the clocks were set does not count; an empty string where it does."""
        ...


class GpuMeter:
    """A :class:`~jetdvfs.profiles.measuring.meters.meter.Meter` of a GPU. What was amiss is measured again a few times.

    Args:
        torch: what measures by PyTorch and reads the counters, at the clocks there are.
        process: its worker, on the GPU.
    """

    def __init__(self, torch: CpuMeter, process: Worker, clocks: Clocks, patience: Patience) -> None:
        self._torch, self._process, self._clocks, self._patience = torch, process, clocks, patience

    def kernel_times_ms(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> NDArray[np.float64]:
        return np.array(self._each(configurations, lambda row, at: self._torch.kernel_times_ms([invocations[row]], [at])[0]))

    def kernel_powers(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> KernelPower:
        def one(row: int, at: FrequencyConfiguration) -> tuple[Mapping[str, float], tuple[float, float, float]]:
            call = invocations[row]
            power = self._torch.kernel_powers([call], [at])
            gpu_ms = float(self._torch.kernel_times_ms([call], [at])[0])
            return _first(power.rails_mw), (float(power.period_ms[0]), gpu_ms, self._issue_ms([call]))

        found = self._each(configurations, one)
        period_ms, gpu_ms, host_ms = np.array([times for _, times in found]).T
        return KernelPower(_columns([rails for rails, _ in found]), period_ms, gpu_ms, host_ms)

    def host_time_ms(self, calls: Sequence[Call], configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        return np.array(self._each(configurations, lambda row, at: self._issue_ms(calls)))

    def host_rails_mw(self, configurations: Sequence[FrequencyConfiguration]) -> dict[str, NDArray[np.float64]]:
        def one(row: int, at: FrequencyConfiguration) -> Mapping[str, float]:
            self._issue(self._patience.lead_s)
            return self._torch.drawn_mw(lambda: self._issue(self._patience.power_s))[1]

        return _columns(self._each(configurations, one))

    def idle_rails_mw(
        self, configurations: Sequence[FrequencyConfiguration], temperature_c: float | None = None
    ) -> dict[str, NDArray[np.float64]]:
        return _columns(self._each(configurations, lambda row, at: _first(self._torch.idle_rails_mw([at]))))

    def network_latency_ms(self, network: Network, configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        return np.array(self._each(configurations, lambda row, at: self._torch.network_latency_ms(network, [at])[0]))

    def network_rails_mw(
        self, network: Network, configurations: Sequence[FrequencyConfiguration]
    ) -> dict[str, NDArray[np.float64]]:
        return _columns(self._each(configurations, lambda row, at: _first(self._torch.network_rails_mw(network, [at]))))

    def _each(
        self, configurations: Sequence[FrequencyConfiguration], measure: Callable[[int, FrequencyConfiguration], Found]
    ) -> list[Found]:
        """Measure at each configuration, with its clocks set."""
        return [self._counted(at, lambda row=row, at=at: measure(row, at)) for row, at in enumerate(configurations)]  # type: ignore[misc]

    def _counted(self, at: FrequencyConfiguration, measure: Callable[[], Found]) -> Found:
        for _ in range(_TRIES):
            self._clocks.set(at)
            found = measure()
            amiss = self._clocks.amiss()
            if not amiss:
                return found
        raise MeasurementError(f"meter: at {at}, {_TRIES} measurements one after the other do not count: {amiss}")

    def _issue(self, seconds: float) -> None:
        self._process.ask({"do": "issue", "calls": _HOST_CALLS, "order": [0] * _BURST, "timings": _ENDLESS, "seconds": seconds})

    def _issue_ms(self, calls: Sequence[Call]) -> float:
        made = [{"name": call.name} if isinstance(call, HostOp) else call.to_json() for call in calls]
        distinct = [one for place, one in enumerate(made) if one not in made[:place]]
        request = {
            "do": "issue", "calls": distinct, "order": [distinct.index(one) for one in made],
            "timings": self._patience.timings, "seconds": self._patience.kernel_s,
        }  # fmt: skip
        return float(self._process.ask(request)["ms"])


def _first(rails: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    return {rail: float(found[0]) for rail, found in rails.items()}


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, NDArray[np.float64]]:
    return {rail: np.array([row[rail] for row in rows]) for rail in rows[0]} if rows else {}
