# SPDX-License-Identifier: Apache-2.0
"""A kernel's clock files in memory, with the write rules of 4.9 and of 5.10, and refusals on demand.

Written from the kernel's documentation, apart from the simulated board, so that drivers are held against two
independent readings of it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from jetdvfs.daemon.hardware.files import Files
from jetdvfs.profiles.board import load_board

XAVIER = load_board("agx-xavier")
CPU = "/sys/devices/system/cpu/cpufreq/policy0"
GPU = XAVIER.section("gpu")["devfreq"][0]
EMC = XAVIER.section("emc")["bpmp"]
CAP = XAVIER.section("emc")["cap"]
TREE = "/sys/firmware/devicetree/base"
INA = XAVIER.section("rails")["driver"]


class Killed(BaseException):
    """The process dies here, as by SIGKILL: nothing of ours runs afterwards."""


class FakeClock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Kernel(Files):
    """The files of an AGX Xavier; ``take`` is what another process writes, with the same rules."""

    def __init__(self, *, rules: str = "5.10", gpu_userspace: bool = True) -> None:
        self.written: list[tuple[str, str]] = []
        super().__init__("/", lambda path, value: self.written.append((path, value)))
        self.rules = rules
        self.refuse: Callable[[str, str], int] = lambda path, value: 0
        self.watch: Callable[[], None] = lambda: None
        self.measure: dict[str, str] = {}
        grid = XAVIER.grid
        cpu_levels, gpu_levels = " ".join(map(str, grid.cpu_khz)), " ".join(map(str, grid.gpu_hz))
        self.store = {
            "/proc/sys/kernel/random/boot_id": "boot-one\n",
            "/etc/nv_tegra_release": "# R35 (release), REVISION: 3.1, GCID: 1, BOARD: t186ref, EABI: aarch64\n",
            f"{TREE}/model": XAVIER.model + "\0",
            f"{TREE}/compatible": "\0".join(XAVIER.compatible) + "\0",
            f"{CPU}/affected_cpus": "0 1 2 3 4 5 6 7",
            f"{CPU}/scaling_available_governors": "conservative ondemand userspace powersave performance schedutil",
            f"{CPU}/scaling_available_frequencies": cpu_levels + " ",
            f"{CPU}/scaling_governor": "schedutil",
            f"{CPU}/scaling_min_freq": str(grid.cpu_khz[0]),
            f"{CPU}/scaling_max_freq": str(grid.cpu_khz[-1]),
            f"{CPU}/scaling_setspeed": "1190400",
            f"{CPU}/scaling_cur_freq": "1190400",
            f"{CPU}/cpuinfo_cur_freq": "1190400",
            f"{GPU}/available_governors": "nvhost_podgov " + ("userspace " if gpu_userspace else "") + "performance",
            f"{GPU}/available_frequencies": gpu_levels,
            f"{GPU}/governor": "nvhost_podgov",
            f"{GPU}/min_freq": str(grid.gpu_hz[0]),
            f"{GPU}/max_freq": str(grid.gpu_hz[-1]),
            f"{GPU}/cur_freq": str(grid.gpu_hz[2]),
            f"{GPU}/userspace/set_freq": "undefined",
            f"{EMC}/rate": str(grid.emc_hz[4]),
            f"{EMC}/pto_counter": str(grid.emc_hz[4]),
            f"{EMC}/min_rate": str(grid.emc_hz[0]),
            f"{EMC}/max_rate": str(grid.emc_hz[-1]),
            f"{EMC}/state": "1",
            f"{EMC}/mrq_rate_locked": "0",
            CAP: "0",
            "/sys/class/thermal/thermal_zone0/type": "CPU-therm",
            "/sys/class/thermal/thermal_zone0/temp": "41500",
            "/sys/class/thermal/thermal_zone1/type": "CV-therm",
            "/sys/class/thermal/thermal_zone1/temp": "-256000",
        }
        for number, monitor in enumerate(XAVIER.monitors):
            for channel, label in enumerate(monitor.channels, start=1):
                node = f"{INA}/{monitor.address}/hwmon/hwmon{7 - number}"
                self.store[f"{node}/in{channel}_label"] = label
                self.store[f"{node}/in{channel}_input"] = "19000"
                self.store[f"{node}/curr{channel}_input"] = str(10 * channel + 40 * number)

    # What the drivers use.

    def exists(self, path: str) -> bool:
        return self._hidden(path) is None and (path in self.store or any(one.startswith(path + "/") for one in self.store))

    def list_names(self, path: str) -> tuple[str, ...]:
        prefix = path.rstrip("/") + "/"
        names = {one[len(prefix) :].split("/")[0] for one in self.store if one.startswith(prefix)}
        return tuple(sorted(names, key=lambda name: (len(name), name)))

    def _read(self, path: str) -> bytes:
        if path not in self.store or self._hidden(path):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self._show(path).encode()

    def _write(self, path: str, line: bytes) -> int:
        value = line.decode().removesuffix("\n")
        number = self.refuse(path, value)
        if number:
            raise OSError(number, os.strerror(number))
        self.take(path, value)
        return len(line)

    # The kernel's side.

    def _hidden(self, path: str) -> str | None:
        return path if path.startswith(f"{GPU}/userspace") and self.store[f"{GPU}/governor"] != "userspace" else None

    def _show(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        if path in self.measure:
            return self.measure[path]
        if name == "scaling_setspeed" and self.store[f"{folder}/scaling_governor"] != "userspace":
            return "<unsupported>"
        if name in ("scaling_cur_freq", "cpuinfo_cur_freq", "scaling_setspeed"):
            return self._clamp(f"{folder}/scaling_cur_freq", f"{folder}/scaling_min_freq", f"{folder}/scaling_max_freq")
        if path == f"{GPU}/cur_freq":
            return self._clamp(f"{GPU}/cur_freq", f"{GPU}/min_freq", f"{GPU}/max_freq")
        return self.store[path]

    def _clamp(self, path: str, low: str, high: str) -> str:
        return str(min(max(int(self.store[path]), int(self.store[low])), int(self.store[high])))

    def take(self, path: str, value: str) -> None:
        """One write, by whomever."""
        if path not in self.store or self._hidden(path):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        store = self.store
        folder, _, name = path.rpartition("/")
        if name in ("scaling_governor", "governor"):
            offered = "available_governors" if folder == GPU else "scaling_available_governors"
            if value not in store[f"{folder}/{offered}"].split():
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            if folder == GPU and store[path] != value:
                store[f"{GPU}/userspace/set_freq"] = "undefined"
        elif not value.isdigit():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        elif name in ("scaling_min_freq", "min_freq", "scaling_max_freq", "max_freq"):
            self._limit(folder, name, int(value))
            return
        elif name == "scaling_setspeed":
            if store[f"{folder}/scaling_governor"] != "userspace":
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            store[f"{folder}/scaling_cur_freq"] = self._up(XAVIER.grid.cpu_khz, int(value))
        elif name == "set_freq":
            store[f"{GPU}/cur_freq"] = self._up(XAVIER.grid.gpu_hz, int(value))
        elif name == "rate":
            ceiling = min(int(store[f"{EMC}/max_rate"]), int(store[CAP]) or 1 << 60)
            value = store[f"{EMC}/pto_counter"] = str(min(int(self._up(XAVIER.grid.emc_hz, int(value))), ceiling))
        store[path] = value
        self.watch()

    def _limit(self, folder: str, name: str, value: int) -> None:
        prefix = name[: name.index("m")]
        low, high = f"{folder}/{prefix}min_freq", f"{folder}/{prefix}max_freq"
        table = XAVIER.grid.gpu_hz if folder == GPU else XAVIER.grid.cpu_khz
        now = {low: int(self.store[low]), high: int(self.store[high])}
        now[f"{folder}/{name}"] = min(max(value, table[0]), table[-1])
        if now[low] > now[high]:
            if self.rules == "4.9":
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            now[low] = now[high]
        self.store.update({path: str(limit) for path, limit in now.items()})
        self.watch()

    @staticmethod
    def _up(table: tuple[int, ...], value: int) -> str:
        return str(min((level for level in table if level >= value), default=table[-1]))
