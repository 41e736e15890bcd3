# SPDX-License-Identifier: Apache-2.0
"""Simulated jetson_clocks: every clock at the power mode's top, until the next boot or nvpmodel.

It raises lower limits to the upper ones, forbids idle states and power gating, and locks the memory clock at its cap.
``--store`` saves the previous values as lines ``path:value``; ``--restore`` writes them back.
"""

from __future__ import annotations

import argparse
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path

from .modes_file import NEWER, parse
from .nvpmodel import CONF, STATUS
from .system import ToolSystem

CPU_ROOT = "/sys/devices/system/cpu"
_EMC = "/sys/kernel/debug/bpmp/debug/clk/emc"
_BWMGR = "/sys/kernel/debug/tegra_bwmgr"
_OVERRIDE = "/sys/kernel/debug/clk/override.emc"
_LEGACY_FAN = "/sys/devices/pwm-fan/target_pwm"


def main(arguments: Sequence[str], root: str) -> int:
    parser = argparse.ArgumentParser(prog="jetson_clocks", description="Simulated: a twin's clocks at their highest.")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--show", action="store_true", help="show the clocks")
    action.add_argument("--store", nargs="?", const="", metavar="FILE", help="save the clocks")
    action.add_argument("--restore", nargs="?", const="", metavar="FILE", help="bring them back")
    parser.add_argument("--fan", action="store_true", help="the fan at full speed, too")
    args = parser.parse_args(arguments)
    try:
        clocks = SimulatedJetsonClocks(ToolSystem(root, "jetson_clocks"))
        if args.show:
            print("\n".join(clocks.show()))
        elif args.store is not None:
            (Path(args.store) if args.store else clocks.default_file()).write_text(clocks.stored())
        elif args.restore is not None:
            clocks.restore((Path(args.restore) if args.restore else clocks.default_file()).read_text())
        else:
            clocks.maximize(fan=args.fan)
    except (OSError, ValueError, KeyError) as error:
        print(f"Error: {error}", flush=True)
        return 1
    return 0


