# SPDX-License-Identifier: Apache-2.0
"""Meter of this processor, with PyTorch in its own process. Kernel time includes issuing."""

from __future__ import annotations

import functools
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

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
Found = TypeVar("Found")
Rails: TypeAlias = Mapping[str, float]


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

    in_stream, issuing = False, "calls"

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
        self._process, self._models, self._counters, self._clocks = process, models, counters, clocks
        self._patience, self._wait = patience, wait
        self._notebook, self._refused = notebook or CampaignNotes(), dict[str, str]()
        self._no_rails: Rails = dict.fromkeys(counters.rails, math.nan)
        self.ran: dict[str, list[str]] = {}
        self.events: dict[tuple[Any, ...], float] = {}
        self.event_us: float | None = None

    def kernel_times_ms(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> NDArray[np.float64]:
        return self._figures(configurations, lambda row: self._kernel_ms(invocations[row]))

    def kernel_powers(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration], issued: bool = False
    ) -> KernelPower:
        nothing = (self._no_rails, (math.nan, math.nan, math.nan))
        found = self._each(configurations, lambda row: self._power(invocations[row], issued), nothing)
        period_ms, gpu_ms, host_ms = np.array([times for _, times in found]).reshape(-1, 3).T
        return KernelPower(self._columns([rails for rails, _ in found]), period_ms, gpu_ms, host_ms, self.in_stream)

    def host_time_ms(self, calls: Sequence[Call], configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        return self._figures(configurations, lambda row: self._issue_ms(calls))

    def host_rails_mw(self, configurations: Sequence[FrequencyConfiguration]) -> dict[str, NDArray[np.float64]]:
        return self.idle_rails_mw(configurations)  # kernel power includes issuing

    def idle_rails_mw(
        self, configurations: Sequence[FrequencyConfiguration], temperature_c: float | None = None
    ) -> dict[str, NDArray[np.float64]]:
        distinct = list(dict.fromkeys(configurations))
        found = dict(zip(distinct, self._each(distinct, lambda row: self._idle_mw(), self._no_rails), strict=True))
        return self._columns([found[at] for at in configurations])

    def network_latency_ms(self, network: Network, configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        return self._figures(configurations, lambda row: self._network_ms(network))

    def network_rails_mw(
        self, network: Network, configurations: Sequence[FrequencyConfiguration]
    ) -> dict[str, NDArray[np.float64]]:
        what, some = f"network {network.name}", configurations if self._no_rails else ()
        return self._columns(self._each(some, lambda row: self._repeated(what, self._model(network))[1], self._no_rails))

    def _figures(
        self, configurations: Sequence[FrequencyConfiguration], measure: Callable[[int], float]
    ) -> NDArray[np.float64]:
        return np.array(self._each(configurations, measure, math.nan))

    def _each(
        self, configurations: Sequence[FrequencyConfiguration], measure: Callable[[int], Found], nothing: Found
    ) -> list[Found]:
        found = []
        for row, at in enumerate(configurations):
            taken: Found | None = self._taken(at, functools.partial(measure, row))
            found.append(nothing if taken is None else taken)
        return found

    def _taken(self, at: FrequencyConfiguration, measure: Callable[[], Found]) -> Found | None:
        if self._clocks is not None:
            self._clocks.set(at)
        return measure()

    def _columns(self, rows: Sequence[Rails]) -> dict[str, NDArray[np.float64]]:
        return {rail: np.array([row[rail] for row in rows]) for rail in self._no_rails}

    def _power(self, call: KernelInvocation, issued: bool) -> tuple[Rails, tuple[float, float, float]]:
        """Rail power in mW; period, GPU and host ms."""
        answer, rails_mw = self._repeated(kernel_name(call), {"kernel": call.to_json()})
        period_ms = float(answer["period_ms"])
        return rails_mw, (period_ms, period_ms, 0.0)

    def _issue_ms(self, calls: Sequence[Call]) -> float:
        made = [self._issued(call) for call in calls]
        distinct = [one for place, one in enumerate(made) if one not in made[:place]]
        request = {
            "do": "issue", "calls": distinct, "order": [distinct.index(one) for one in made],
            **self._limits(self._patience.kernel_s),
        }  # fmt: skip
        names = dict.fromkeys(call.name if isinstance(call, HostOp) else kernel_name(call) for call in calls)
        answer = self.asked(f"{self.issuing} {', '.join(names)}", request)
        return math.nan if answer is None else float(answer["ms"])

    def _issued(self, call: Call) -> dict[str, Any]:
        if not isinstance(call, HostOp):
            raise MeasurementError(
                f"meter: a processor issues {call.kind} by running it; only host calls are issued by themselves"
            )
        return {"name": call.name}

    def _network_ms(self, network: Network) -> float:
        what = f"network {network.name}"
        answer = self.asked(what, {**self._model(network), "do": "network", **self._limits(self._patience.network_s)})
        if answer is None:
            return math.nan
        self.ran[what] = answer["ran"]
        if "reference_ms" in answer:
            self._notebook.open.reference_ms.setdefault(network.name, []).append(float(answer["reference_ms"]))
        return float(answer["ms"])

    def _limits(self, seconds: float) -> dict[str, Any]:
        return {"timings": self._patience.timings, "seconds": seconds}

    def drawn_mw(self, run: Callable[[], Answer]) -> tuple[Answer, dict[str, float]]:
        """Answer of ``run``, and mean power of each rail meanwhile, in mW."""
        before, began = self._counters.read_uj(), time.monotonic()
        answer = run()
        took_s = max(time.monotonic() - began, 1e-9)
        return answer, {rail: energy_mj / took_s for rail, energy_mj in self._counters.since_mj(before).items()}

    def _idle_mw(self) -> Rails:
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

    def _repeated(self, what: str, request: Mapping[str, object]) -> tuple[dict[str, Any], Rails]:
        """Answer to repeating a request, and power of each rail in mW; NaN if refused."""
        lead = {**request, "do": "repeat", "seconds": self._patience.lead_s}  # operands are made, nothing is measured
        if self.asked(what, lead) is not None:
            again = {**request, "do": "repeat", "seconds": self._patience.power_s}
            answer, drawn_mw = self.drawn_mw(lambda: self.asked(what, again))
            if answer is not None:
                return answer, drawn_mw
        return {"period_ms": math.nan, "count": 0}, self._no_rails

    def _kernel_ms(self, call: KernelInvocation) -> float:
        request = {"do": "kernel", "kernel": call.to_json(), **self._limits(self._patience.kernel_s)}
        answer = self.asked(kernel_name(call), request)
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
