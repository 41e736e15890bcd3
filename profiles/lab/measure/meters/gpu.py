# SPDX-License-Identifier: Apache-2.0
"""Meter of a GPU at set clocks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .....kernels.grid import FrequencyConfiguration
from .....kernels.network import Call, HostOp, KernelInvocation, Network
from ....errors import MeasurementError
from .cpu import CpuMeter, MeasuringWorker, TimingLimits, kernel_name
from .meter import KernelPower, NetworkGraphs
from .notes import CampaignNotes, category

_TRIES = 4
_LOOK = 5  # samples given up one after the other, after which it is looked whether any would count
_MOST = 100  # of them: more than any one clock that a board does not keep is measured at in a row
_HOST_CALLS = [{"name": "view"}]
_BURST = 32
_ENDLESS = 10_000_000

Found = TypeVar("Found")


class GpuClockSetter(Protocol):
    def set(self, configuration: FrequencyConfiguration) -> None:
        """Hold this configuration from now on, once any earlier fault has passed."""
        ...

    def amiss(self) -> str:
        """Reason to reject the present samples, or an empty string."""
        ...


class GpuMeter:
    """:class:`~jetdvfs.profiles.lab.measure.meters.meter.Meter` of a GPU. Rejected samples are measured again a few times.

    A configuration that the board cannot hold ends the campaign only if it is ``lowest``.
    """

    def __init__(
        self,
        torch: CpuMeter,
        process: MeasuringWorker,
        clocks: GpuClockSetter,
        patience: TimingLimits,
        lowest: FrequencyConfiguration,
        notebook: CampaignNotes,
    ) -> None:
        self._torch, self._process, self._clocks, self._patience = torch, process, clocks, patience
        self._lowest, self._notebook, self._in_a_row = lowest, notebook, 0
        self._no_rails: Mapping[str, float] = dict.fromkeys(torch.rails, math.nan)

    def kernel_times_ms(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> NDArray[np.float64]:
        return self._figures(configurations, lambda row, at: self._torch.kernel_times_ms([invocations[row]], [at])[0])

    def kernel_events(self, invocations: Sequence[KernelInvocation]) -> NDArray[np.float64]:
        return np.array([self._torch.events.get(call.signature, math.nan) for call in invocations])

    def kernel_powers(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration], issued: bool = False
    ) -> KernelPower:
        def one(row: int, at: FrequencyConfiguration) -> tuple[Mapping[str, float], tuple[float, float, float]]:
            call = invocations[row]
            rails: dict[str, list[float]] = {rail: [] for rail in self._no_rails}
            request = {"kernel": call.to_json(), **({} if issued else {"graph": True})}
            answer = self._torch.repeated(kernel_name(call), request, rails)
            rails_mw, period_ms = {rail: each[0] for rail, each in rails.items()}, float(answer["period_ms"])
            if answer.get("graph"):  # one launch of the host's for many
                return rails_mw, (period_ms, float(answer["gpu_ms"]), 0.0)
            gpu_ms = float(self._torch.kernel_times_ms([call], [at])[0])
            return rails_mw, (period_ms, gpu_ms, self._issue_ms([call]))

        found = self._each(configurations, one, (self._no_rails, (math.nan,) * 3))
        period_ms, gpu_ms, host_ms = np.array([times for _, times in found]).T
        return KernelPower(_columns([rails for rails, _ in found]), period_ms, gpu_ms, host_ms, in_stream=True)

    def host_time_ms(self, calls: Sequence[Call], configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        return self._figures(configurations, lambda row, at: self._issue_ms(calls))

    def host_rails_mw(self, configurations: Sequence[FrequencyConfiguration]) -> dict[str, NDArray[np.float64]]:
        def one(row: int, at: FrequencyConfiguration) -> Mapping[str, float]:
            self._issue(self._patience.lead_s)
            return self._torch.drawn_mw(lambda: self._issue(self._patience.power_s))[1]

        return _columns(self._each(configurations, one, self._no_rails))

    def idle_rails_mw(
        self, configurations: Sequence[FrequencyConfiguration], temperature_c: float | None = None
    ) -> dict[str, NDArray[np.float64]]:
        found = self._each(configurations, lambda row, at: _first(self._torch.idle_rails_mw([at])), self._no_rails)
        return _columns(found)

    def network_latency_ms(self, network: Network, configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        return self._figures(configurations, lambda row, at: self._torch.network_latency_ms(network, [at])[0])

    def network_rails_mw(
        self, network: Network, configurations: Sequence[FrequencyConfiguration]
    ) -> dict[str, NDArray[np.float64]]:
        def one(row: int, at: FrequencyConfiguration) -> Mapping[str, float]:
            return _first(self._torch.network_rails_mw(network, [at]))

        return _columns(self._each(configurations, one, self._no_rails))

    def network_graphs(self, network: Network, configurations: Sequence[FrequencyConfiguration]) -> NetworkGraphs:
        found = self._each(
            configurations, lambda row, at: self._torch.network_graph(network), (math.nan, math.nan, self._no_rails)
        )
        latency_ms, gpu_ms, rails = zip(*found, strict=True)
        return NetworkGraphs(np.array(latency_ms), np.array(gpu_ms), _columns(rails))

    def _figures(
        self, configurations: Sequence[FrequencyConfiguration], measure: Callable[[int, FrequencyConfiguration], float]
    ) -> NDArray[np.float64]:
        return np.array(self._each(configurations, measure, math.nan))

    def _each(
        self,
        configurations: Sequence[FrequencyConfiguration],
        measure: Callable[[int, FrequencyConfiguration], Found],
        nothing: Found,
    ) -> list[Found]:
        found = []
        for row, at in enumerate(configurations):
            taken: Found | None = self._counted(at, functools.partial(measure, row, at))
            found.append(nothing if taken is None else taken)
        return found

    def _counted(self, at: FrequencyConfiguration, measure: Callable[[], Found]) -> Found | None:
        amiss = ""
        for _ in range(1 if self._in_a_row else _TRIES):
            self._clocks.set(at)
            found = measure()
            amiss = self._clocks.amiss()
            if not amiss:
                self._in_a_row = 0
                return found
            self._notebook.open.tried_again[category(amiss)] += 1
        self._notebook.open.given_up[category(amiss)] += 1
        self._in_a_row += 1
        if self._in_a_row >= _MOST or (self._in_a_row % _LOOK == 0 and not self._counts_at_lowest()):
            raise MeasurementError(
                f"meter: {self._in_a_row} samples one after the other do not count, the last at {at}: {amiss}"
            )
        return None

    def _counts_at_lowest(self) -> bool:
        self._clocks.set(self._lowest)
        self._torch.idle_rails_mw([self._lowest])
        return not self._clocks.amiss()

    def _issue(self, seconds: float) -> None:
        self._process.ask({"do": "issue", "calls": _HOST_CALLS, "order": [0] * _BURST, "timings": _ENDLESS, "seconds": seconds})

    def _issue_ms(self, calls: Sequence[Call]) -> float:
        made = [{"name": call.name} if isinstance(call, HostOp) else call.to_json() for call in calls]
        distinct = [one for place, one in enumerate(made) if one not in made[:place]]
        request = {
            "do": "issue", "calls": distinct, "order": [distinct.index(one) for one in made],
            "timings": self._patience.timings, "seconds": self._patience.kernel_s,
        }  # fmt: skip
        names = dict.fromkeys(call.name if isinstance(call, HostOp) else kernel_name(call) for call in calls)
        answer = self._torch.asked(f"issuing {', '.join(names)}", request)
        return math.nan if answer is None else float(answer["ms"])


def _first(rails: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    return {rail: float(found[0]) for rail, found in rails.items()}


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, NDArray[np.float64]]:
    return {rail: np.array([row[rail] for row in rows]) for rail in rows[0]} if rows else {}
