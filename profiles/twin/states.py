# SPDX-License-Identifier: Apache-2.0
"""States of boards in the field, by name: files that are missing, empty, refused, or another board's.

``twin serve --state NAME[,NAME]`` applies them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from ..board import load_board
from ..errors import TwinError
from .simulated_board import SimulatedBoard
from .tools.modes_file import render
from .tree.attributes import Attribute, Link, constant
from .tree.clocks.emc import mainline_emc

STATES: dict[str, Callable[[SimulatedBoard], None]] = {}
_DEBUGFS = "/sys/kernel/debug"
_DEVICE_TREE = "/sys/firmware/devicetree/base"
_UNITS = "/etc/systemd/system"


def put_into(board: SimulatedBoard, names: str) -> None:
    """Put a board into comma-separated :data:`STATES`. Raises TwinError."""
    for name in filter(None, names.split(",")):
        if name not in STATES:
            raise TwinError(f"board state {name!r}; valid: {', '.join(STATES)}")
        STATES[name](board)


def _state(change: Callable[[SimulatedBoard], None]) -> Callable[[SimulatedBoard], None]:
    STATES[change.__name__.replace("_", "-")] = change
    return change


def _files(board: SimulatedBoard, pattern: str) -> Iterator[str]:
    found = [path for path, _ in board.tree.files() if fnmatchcase(path, pattern)]
    if not found:
        raise TwinError(f"board {board.description.name}: has no file {pattern}, which the state changes")
    yield from found


def _text(board: SimulatedBoard, path: str, text: str) -> None:
    node = board.tree.node(path)
    assert isinstance(node, Attribute)
    said = [text]

    def write(value: str) -> float | None:
        said.clear()
        return node.write(value) if node.write is not None else None

    read = node.read
    shown = Attribute(lambda: said[0] if said else read() if read else "", write if node.write else None, node.mode)
    board.tree.put(path, shown)


def _faulty(pattern: str, number: int | None = None) -> Callable[[SimulatedBoard], None]:
    def change(board: SimulatedBoard) -> None:
        for path in _files(board, pattern):
            if number is None:
                board.faults.vanish(path)
            else:
                board.faults.refuse(path, number, access="read")

    return change


STATES |= {
    "no-passive-trip": _faulty("/sys/devices/virtual/thermal/*/trip_point_0_*"),
    "no-ina238": _faulty("*/2-0044/hwmon/*"),  # a carrier without the monitor of the whole board (Thor)
    "gpu-clock-unreadable": _faulty("*gpu/devfreq/*/cur_freq", errno.EIO),
    "debugfs-locked-down": _faulty(f"{_DEBUGFS}/*", errno.EPERM),
}


@_state
def eagain_zone(board: SimulatedBoard) -> None:
    for path in _files(board, "/sys/devices/virtual/thermal/*/type"):
        if "cpu" in board.tree.read(path).decode().lower():
            board.faults.refuse(path.replace("type", "temp"), errno.EAGAIN, access="read")


@_state
def total_rail_missing(board: SimulatedBoard) -> None:
    """Last energy rail without voltage and current."""
    rail = board.description.energy_rails[-1]
    for monitor in board.description.monitors:
        if rail in monitor.channels:
            number = monitor.channels.index(rail) + 1
            for name in (f"in{number}_input", f"curr{number}_input", "power1_input"):
                for path, _ in list(board.tree.files()):
                    if f"/{monitor.address}/hwmon/" in path and path.endswith(f"/{name}"):
                        board.faults.vanish(path)


@_state
def gpu_max_freq_zero(board: SimulatedBoard) -> None:
    """GPU limits of 0, as written by hand under Linux 4.9."""
    path = board.description.section("gpu")["devfreq"][0]
    for name in ("min_freq", "max_freq"):
        _text(board, board.tree.resolve(f"{path}/{name}"), "0")


@_state
def gpu_limits_not_available(board: SimulatedBoard) -> None:
    path = board.description.section("gpu")["devfreq"][0]
    _text(board, board.tree.resolve(f"{path}/max_freq"), "N/A")


@_state
def codecs_busy(board: SimulatedBoard) -> None:
    """Firmware clocks of codec and vision units, some busy."""
    for name, rate in (("vic", 729600000), ("nvdec", 998400000), ("nvjpg", 0)):
        folder = f"{_DEBUGFS}/bpmp/debug/clk/{name}"
        board.tree.put(f"{folder}/rate", constant(rate or 115200000))
        board.tree.put(f"{folder}/state", constant(int(rate > 0)))


@_state
def more_cpu_levels(board: SimulatedBoard) -> None:
    """CPU clocks beyond the description, from an overclocked device tree."""
    for path in _files(board, "/sys/devices/system/cpu/cpufreq/*/scaling_available_frequencies"):
        board.tree.put(path, constant(" ".join(map(str, (*board.description.grid.cpu_khz, 3000000, 3100000)))))
        _text(board, path.replace("available_frequencies", "max_freq"), "3100000")


@_state
def no_debugfs(board: SimulatedBoard) -> None:
    board.faults.vanish(_DEBUGFS)


@_state
def debugfs_without_bpmp(board: SimulatedBoard) -> None:
    """Debugfs without the firmware's clocks, as under secure boot."""
    for path in (f"{_DEBUGFS}/bpmp", f"{_DEBUGFS}/clk"):
        board.faults.vanish(path)
    board.tree.put(f"{_DEBUGFS}/opp/opp_table", constant(0))


