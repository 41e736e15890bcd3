# SPDX-License-Identifier: Apache-2.0
"""What stands in for NVIDIA's management library where there is no GPU: energy at 50 W, clocks as they are locked."""

from __future__ import annotations

import time

from msgspec import Struct, field

POWER_W = 50.0


class NVMLError(Exception):
    """What the library raises."""


class StandInNvml(Struct):
    """One GPU.

    Attributes:
        energy: whether it counts energy.
        may_lock: whether its clocks may be locked.
        fails_after: how often its clocks are locked before the GPU is lost.
        told: what was done to its clocks, in order.
    """

    energy: bool = True
    may_lock: bool = True
    fails_after: int = 1_000_000
    told: list[str] = field(default_factory=list)

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    clock_mhz: int = 1800

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None:
        self.told.append("shut down")

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> str:
        if index:
            raise NVMLError("Invalid Argument")
        return "gpu"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str, /) -> int:
        if not self.energy:
            raise NVMLError("Not Supported")
        if sum(one.startswith("locked") for one in self.told) > self.fails_after:
            raise NVMLError("GPU is lost")
        return int(1e3 * POWER_W * time.monotonic())

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int, /) -> int:
        return self.clock_mhz if clock == self.NVML_CLOCK_SM else 9501

    def nvmlDeviceGetSupportedMemoryClocks(self, handle: str, /) -> list[int]:
        return [9501, 810]

    def nvmlDeviceGetSupportedGraphicsClocks(self, handle: str, memory_mhz: int, /) -> list[int]:
        return [2100, 1800, 1200, 600]

    def nvmlDeviceSetGpuLockedClocks(self, handle: str, low_mhz: int, high_mhz: int, /) -> None:
        if not self.may_lock:
            raise NVMLError("Insufficient Permissions")
        self.clock_mhz = high_mhz
        self.told.append(f"locked {high_mhz}")

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.1"

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str, /) -> int:
        raise NVMLError("Not Supported")

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int, /) -> int:
        return 41

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str, /) -> int:
        return 0x4

    def nvmlDeviceResetGpuLockedClocks(self, handle: str, /) -> None:
        self.clock_mhz = 1800
        self.told.append("given back")
