# SPDX-License-Identifier: Apache-2.0
"""Meter of this processor, with PyTorch in its own process. Kernel time includes issuing."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from .....kernels.grid import FrequencyConfiguration, FrequencyGrid
from .....kernels.network import Call, HostOp, KernelInvocation, Network, TensorSpec
from ....board import ChipRates
from ....device import Device
from ....errors import MeasurementError, RefusedForNow, RequestRefused
from .meter import KernelPower
from .notes import CampaignNotes
from .ticks import EnergyCounters

KERNEL_WORKER = Path(__file__).with_name("kernel_worker.py")
DTYPES = ("float32",)
"""Measured element types; most processors emulate the rest."""

_UNKNOWN_HZ = 1_000_000_000  # where the system does not say: rates and clock are measured together, only their product counts
_MEMORY_HZ = 1_000_000_000
_CLOCKS = {
    "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq": r"([1-9]\d*)\d{3}\b",
    "proc/cpuinfo": r"cpu MHz\s*: ([1-9]\d*)",
}
_HOW = ("do", "seconds", "timings", "graph")  # members of a request that do not change its subject

Answer = TypeVar("Answer")


class TimingLimits(Struct, frozen=True):
    """Time per value in s, and its most timings; ``lead_s`` precedes power, since averaging monitors lag."""

    kernel_s: float = 0.3
    network_s: float = 2.0
    power_s: float = 1.0
    timings: int = 100
    power_timings: int = 3
    lead_s: float = 0.0


_PATIENCE = TimingLimits()


class MeasuringWorker(Protocol):
    """Runs kernels and networks: :class:`~jetdvfs.profiles.adapt.torch_process.TorchProcess` or a simulated board."""

    @property
    def about(self) -> Mapping[str, Any]:
        """Description, with the ``kinds`` of kernels that it runs."""
        ...

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer to a request of :mod:`.kernel_worker`. Raises RequestRefused, or MeasurementError if the worker ended."""
        ...


class CpuClockSetter(Protocol):
    def set(self, configuration: FrequencyConfiguration) -> None: ...


class UnlockedClocks:
    def set(self, configuration: FrequencyConfiguration) -> None:
        """Do nothing."""


def processor_hz(root: Path = Path("/")) -> int:
    """Top clock of cpufreq, else the present one, in Hz."""
    for path, form in _CLOCKS.items():
        with suppress(OSError):
            if found := re.search(form, (root / path).read_text(encoding="utf-8", errors="replace")):
                return int(found[1]) * 1_000_000
    return _UNKNOWN_HZ


