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
from jetdvfs.profiles.board import BoardDescription, load_board

XAVIER = load_board("agx-xavier")
CPU = "/sys/devices/system/cpu/cpufreq/policy0"
GPU = XAVIER.section("gpu")["devfreq"][0]
EMC = XAVIER.section("emc")["bpmp"]
CAP = XAVIER.section("emc")["cap"]
TREE = "/sys/firmware/devicetree/base"
INA = XAVIER.section("rails")["driver"]
CPUFREQ = "/sys/devices/system/cpu/cpufreq"


BOOT_ONE, BOOT_TWO = "11111111-2222-4333-8444-555555555555", "99999999-2222-4333-8444-555555555555"


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
    """The files of a board, by default an AGX Xavier; ``take`` is what another process writes, with the same rules.

    Args:
        rules: of kernel 4.9, which refuses limits in the wrong order and has no hwmon for its power monitors, or 5.10.
        emc: the ways to the memory clock that this system has.
        longest_s: how long a file may take to answer; ``hold_up`` is called with every one, and ``=`` where it is written.
    """

    def __init__(
        self,
        board: BoardDescription = XAVIER,
        *,
        rules: str = "5.10",
        gpu_userspace: bool = True,
        emc: tuple[str, ...] | None = None,
        longest_s: float | None = None,
    ) -> None:
        self.written: list[tuple[str, str]] = []
        self.hold_up: Callable[[str], None] = lambda path: None
        super().__init__("/", lambda path, value: self.written.append((path, value)), longest_s, FakeClock())
        self.board = board
        self.rules = rules
        self.refuse: Callable[[str, str], int] = lambda path, value: 0
        self.watch: Callable[[], None] = lambda: None
        self.measure: dict[str, str] = {}
        self.gpu = board.section("gpu")["devfreq"][0]
        self.emc = board.section("emc")
        self.ways = tuple(self.emc["drivers"]) if emc is None else emc
        release, _, revision = board.l4t.partition(".")
        self.store = {
            "/proc/sys/kernel/random/boot_id": f"{BOOT_ONE}\n",
            "/etc/nv_tegra_release": f"# R{release} (release), REVISION: {revision}, GCID: 1, BOARD: t186ref, EABI: aarch64\n",
            f"{TREE}/model": board.model + "\0",
            f"{TREE}/compatible": "\0".join(board.compatible) + "\0",
            "/sys/class/thermal/thermal_zone0/type": "CPU-therm",
            "/sys/class/thermal/thermal_zone0/temp": "41500",
            "/sys/class/thermal/thermal_zone1/type": "CV-therm",
            "/sys/class/thermal/thermal_zone1/temp": "-256000",
        }
        for policy in board.cpu_policies:
            self._add_policy(f"{CPUFREQ}/{policy.name}", " ".join(map(str, policy.cpus)))
        self._add_gpu(gpu_userspace)
        for way in self.ways:
            getattr(self, f"_add_{way}")()
        for cap in self.emc.get("caps", [self.emc["cap"]] if "cap" in self.emc else []):
            if "cap" in self.ways or "cap" not in self.emc["drivers"]:
                self.store.setdefault(cap, "0")
        for number, monitor in enumerate(board.monitors):
            self._add_monitor(number, monitor.address, monitor.channels, monitor.chip)

    def _add_policy(self, folder: str, cpus: str) -> None:
        levels = self.board.grid.cpu_khz
        now = str(levels[len(levels) // 2])
        self.store |= {
            f"{folder}/affected_cpus": cpus,
            f"{folder}/related_cpus": cpus,
            f"{folder}/scaling_available_governors": "conservative ondemand userspace powersave performance schedutil",
            f"{folder}/scaling_available_frequencies": " ".join(map(str, levels)) + " ",
            f"{folder}/scaling_governor": "schedutil",
            f"{folder}/scaling_min_freq": str(levels[0]),
            f"{folder}/scaling_max_freq": str(levels[-1]),
            f"{folder}/scaling_setspeed": now,
            f"{folder}/scaling_cur_freq": now,
            f"{folder}/cpuinfo_cur_freq": now,
        }

    def _add_gpu(self, userspace: bool) -> None:
        levels = self.board.grid.gpu_hz
        self.store |= {
            f"{self.gpu}/available_governors": "nvhost_podgov " + ("userspace " if userspace else "") + "performance",
            f"{self.gpu}/available_frequencies": " ".join(map(str, levels)),
            f"{self.gpu}/governor": "nvhost_podgov",
            f"{self.gpu}/min_freq": str(levels[0]),
            f"{self.gpu}/max_freq": str(levels[-1]),
            f"{self.gpu}/cur_freq": str(levels[2]),
            f"{self.gpu}/userspace/set_freq": "undefined",
        }

    def _add_bpmp(self) -> None:
        levels, folder = self.board.grid.emc_hz, self.emc["bpmp"]
        now = str(levels[len(levels) // 2])
        values = {"rate": now, "pto_counter": now, "min_rate": str(levels[0]), "max_rate": str(levels[-1])}
        values |= {"state": "1", "mrq_rate_locked": "0"}
        self.store |= {f"{folder}/{name}": value for name, value in values.items()}
        if "halt" in self.emc:
            self.store[self.emc["halt"]] = "0"

    def _add_override(self) -> None:
        levels, folder = self.board.grid.emc_hz, self.emc["override"]
        now = str(levels[len(levels) // 2])
        self.store |= {f"{folder}/clk_rate": now, f"{folder}/clk_update_rate": now, f"{folder}/clk_state": "0"}
        self.store[f"{self.emc['bwmgr']}/emc_min_rate"] = str(levels[0])
        self.store[f"{self.emc['bwmgr']}/emc_max_rate"] = str(levels[-1])

    def _add_devfreq(self) -> None:
        levels, folder = self.board.grid.emc_hz, self.emc["devfreq"]
        self.store |= {f"{folder}/min_freq": str(levels[0]), f"{folder}/max_freq": str(levels[-1])}
        self.store[f"{folder}/cur_freq"] = str(levels[0])

    def _add_cap(self) -> None:
        self.store[self.emc["cap"]] = str(self.board.grid.emc_hz[-1])

    def _add_monitor(self, number: int, address: str, channels: tuple[str, ...], chip: str) -> None:
        if chip == "ina238":
            self.store[f"/sys/bus/i2c/devices/{address}/hwmon/hwmon9/power1_input"] = "2500000"
            return
        driver = self.board.section("rails")["driver"]
        for channel, label in enumerate(channels, start=1):
            milliamperes = str(10 * channel + 40 * number)
            if self.rules == "4.9":
                node = f"/sys/bus/i2c/drivers/ina3221x/{address}/iio:device{number}"
                self.store[f"{node}/rail_name_{channel - 1}"] = label
                self.store[f"{node}/in_voltage{channel - 1}_input"] = "19000"
                self.store[f"{node}/in_current{channel - 1}_input"] = milliamperes
            else:
                node = f"{driver}/{address}/hwmon/hwmon{7 - number}"
                self.store[f"{node}/in{channel}_label"] = label
                self.store[f"{node}/in{channel}_input"] = "19000"
                self.store[f"{node}/curr{channel}_input"] = milliamperes

    # What the drivers use.

    def exists(self, path: str) -> bool:
        return self._hidden(path) is None and (path in self.store or any(one.startswith(path + "/") for one in self.store))

    def list_names(self, path: str) -> tuple[str, ...]:
        prefix = path.rstrip("/") + "/"
        names = {one[len(prefix) :].split("/")[0] for one in self.store if one.startswith(prefix)}
        return tuple(sorted(names, key=lambda name: (len(name), name)))

    def _read(self, path: str) -> bytes:
        self.hold_up(path)
        if path not in self.store or self._hidden(path):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self._show(path).encode()

    def _write(self, path: str, line: bytes) -> int:
        self.hold_up(f"{path}=")
        value = line.decode().removesuffix("\n")
        number = self.refuse(path, value)
        if number:
            raise OSError(number, os.strerror(number))
        self.take(path, value)
        return len(line)

    # The kernel's side.

    def _hidden(self, path: str) -> str | None:
        return path if path.startswith(f"{self.gpu}/userspace") and self.store[f"{self.gpu}/governor"] != "userspace" else None

    def _show(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        if path in self.measure:
            return self.measure[path]
        if name == "scaling_setspeed" and self.store[f"{folder}/scaling_governor"] != "userspace":
            return "<unsupported>"
        if name in ("scaling_cur_freq", "cpuinfo_cur_freq", "scaling_setspeed"):
            return self._clamp(f"{folder}/scaling_cur_freq", f"{folder}/scaling_min_freq", f"{folder}/scaling_max_freq")
        if name == "cur_freq":
            return self._clamp(path, f"{folder}/min_freq", f"{folder}/max_freq")
        return self.store[path]

    def _clamp(self, path: str, low: str, high: str) -> str:
        return str(min(max(int(self.store[path]), int(self.store[low])), int(self.store[high])))

    def take(self, path: str, value: str) -> None:
        """One write, by whomever."""
        if path not in self.store or self._hidden(path):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        store, grid = self.store, self.board.grid
        folder, _, name = path.rpartition("/")
        if name in ("scaling_governor", "governor"):
            offered = "available_governors" if folder == self.gpu else "scaling_available_governors"
            if value not in store[f"{folder}/{offered}"].split():
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            if folder == self.gpu and store[path] != value:
                store[f"{self.gpu}/userspace/set_freq"] = "undefined"
        elif not value.isdigit():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        elif name in ("scaling_min_freq", "min_freq", "scaling_max_freq", "max_freq"):
            self._limit(folder, name, int(value))
            return
        elif name == "scaling_setspeed":
            if store[f"{folder}/scaling_governor"] != "userspace":
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            store[f"{folder}/scaling_cur_freq"] = self._up(grid.cpu_khz, int(value))
        elif name == "set_freq":
            store[f"{self.gpu}/cur_freq"] = self._up(grid.gpu_hz, int(value))
        elif name == "rate":
            caps = [int(store.get(cap, "0")) for cap in self.emc.get("caps", [self.emc.get("cap", "")])]
            ceiling = min([int(store[f"{folder}/max_rate"]), *(cap for cap in caps if cap)])
            value = store[f"{folder}/pto_counter"] = str(min(int(self._up(grid.emc_hz, int(value))), ceiling))
        elif name == "clk_update_rate":
            value = self._up(grid.emc_hz, int(value))
            if store[f"{folder}/clk_state"] == "1":
                store[f"{folder}/clk_rate"] = value
        elif name == "clk_state" and value == "1":
            store[f"{folder}/clk_rate"] = store[f"{folder}/clk_update_rate"]
        store[path] = value
        self.watch()

    def _limit(self, folder: str, name: str, value: int) -> None:
        prefix = name[: name.index("m")]
        low, high = f"{folder}/{prefix}min_freq", f"{folder}/{prefix}max_freq"
        grid = self.board.grid
        table = grid.gpu_hz if folder == self.gpu else grid.emc_hz if folder == self.emc.get("devfreq") else grid.cpu_khz
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