class SimulatedJetsonClocks:
    def __init__(self, system: ToolSystem) -> None:
        self._system = system
        self._idle = [system.read(path) for path in system.glob(f"{CPU_ROOT}/cpu0/cpuidle/state*/name")]
        parameters = parse(system.read(CONF)).parameters
        self._gpu = self._directory(parameters["GPU"].paths)
        self._cap = self._existing(parameters["EMC"].paths) if "EMC" in parameters else None

    def default_file(self) -> Path:
        """Default file of ``--store``: in the home directory, or next to the mount point of a twin."""
        name = "l4t_dfs.conf" if "R32 " in (self._system.find("/etc/nv_tegra_release") or "") else ".jetsonclocks_conf.txt"
        root = self._system.root
        return Path(f"{root}{name if name.startswith('.') else f'.{name}'}") if root else Path.home() / name

    def maximize(self, *, fan: bool) -> None:
        if self._system.misbehaves("hangs"):
            self._system.hang()
        if self._system.misbehaves("lies"):
            return
        for core in self._online():
            folder = f"{CPU_ROOT}/cpu{core}"
            self._system.write(f"{folder}/cpufreq/scaling_min_freq", self._system.read(f"{folder}/cpufreq/scaling_max_freq"))
            for state in range(len(self._idle)):
                self._system.write(f"{folder}/cpuidle/state{state}/disable", 1)
        railgate = self._railgate()
        if self._system.find(railgate) is not None:
            self._system.write(railgate, 0)
        self._system.write(f"{self._gpu}/min_freq", self._system.read(f"{self._gpu}/max_freq"))
        self._pin_memory()
        if fan:
            self._system.write(self._fan(), 255)

    def show(self) -> Iterator[str]:
        chip = (self._system.find("/sys/firmware/devicetree/base/compatible") or "").rpartition(",")[2]
        yield f"SOC family:{chip}  Machine:{self._system.find('/sys/firmware/devicetree/base/model')}"
        yield f"Online CPUs: {self._system.read(f'{CPU_ROOT}/online')}"
        clocks: dict[int, str] = {}
        for policy in self._system.glob(f"{CPU_ROOT}/cpufreq/policy*"):
            names = {"Governor": "governor", "MinFreq": "min_freq", "MaxFreq": "max_freq", "CurrentFreq": "cur_freq"}
            text = " ".join(f"{title}={self._system.read(f'{policy}/scaling_{name}')}" for title, name in names.items())
            clocks |= dict.fromkeys(map(int, self._system.read(f"{policy}/affected_cpus").split()), text)
        for core in self._online():
            disabled = [self._system.read(f"{CPU_ROOT}/cpu{core}/cpuidle/state{n}/disable") for n in range(len(self._idle))]
            states = "".join(f"{name}={1 - int(value)} " for name, value in zip(self._idle, disabled, strict=True))
            yield f"cpu{core}: Online=1 {clocks[core]} IdleStates: {states}"
        limits = " ".join(
            f"{title}={self._system.read(f'{self._gpu}/{name}')}"
            for title, name in (("MinFreq", "min_freq"), ("MaxFreq", "max_freq"), ("CurrentFreq", "cur_freq"))
        )
        yield f"GPU {limits}"
        if (memory := self._memory()) is not None:
            rate, low, high, lock = memory
            bounds = f"MinFreq={self._system.read(low)} MaxFreq={self._capped(high)}"
            yield f"EMC {bounds} CurrentFreq={self._system.read(rate)} FreqOverride={self._system.read(lock)}"
        if (fan := self._fan()) and (pwm := self._system.find(fan)) is not None:
            yield f"FAN Dynamic Speed Control=nvfancontrol {'_'.join(fan.split('/')[-2:])}={pwm}"
        modes = parse(self._system.read(CONF))
        mode = modes.mode(int((self._system.find(STATUS) or f"pmode:{modes.default}").partition(":")[2].split()[0]))
        yield f"NV Power Mode: {mode.name if mode else '?'}"

    def stored(self) -> str:
        paths = [path for core in self._online() for path in self._core_files(core)]
        paths += [f"{self._gpu}/min_freq", self._railgate(), f"{_EMC}/mrq_rate_locked", f"{_OVERRIDE}/clk_state", self._fan()]
        found = ((path, self._system.find(path)) for path in paths if path)
        return "".join(f"{path}:{value}\n" for path, value in found if value is not None)

    def restore(self, text: str) -> None:
        for line in text.splitlines():
            path, _, value = line.rpartition(":")
            if self._system.find(path) != value:
                self._system.write(path, value)

    def _core_files(self, core: int) -> Iterator[str]:
        folder = f"{CPU_ROOT}/cpu{core}"
        yield f"{folder}/online"
        yield f"{folder}/cpufreq/scaling_min_freq"
        yield from (f"{folder}/cpuidle/state{state}/disable" for state in range(len(self._idle)))

    def _online(self) -> list[int]:
        found: list[int] = []
        for part in self._system.read(f"{CPU_ROOT}/online").split(","):
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
        return found

    def _memory(self) -> tuple[str, str, str, str] | None:
        for files in (
            (f"{_EMC}/rate", f"{_EMC}/min_rate", f"{_EMC}/max_rate", f"{_EMC}/mrq_rate_locked"),
            (f"{_OVERRIDE}/clk_rate", f"{_BWMGR}/emc_min_rate", f"{_BWMGR}/emc_max_rate", f"{_OVERRIDE}/clk_state"),
        ):
            if self._system.find(files[0]) is not None:
                return files
        return None

    def _pin_memory(self) -> None:
        memory = self._memory()
        if memory is not None:
            rate, _, highest, lock = memory
            self._system.write(lock, 1)
            self._system.write(f"{_OVERRIDE}/clk_update_rate" if rate.startswith(_OVERRIDE) else rate, self._capped(highest))

    def _capped(self, highest: str) -> int:
        top = int(self._system.read(highest))
        cap = int(self._system.find(self._cap) or 0) if self._cap else 0
        return min(cap, top) if cap else top

    def _railgate(self) -> str:
        return f"{posixpath.dirname(posixpath.dirname(self._gpu))}/railgate_enable"

    def _fan(self) -> str:
        if self._system.find(_LEGACY_FAN) is not None:
            return _LEGACY_FAN
        named = self._system.glob("/sys/class/hwmon/hwmon*/name")
        return next((f"{posixpath.dirname(path)}/pwm1" for path in named if self._system.find(path) == "pwmfan"), "")

    def _directory(self, paths: dict[str, str]) -> str:
        return posixpath.dirname(self._existing(paths))

    def _existing(self, paths: dict[str, str]) -> str:
        newer = paths.get(f"MAX_FREQ{NEWER}")
        return newer if newer and self._system.place(newer).exists() else paths["MAX_FREQ"]