@_state
def debugfs_of_mainline(board: SimulatedBoard) -> None:
    """Debugfs of a mainline kernel without limits of the memory clock."""
    debugfs_without_bpmp(board)
    board.tree.put(f"{_DEBUGFS}/emc/available_rates", constant(""))


@_state
def mainline_memory_clock(board: SimulatedBoard) -> None:
    """Mainline kernel with limits of the memory clock, and without NVIDIA's drivers."""
    board.faults.vanish(f"{_DEBUGFS}/bpmp")
    no_memory_clock(board)
    board.tree.add(mainline_emc(board.emc))
    board.tree.restrict(_DEBUGFS, 0o700)


@_state
def no_memory_clock(board: SimulatedBoard) -> None:
    section = board.description.section("emc")
    for name in ("devfreq", "cap"):
        if name in section:
            board.faults.vanish(str(section[name]))


@_state
def late_gpu(board: SimulatedBoard) -> None:
    """GPU unused since boot: its clock's files come with the first use."""
    board.gpu.gate.appeared = board.gpu.gate.used = False


@_state
def emc_locked(board: SimulatedBoard) -> None:
    """Memory clock locked at its top, past the limits of JetPack 7."""
    folder = str(board.description.section("emc")["bpmp"])
    for name, value in (("mrq_rate_locked", 1), ("rate", board.description.grid.emc_hz[-1])):
        board.tree.write(board.tree.resolve(f"{folder}/{name}"), f"{value}\n".encode())


@_state
def undescribed_module(board: SimulatedBoard) -> None:
    """AGX Orin module without a description, with a foreign modes file."""
    names = ("nvidia,p3737-0000+p3701-0009", "nvidia,p3701-0009", "nvidia,tegra234")
    board.tree.put(f"{_DEVICE_TREE}/compatible", Attribute(lambda: b"".join(name.encode() + b"\0" for name in names)))
    board.tree.put(f"{_DEVICE_TREE}/model", Attribute(lambda: b"NVIDIA Jetson AGX Orin of another kind\0"))
    board.tree.put("/var/lib/nvpmodel/conf_file_path", constant("/etc/nvpmodel/nvpmodel_p3701_0000.conf"))


@_state
def conf_of_another_module(board: SimulatedBoard) -> None:
    other = load_board("orin-nano-8gb" if board.description.name.startswith("agx-orin") else "agx-orin-64gb")
    modes = other.modes[-1]
    path = f"/etc/nvpmodel/{modes.conf}"
    board.tree.put(path, constant(render(other, modes)))
    board.tree.put("/etc/nvpmodel.conf", Link(path))
    board.tree.put("/var/lib/nvpmodel/conf_file_path", constant(path))


@_state
def throttle_alerts(board: SimulatedBoard) -> None:
    """Cooling devices that lower CPU and GPU clocks, and a turning fan."""
    devices = (("pwm-fan", 2, 5), ("gpu-throttle-alert", 1, 2), ("cpufreq-cpu0", 12, 48), ("cpu-throttle-alert", 0, 2))
    for number, (name, state, most) in enumerate(devices):
        folder = f"/sys/class/thermal/cooling_device{number}"
        for file, value in (("type", name), ("cur_state", state), ("max_state", most)):
            board.tree.put(f"{folder}/{file}", constant(value))


@_state
def jetson_clocks_at_boot(board: SimulatedBoard) -> None:
    text = "[Unit]\nDescription=Fast\n[Service]\nType=oneshot\nExecStart=/bin/sh -c 'sleep 10; /usr/bin/jetson_clocks'\n"
    board.tree.put(f"{_UNITS}/jetson-perf.service", constant(text))
    board.tree.put(f"{_UNITS}/multi-user.target.wants/jetson-perf.service", Link(f"{_UNITS}/jetson-perf.service"))
