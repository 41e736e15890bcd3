# SPDX-License-Identifier: Apache-2.0
"""Meter of a GPU at set clocks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .....kernels.grid import FrequencyConfiguration
from .....kernels.network import Call, HostOp, KernelInvocation, Network, TensorSpec
from ....errors import MeasurementError
from .cpu import CpuMeter, Found, MeasuringWorker, Rails, TimingLimits, kernel_name
from .meter import NetworkGraphs
from .notes import CampaignNotes, category
from .ticks import EnergyCounters

_TRIES = 4
_LOOK = 5  # samples given up one after the other, after which it is looked whether any would count
_MOST = 100  # of them: more than any one clock that a board does not keep is measured at in a row
_HOST_CALLS = [{"name": "view"}]
_BURST = 32
_ENDLESS = 10_000_000


class GpuClockSetter(Protocol):
    def set(self, configuration: FrequencyConfiguration) -> None:
        """Hold this configuration from now on, once any earlier fault has passed."""
        ...

    def amiss(self) -> str:
        """Reason to reject the present samples, or an empty string."""
        ...


class GpuMeter(CpuMeter):
    """:class:`~jetdvfs.profiles.lab.measure.meters.meter.Meter` of a GPU. Rejected samples are measured again a few times.

    A configuration that the board cannot hold ends the campaign only if it is ``lowest``.
    """

    in_stream, issuing = True, "issuing"

    def __init__(
        self,
        process: MeasuringWorker,
        models: Mapping[str, tuple[Path, Sequence[TensorSpec]]],
        counters: EnergyCounters,
        patience: TimingLimits,
        clocks: GpuClockSetter,
        lowest: FrequencyConfiguration,
        notebook: CampaignNotes,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(process, models, counters, patience, wait, clocks, notebook)
        self._held, self._lowest, self._in_a_row = clocks, lowest, 0

    def kernel_events(self, invocations: Sequence[KernelInvocation]) -> NDArray[np.float64]:
        return np.array([self.events.get(call.signature, math.nan) for call in invocations])

    def host_rails_mw(self, configurations: Sequence[FrequencyConfiguration]) -> dict[str, NDArray[np.float64]]:
        def one(row: int) -> Rails:
            self._issue(self._patience.lead_s)
            return self.drawn_mw(lambda: self._issue(self._patience.power_s))[1]

        return self._columns(self._each(configurations, one, self._no_rails))

    def idle_rails_mw(
        self, configurations: Sequence[FrequencyConfiguration], temperature_c: float | None = None
    ) -> dict[str, NDArray[np.float64]]:
        return self._columns(self._each(configurations, lambda row: self._idle_mw(), self._no_rails))

    def network_graphs(self, network: Network, configurations: Sequence[FrequencyConfiguration]) -> NetworkGraphs:
        found = self._each(configurations, lambda row: self._graph(network), (math.nan, math.nan, self._no_rails))
        latency_ms, gpu_ms, rails = zip(*found, strict=True)
        return NetworkGraphs(np.array(latency_ms), np.array(gpu_ms), self._columns(rails))

    def _graph(self, network: Network) -> tuple[float, float, Rails]:
        """Latency and GPU time in ms, and power of each rail in mW, of a CUDA graph; NaN if refused."""
        request, what = {**self._model(network), "execution": "graph"}, f"graph of {network.name}"
        answer = self.asked(what, {**request, "do": "network", **self._limits(self._patience.kernel_s)})
        if answer is None:
            return math.nan, math.nan, self._no_rails
        return float(answer["ms"]), float(answer["gpu_ms"]), self._repeated(what, request)[1]

    def _power(self, call: KernelInvocation, issued: bool) -> tuple[Rails, tuple[float, float, float]]:
        request = {"kernel": call.to_json(), **({} if issued else {"graph": True})}
        answer, rails_mw = self._repeated(kernel_name(call), request)
        period_ms = float(answer["period_ms"])
        if answer.get("graph"):  # one launch of the host's for many
            return rails_mw, (period_ms, float(answer["gpu_ms"]), 0.0)
        return rails_mw, (period_ms, self._kernel_ms(call), self._issue_ms([call]))

    def _taken(self, at: FrequencyConfiguration, measure: Callable[[], Found]) -> Found | None:
        amiss = ""
        for _ in range(1 if self._in_a_row else _TRIES):
            self._held.set(at)
            found = measure()
            amiss = self._held.amiss()
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
        self._held.set(self._lowest)
        self._idle_mw()
        return not self._held.amiss()

    def _issue(self, seconds: float) -> None:
        self._process.ask({"do": "issue", "calls": _HOST_CALLS, "order": [0] * _BURST, "timings": _ENDLESS, "seconds": seconds})

    def _issued(self, call: Call) -> dict[str, Any]:
        return {"name": call.name} if isinstance(call, HostOp) else call.to_json()