def processor(process: MeasuringWorker, counters: EnergyCounters, name: str = "cpu", clocks_mhz: Sequence[int] = ()) -> Device:
    """This machine's processor, with measured rates at its highest set clock."""
    rates = process.ask({"do": "rates"})
    levels = tuple(mhz * 1_000_000 for mhz in sorted(set(clocks_mhz))) or (processor_hz(),)
    hz = levels[-1]
    grid = FrequencyGrid((hz // 1000,), levels, (_MEMORY_HZ,))
    flops, moved = float(rates["flops_per_s"]), float(rates["bytes_per_s"])
    return Device(name, grid, ChipRates({"float32": flops / hz}, moved / _MEMORY_HZ), counters.rails, ())


class CpuMeter:
    """:class:`~jetdvfs.profiles.lab.measure.meters.meter.Meter` of this machine's processor.

    Args:
        models: files of the networks measured as a whole, by name.
        clocks: set before each measurement; None leaves clocks alone.
        notebook: of refused requests; their values are NaN.
    """

    def __init__(
        self,
        process: MeasuringWorker,
        models: Mapping[str, tuple[Path, Sequence[TensorSpec]]],
        counters: EnergyCounters,
        patience: TimingLimits = _PATIENCE,
        wait: Callable[[float], None] = time.sleep,
        clocks: CpuClockSetter | None = None,
        notebook: CampaignNotes | None = None,
    ) -> None:
        self._process, self._models, self._counters, self._clocks = process, models, counters, clocks or UnlockedClocks()
        self._patience, self._wait = patience, wait
        self._notebook, self._refused = notebook or CampaignNotes(), dict[str, str]()
        self.ran: dict[str, list[str]] = {}
        self.events: dict[tuple[Any, ...], float] = {}
        self.event_us: float | None = None

    @property
    def rails(self) -> tuple[str, ...]:
        return self._counters.rails

    def kernel_times_ms(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> NDArray[np.float64]:
        found = []
        for call, at in zip(invocations, configurations, strict=True):
            self._clocks.set(at)
            found.append(self._kernel_ms(call))
        return np.array(found)

    def kernel_powers(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration], issued: bool = False
    ) -> KernelPower:
        rails: dict[str, list[float]] = {rail: [] for rail in self._counters.rails}
        period_ms = []
        for call, at in zip(invocations, configurations, strict=True):
            self._clocks.set(at)
            period_ms.append(float(self.repeated(kernel_name(call), {"kernel": call.to_json()}, rails)["period_ms"]))
        period = np.array(period_ms)
        return KernelPower(_arrays(rails), period, period, np.zeros(len(period)))

    def host_time_ms(self, calls: Sequence[Call], configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        distinct = list(dict.fromkeys(_host_name(call) for call in calls))
        request = {
            "do": "issue",
            "calls": [{"name": name} for name in distinct],
            "order": [distinct.index(_host_name(call)) for call in calls],
            "timings": self._patience.timings,
            "seconds": self._patience.kernel_s,
        }
        found = []
        for at in configurations:
            self._clocks.set(at)
            answer = self.asked(f"calls {', '.join(distinct)}", request)
            found.append(math.nan if answer is None else float(answer["ms"]))
        return np.array(found)

    def host_rails_mw(self, configurations: Sequence[FrequencyConfiguration]) -> dict[str, NDArray[np.float64]]:
        return self.idle_rails_mw(configurations)  # kernel power includes issuing

    def idle_rails_mw(
        self, configurations: Sequence[FrequencyConfiguration], temperature_c: float | None = None
    ) -> dict[str, NDArray[np.float64]]:
        found = {at: self._idle_mw(at) for at in dict.fromkeys(configurations)}
        return {rail: np.array([found[at][rail] for at in configurations]) for rail in self._counters.rails}

    def network_latency_ms(self, network: Network, configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        request = {
            **self._model(network),
            "do": "network",
            "timings": self._patience.timings,
            "seconds": self._patience.network_s,
        }
        found = []
        for at in configurations:
            self._clocks.set(at)
            answer = self.asked(f"network {network.name}", request)
            if answer is None:
                found.append(math.nan)
                continue
            self.ran[f"network {network.name}"] = answer["ran"]
            if "reference_ms" in answer:
                self._notebook.open.reference_ms.setdefault(network.name, []).append(float(answer["reference_ms"]))
            found.append(float(answer["ms"]))
        return np.array(found)

    def network_graph(self, network: Network) -> tuple[float, float, dict[str, float]]:
        """Latency and GPU time in ms, and power of each rail in mW, of a CUDA graph at the present clocks; NaN if refused."""
        request, what = {**self._model(network), "execution": "graph"}, f"graph of {network.name}"
        limits = {"timings": self._patience.timings, "seconds": self._patience.kernel_s}
        answer = self.asked(what, {**request, "do": "network", **limits})
        if answer is None:
            return math.nan, math.nan, dict.fromkeys(self.rails, math.nan)
        rails: dict[str, list[float]] = {rail: [] for rail in self.rails}
        self.repeated(what, request, rails)
        return float(answer["ms"]), float(answer["gpu_ms"]), {rail: each[0] for rail, each in rails.items()}

    def network_rails_mw(
        self, network: Network, configurations: Sequence[FrequencyConfiguration]
    ) -> dict[str, NDArray[np.float64]]:
        rails: dict[str, list[float]] = {rail: [] for rail in self._counters.rails}
        for at in configurations if rails else ():
            self._clocks.set(at)
            self.repeated(f"network {network.name}", self._model(network), rails)
        return _arrays(rails)

    def drawn_mw(self, run: Callable[[], Answer]) -> tuple[Answer, dict[str, float]]:
        """Answer of ``run``, and mean power of each rail meanwhile, in mW."""
        before, began = self._counters.read_uj(), time.monotonic()
        answer = run()
        took_s = max(time.monotonic() - began, 1e-9)
        return answer, {rail: energy_mj / took_s for rail, energy_mj in self._counters.since_mj(before).items()}

    def _idle_mw(self, at: FrequencyConfiguration) -> dict[str, float]:
        self._clocks.set(at)
        if self._patience.lead_s:
            self._wait(self._patience.lead_s)
        return self.drawn_mw(lambda: self._wait(self._patience.power_s))[1]

    def asked(self, what: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Answer of the worker; None if refused, now or earlier."""
        identity = json.dumps({name: value for name, value in request.items() if name not in _HOW}, sort_keys=True)
        if identity not in self._refused:
            try:
                return self._process.ask(request)
            except RequestRefused as refused:
                reason = str(refused)
                for path, _ in self._models.values():
                    reason = reason.replace(str(path), path.name)
                reason = reason.removeprefix("meter: ")
                if not isinstance(refused, RefusedForNow):
                    self._refused[identity] = reason
        else:
            reason = self._refused[identity]
        self._notebook.open.refused[what] = reason
        return None

    def repeated(self, what: str, request: Mapping[str, object], rails: Mapping[str, list[float]]) -> dict[str, Any]:
        """Answer to repeating a request, NaN if refused; extends ``rails`` in mW."""
        nothing = {"period_ms": math.nan, "count": 0}
        lead = {**request, "do": "repeat", "seconds": self._patience.lead_s}  # operands are made, nothing is measured
        answer: dict[str, Any] | None = None
        drawn_mw = dict.fromkeys(rails, math.nan)
        if self.asked(what, lead) is not None:
            again = {**request, "do": "repeat", "seconds": self._patience.power_s}
            answer, drawn_mw = self.drawn_mw(lambda: self.asked(what, again))
        for rail, power_mw in drawn_mw.items():
            rails[rail].append(math.nan if answer is None else power_mw)
        return nothing if answer is None else answer

    def _kernel_ms(self, call: KernelInvocation) -> float:
        limits = {"timings": self._patience.timings, "seconds": self._patience.kernel_s}
        answer = self.asked(kernel_name(call), {"do": "kernel", "kernel": call.to_json(), **limits})
        if answer is None:
            return math.nan
        self.event_us = answer.get("event_us", self.event_us)
        known = self.ran.setdefault(call.kind, [])
        known += [name for name in answer["ran"] if name not in known]
        self.events[call.signature] = answer.get("events", math.nan)
        return float(answer["ms"])

    def _model(self, network: Network) -> dict[str, object]:
        if network.name not in self._models:
            raise MeasurementError(f"meter: no model file of network {network.name!r}; there are: {', '.join(self._models)}")
        path, inputs = self._models[network.name]
        return {"path": str(path), "inputs": [spec.to_json() for spec in inputs], "execution": "eager"}


def kernel_name(call: KernelInvocation) -> str:
    weight = call.params.get("weight")
    operands = [*call.inputs, *([weight] if isinstance(weight, (list, tuple)) else [])]
    sizes = ["x".join(map(str, shape)) for shape in (*operands, call.output)]
    return f"{call.kind} {' '.join(sizes[:-1])} -> {sizes[-1]} {call.dtype}"


def _host_name(call: Call) -> str:
    if not isinstance(call, HostOp):
        raise MeasurementError(f"meter: a processor issues {call.kind} by running it; only host calls are issued by themselves")
    return call.name


def _arrays(rails: Mapping[str, list[float]]) -> dict[str, NDArray[np.float64]]:
    return {rail: np.array(found) for rail, found in rails.items()}
