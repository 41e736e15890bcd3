# SPDX-License-Identifier: Apache-2.0
"""Meter of a workstation's GPU by NVML.

Locking clocks needs root. Functions and units: NVML API reference, "Device Queries" and "Device Commands".
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from .....kernels.grid import FrequencyConfiguration, FrequencyGrid
from .....kernels.text import needing
from ....board import ChipRates
from ....device import Device
from ....errors import MeasurementError
from .cpu import MeasuringWorker, processor_hz
from .notes import CampaignNotes

RAIL = "gpu"
_MHZ = 1_000_000
#: Bits of clock event reasons, by nvml.h.
REASONS = {
    0x1: "idle", 0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
_RATED = ("float16", "bfloat16", "int8")

Found = TypeVar("Found")


class NvmlLibrary(Protocol):
    """Used part of the Python package ``pynvml`` (nvidia-ml-py)."""

    NVML_CLOCK_SM: int
    NVML_CLOCK_MEM: int

    @property
    def NVMLError(self) -> type[Exception]: ...

    def nvmlInit(self) -> Any: ...

    def nvmlShutdown(self) -> Any: ...

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> Any: ...

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, /) -> int:
        """Energy in mJ since the driver was loaded."""
        ...

    def nvmlDeviceGetClockInfo(self, handle: Any, clock: int, /) -> int:
        """Clock in MHz."""
        ...

    def nvmlDeviceGetSupportedMemoryClocks(self, handle: Any, /) -> Sequence[int]: ...

    def nvmlDeviceGetSupportedGraphicsClocks(self, handle: Any, memory_mhz: int, /) -> Sequence[int]: ...

    def nvmlDeviceSetGpuLockedClocks(self, handle: Any, low_mhz: int, high_mhz: int, /) -> Any: ...

    def nvmlDeviceResetGpuLockedClocks(self, handle: Any, /) -> Any: ...

    def nvmlSystemGetDriverVersion(self) -> str | bytes: ...

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, /) -> int: ...

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int, /) -> int:
        """Degrees Celsius; sensor 0 is the die."""
        ...

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, /) -> int: ...


def installed_library() -> NvmlLibrary:
    """Package ``pynvml``. Raises MeasurementError if not installed."""
    with needing("meter: NVML", "nvml", MeasurementError):
        import pynvml
    library: NvmlLibrary = pynvml
    return library


class Nvml:
    """Energy and clocks of one GPU; closing releases locked clocks. Raises MeasurementError, also before Volta."""

    rails = (RAIL,)

    def __init__(self, library: NvmlLibrary, index: int = 0) -> None:
        self._library, self._locked_mhz, self._index = library, 0, index
        self._ask("starting", library.nvmlInit)
        try:
            self._handle = self._ask(f"GPU {index}", lambda: library.nvmlDeviceGetHandleByIndex(index))
            self.read_uj()
        except MeasurementError:
            library.nvmlShutdown()
            raise

    def read_uj(self) -> dict[str, int]:
        energy_mj = self._ask("energy", lambda: self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        return {RAIL: 1000 * energy_mj}

    def since_mj(self, before: Mapping[str, int]) -> dict[str, float]:
        return {RAIL: (self.read_uj()[RAIL] - before[RAIL]) / 1e3}

    def clocks_mhz(self) -> tuple[int, int]:
        library, handle = self._library, self._handle
        gpu = self._ask("clocks", lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM))
        return gpu, self._ask("clocks", lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM))

    def described(self) -> dict[str, Any]:
        library, found = self._library, dict[str, Any]()
        with contextlib.suppress(library.NVMLError):
            driver = library.nvmlSystemGetDriverVersion()
            found["driver"] = driver.decode() if isinstance(driver, bytes) else driver
        with contextlib.suppress(library.NVMLError):
            found["power_limit_mw"] = library.nvmlDeviceGetEnforcedPowerLimit(self._handle)
        return found

    def die_c(self) -> float | None:
        with contextlib.suppress(self._library.NVMLError):
            return float(self._library.nvmlDeviceGetTemperature(self._handle, 0))
        return None

    def clock_reasons(self) -> list[str]:
        """Reasons for the present clock; empty if unknown."""
        with contextlib.suppress(self._library.NVMLError, AttributeError):
            bits = self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
            return [reason for bit, reason in REASONS.items() if bits & bit]
        return []

    def check_offered(self, wanted_mhz: Sequence[int]) -> None:
        """Raise MeasurementError unless the GPU has all of these clocks."""
        library, handle = self._library, self._handle
        memory = max(self._ask("memory clocks", lambda: library.nvmlDeviceGetSupportedMemoryClocks(handle)))
        offered = set(self._ask("clocks", lambda: library.nvmlDeviceGetSupportedGraphicsClocks(handle, memory)))
        if strange := [mhz for mhz in wanted_mhz if mhz not in offered]:
            near = sorted(offered, key=lambda mhz: abs(mhz - strange[0]))[:3]
            raise MeasurementError(f"meter: GPU {self._index} has no clock of {strange[0]} MHz; the nearest: {sorted(near)}")

    def lock(self, mhz: int) -> None:
        if mhz != self._locked_mhz:
            self._ask(f"locking {mhz} MHz", lambda: self._library.nvmlDeviceSetGpuLockedClocks(self._handle, mhz, mhz))
            self._locked_mhz = mhz

    def close(self) -> None:
        if self._handle is None:
            return
        with contextlib.suppress(self._library.NVMLError):
            if self._locked_mhz:
                self._library.nvmlDeviceResetGpuLockedClocks(self._handle)
            self._library.nvmlShutdown()
        self._handle = None

    def _ask(self, what: str, question: Callable[[], Found]) -> Found:
        try:
            return question()
        except self._library.NVMLError as error:
            raise MeasurementError(f"meter: NVML, {what}: {error}") from error


def gpu_device(process: MeasuringWorker, nvml: Nvml, name: str, clocks_mhz: Sequence[int] = ()) -> Device:
    """GPU with measured rates, at its clock or the highest to be locked."""
    if clocks_mhz:
        nvml.check_offered(clocks_mhz)
        nvml.lock(max(clocks_mhz))
    rates = process.ask({"do": "rates"})
    gpu_mhz, memory_mhz = nvml.clocks_mhz()  # while it is still warm
    levels = tuple(mhz * _MHZ for mhz in sorted(set(clocks_mhz)) or [gpu_mhz])
    grid = FrequencyGrid((processor_hz() // 1000,), levels, (memory_mhz * _MHZ,))
    flops = {"float32": float(rates["flops_per_s"])}
    by_type = rates.get("flops_per_s_of", {})
    flops.update({name: float(by_type[name]) for name in _RATED if name in by_type})
    if process.about.get("cudnn_tf32") and "tf32" in by_type:  # convolutions in single precision then take it
        flops["tf32"] = float(by_type["tf32"])
    per_cycle = {name: rate / levels[-1] for name, rate in flops.items()}
    chip = ChipRates(per_cycle, float(rates["bytes_per_s"]) / (memory_mhz * _MHZ))
    return Device(name, grid, chip, nvml.rails, (), own_memory=True)


class LockedClocks:
    """Clocks of a workstation's GPU for :class:`~.gpu.GpuMeter`; ``notebook`` receives die temperatures."""

    def __init__(self, nvml: Nvml, locking: bool, notebook: CampaignNotes) -> None:
        self._nvml, self._locking, self._notebook = nvml, locking, notebook
        self.seen_mhz: set[int] = set()
        self.reasons: Counter[str] = Counter()

    def set(self, configuration: FrequencyConfiguration) -> None:
        if self._locking:
            self._nvml.lock(configuration.gpu_hz // _MHZ)

    def amiss(self) -> str:
        self.seen_mhz.add(self._nvml.clocks_mhz()[0])
        self.reasons.update(self._nvml.clock_reasons())
        if (die_c := self._nvml.die_c()) is not None:
            self._notebook.open.die_c.append(die_c)
        return ""
