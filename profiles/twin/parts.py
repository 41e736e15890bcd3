# SPDX-License-Identifier: Apache-2.0
"""Parts of a board by its description."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from ..board import BoardDescription, PowerMode
from .faults import Faults
from .tree.attributes import Attribute, Nodes
from .tree.clocks.clock import SimulatedClock, TransitionCost
from .tree.clocks.cpufreq import SimulatedCores, SimulatedCpuPolicy, SimulatedCpuPolicy49
from .tree.clocks.devfreq import FurtherDevfreq, PowerGate, SimulatedGpu, SimulatedGpu49
from .tree.clocks.emc import SimulatedMemoryClock, bpmp_files, bwmgr_devfreq, clock_cap, iso_cap, override_files
from .tree.sensors.fan import SimulatedFan
from .tree.sensors.monitors import RailLedger, SimulatedPowerMonitor, iio_files, ina238_files, ina3221_files
from .tree.sensors.overcurrent import OverCurrent
from .tree.sensors.thermal import SimulatedZone, ThermalModel
from .tree.sensors.throttle import Slowdown, Throttle

LEGACY_KERNEL = "4.9"


class BoardParts(Struct, frozen=True):
    """Makes the parts of one board; ``desktop`` is True if one has used the GPU since boot."""

    description: BoardDescription
    mode: PowerMode
    desktop: bool
    now: Callable[[], float]
    random: np.random.Generator
    faults: Faults

    @property
    def legacy(self) -> bool:
        """True under JetPack 4's kernel."""
        return self.description.kernel == LEGACY_KERNEL

    @property
    def twin(self) -> Mapping[str, Any]:
        return self.description.section("twin")

    def clock(self, name: str, rates: Sequence[int], rate: int) -> SimulatedClock:
        transition = TransitionCost.of(self.twin["transitions"][name])
        return SimulatedClock(name, tuple(rates), rate, transition, self.now, self.random, self.faults)

    def cores(self) -> SimulatedCores:
        """Cores; a mode keeps the first ones in policy order online."""
        cores = SimulatedCores(self.description.cores, self.description.section("cpu")["idle_states"])
        if self.mode.cores is not None:
            order = [cpu for policy in self.description.cpu_policies for cpu in policy.cpus]
            for cpu in order[self.mode.cores :]:
                cores.online[cpu] = False
        return cores

    def policies(self, cores: SimulatedCores) -> tuple[SimulatedCpuPolicy, ...]:
        cpu, rates = self.description.section("cpu"), self.description.grid.cpu_khz
        kind = SimulatedCpuPolicy49 if self.legacy else SimulatedCpuPolicy
        low, high = min(int(cpu["boot"]["min_khz"]), rates[-1]), min(int(cpu["boot"]["max_khz"]), rates[-1])
        if self.mode.cpu_khz is not None:
            high = max([rate for rate in rates if rate <= self.mode.cpu_khz], default=rates[0])
            low = min(low, high)
        return tuple(
            kind(
                policy.name,
                policy.cpus,
                self.clock("cpu", rates, low),
                cores,
                cpu["governors"],
                str(cpu["governor"]),
                (low, high),
                str(self.twin.get("cpufreq_driver", "tegra194")),
            )
            for policy in self.description.cpu_policies
        )

    def gpu(self) -> SimulatedGpu:
        section, rates = self.description.section("gpu"), self.description.grid.gpu_hz
        delay_s = section["attributes"].get("railgate_delay", 500) / 1e3
        gate = PowerGate(self.now, works=bool(self.twin.get("gates")), used=self.desktop, delay_s=delay_s)
        kind = SimulatedGpu49 if self.legacy else SimulatedGpu
        gpu = kind(self.clock("gpu", rates, rates[0]), section, self.mode.masks, gate)
        if self.mode.gpu_hz is not None:
            gpu.limit(max([rate for rate in rates if rate <= self.mode.gpu_hz], default=rates[0]))
        return gpu

    def other_devices(self, gate: PowerGate) -> Iterator[FurtherDevfreq]:
        for device in self.twin.get("other_devices", ()):
            rates = tuple(range(*device["rates"]))
            section = {**self.description.section("gpu"), "attributes": {}, **device}
            yield FurtherDevfreq(self.clock("gpu", rates, rates[0]), section, {}, gate)

    def memory(self) -> SimulatedMemoryClock:
        rates, floors = self.description.grid.emc_hz, self.description.section("cpu").get("emc_floors", ())
        memory = SimulatedMemoryClock(
            self.clock("emc", rates, rates[0]),
            sorted(((int(khz), int(hz)) for khz, hz in floors), reverse=True),
            self.description.chip.bytes_per_emc_cycle,
        )
        if self.mode.emc_hz is not None:
            memory.cap = self.mode.emc_hz
        return memory

    def memory_files(self, memory: SimulatedMemoryClock) -> Nodes:
        section = self.description.section("emc")
        ways: Sequence[str] = section["drivers"]
        if "bpmp" in ways:
            yield from bpmp_files(memory, section, float(self.twin.get("bpmp_read_ms", 0.0)) / 1e3)
        if "override" in ways:
            yield from override_files(memory, section)
        if "devfreq" in ways:
            yield from bwmgr_devfreq(memory, str(section["devfreq"]))
        if "cap" in section:
            rounds = str(section["cap"]).startswith("/sys/kernel/nvpmodel_clk_cap/")
            boot_hz = None if self.twin.get("power_hints", True) else int(self.twin["boot_cap_hz"])
            yield from clock_cap(memory, section["cap"], boot_hz) if rounds else iso_cap(memory, section["cap"])
        if "activity" in section:
            yield section["activity"][0], Attribute(lambda: memory.activity_khz)

    def monitors(self, rails: RailLedger) -> Nodes:
        section = self.description.section("rails")
        driver = str(section["driver"])
        for number, monitor in enumerate(self.description.monitors):
            sensor = SimulatedPowerMonitor(
                monitor.channels,
                monitor.shunt_uohm,
                int(section["bus_mv"]),
                rails,
                self.random,
                self.faults,
                int(self.twin.get("samples", 1)),
                self.now,
            )
            device = f"{section['bus']}/{monitor.address}"
            if self.legacy:
                yield from iio_files(sensor, device, f"iio:device{number}", driver)
            elif monitor.chip == "ina238":
                yield from ina238_files(sensor, device, monitor.hwmon, driver)
            else:
                yield from ina3221_files(sensor, device, monitor.hwmon, driver, self.twin.get("current_limits_ma", {}))

    def fan(self) -> SimulatedFan:
        thermal = self.twin["thermal"]
        return SimulatedFan(
            int(thermal["fan_pwm"]), [(float(degrees), int(pwm)) for degrees, pwm in thermal.get("fan_curve", ())]
        )

    @property
    def ambient_c(self) -> float:
        return float(self.twin["thermal"]["ambient_c"])

    def thermal(self, rails: Sequence[str], idle_w: Sequence[float], fan: SimulatedFan, gpu: SimulatedGpu) -> ThermalModel:
        section, twin = self.description.section("thermal"), self.twin["thermal"]
        zones = [
            SimulatedZone(name, tuple(section["trips_mc"].get(name, ())), **twin["zones"][name]) for name in section["zones"]
        ]
        heating = self.description.total_rails
        return ThermalModel(twin, zones, rails, idle_w, fan.pwm, heating, lambda: gpu.gate.gated, lambda: self.faults.fever_c)

    def slowdown(
        self,
        policies: Sequence[SimulatedCpuPolicy],
        gpu: SimulatedGpu,
        thermal: ThermalModel,
        over_current: OverCurrent | None,
        fan: SimulatedFan,
    ) -> Slowdown:
        throttle = Throttle(thermal, policies, gpu, float(self.twin["thermal"].get("hardware_c", math.inf)))
        return Slowdown(policies, gpu, thermal, throttle, over_current, fan, self.faults, self.now())

    def over_current(self, gpu: SimulatedGpu, node: int) -> OverCurrent | None:
        section, twin = self.description.section("throttling"), self.twin.get("over_current")
        if twin is None or "events" not in section:
            return None
        # Separate from the board's other random numbers, which events must not shift.
        random = np.random.default_rng([0x0C, node])
        return OverCurrent(section, twin, self.now, lambda: gpu.clock.settled, random)
