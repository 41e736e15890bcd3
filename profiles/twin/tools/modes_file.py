# SPDX-License-Identifier: Apache-2.0
"""nvpmodel's configuration file of a simulated board.

``< PARAM TYPE=FILE|CLOCK NAME=P >`` precedes pairs of argument and path, ``< POWER_MODEL ID=n NAME=m >`` triples of parameter,
argument and value. An argument's ``_KNEXT`` twin has the path of newer kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    # Not at run time: it would bring NumPy into programs that have to start quickly.
    from ...board import BoardDescription, ModeSet, PowerMode

POWER_ON, POWER_AUTO = "GPU_POWER_CONTROL_ENABLE", "GPU_POWER_CONTROL_DISABLE"
NEWER = "_KNEXT"
# Where Thor's GPU keeps the mask of units that are off: not among its device's files.
THOR_MASK = "/opt/nvidia/l4t-gpusetup/gpu_pg_mask"


class ModeLine(NamedTuple):
    parameter: str
    argument: str
    value: str


class ModeParameter(Struct, frozen=True):
    """Type of a parameter (``FILE`` or ``CLOCK``), and the path of each argument."""

    kind: str
    paths: dict[str, str]


class ConfiguredMode(Struct, frozen=True):
    id: int
    name: str
    lines: tuple[ModeLine, ...]


class ModesFile(Struct, frozen=True):
    parameters: dict[str, ModeParameter]
    modes: tuple[ConfiguredMode, ...]
    default: int

    def mode(self, number: int) -> ConfiguredMode | None:
        return next((mode for mode in self.modes if mode.id == number), None)


def parse(text: str) -> ModesFile:
    """Read a configuration. Raises ValueError, KeyError if invalid."""
    clean = re.sub(r"#[^\n]*", "", text)
    parameters: dict[str, ModeParameter] = {}
    modes: list[ConfiguredMode] = []
    default: int | None = None
    for head, body in re.findall(r"<([^<>]*)>([^<]*)", clean):
        kind, *pairs = head.split()
        keys, words = dict(pair.split("=", 1) for pair in pairs), body.split()
        if kind == "PARAM":
            parameters[keys["NAME"]] = ModeParameter(keys["TYPE"], dict(zip(words[::2], words[1::2], strict=True)))
        elif kind == "POWER_MODEL":
            lines = zip(words[::3], words[1::3], words[2::3], strict=True)
            modes.append(ConfiguredMode(int(keys["ID"]), keys["NAME"], tuple(ModeLine(*words) for words in lines)))
        elif kind == "PM_CONFIG":
            default = int(keys["DEFAULT"])
    if not modes or default is None:
        raise ValueError("the configuration has no modes, or no default mode")
    return ModesFile(parameters, tuple(modes), default)


def render(board: BoardDescription, modes: ModeSet) -> str:
    return "\n".join(("# simulated; the values are those of the board's description", *_lines(board, modes), ""))


def _lines(board: BoardDescription, modes: ModeSet) -> Iterator[str]:
    gpu, emc = board.section("gpu"), board.section("emc")
    device = (*gpu["links"], gpu["device"])[0]
    masks = sorted({name for mode in modes.table for name in mode.masks})
    caps = emc.get("caps", [emc["cap"]] if "cap" in emc else [])
    yield "< PARAM TYPE=FILE NAME=CPU_ONLINE >"
    yield from (f"CORE_{core} /sys/devices/system/cpu/cpu{core}/online" for core in range(board.cores))
    for mask in masks:
        yield f"< PARAM TYPE=FILE NAME={_gating(mask)} >"
        yield f"{mask.upper()} {THOR_MASK if mask == 'gpu_pg_mask' else f'{device}/{mask}'}"
    for name, argument in ((POWER_ON, "GPU_PWR_CNTL_EN"), (POWER_AUTO, "GPU_PWR_CNTL_DIS")):
        yield f"< PARAM TYPE=FILE NAME={name} >"
        yield f"{argument} {device}/power/control"
    for index, policy in enumerate(board.cpu_policies):
        folder = f"/sys/devices/system/cpu/cpu{policy.cpus[0]}/cpufreq"
        yield f"< PARAM TYPE=CLOCK NAME=CPU_CLUSTER_{index} >"
        yield f"FREQ_TABLE {folder}/scaling_available_frequencies"
        yield f"MAX_FREQ {folder}/scaling_max_freq"
        yield f"MIN_FREQ {folder}/scaling_min_freq"
    yield "< PARAM TYPE=CLOCK NAME=GPU >"
    for suffix, folder in zip(("", NEWER), _older_and_newer(gpu["devfreq"]), strict=False):
        yield f"FREQ_TABLE{suffix} {folder}/available_frequencies"
        yield f"MAX_FREQ{suffix} {folder}/max_freq"
        yield f"MIN_FREQ{suffix} {folder}/min_freq"
    if caps:
        yield "< PARAM TYPE=CLOCK NAME=EMC >"
        yield from (f"MAX_FREQ{suffix} {path}" for suffix, path in zip(("", NEWER), _older_and_newer(caps), strict=False))
    for mode in modes.table:
        yield f"< POWER_MODEL ID={mode.id} NAME={mode.name} >"
        yield from _mode_lines(board, mode)
        if caps:
            # The older file takes zero for no limit; the newer one would round that up to the lowest rate.
            yield f"EMC MAX_FREQ {mode.emc_hz or (0 if 'emc_iso_cap' in emc['cap'] else -1)}"
    yield f"< PM_CONFIG DEFAULT={modes.default} >"


def _mode_lines(board: BoardDescription, mode: PowerMode) -> Iterator[str]:
    cores = board.cores if mode.cores is None else mode.cores
    # Whole clusters stay: a TX2 with four cores has those of one kind.
    online = [cpu for policy in board.cpu_policies for cpu in policy.cpus][:cores]
    yield from (f"CPU_ONLINE CORE_{core} {int(core in online)}" for core in range(board.cores))
    yield from (f"{_gating(mask)} {mask.upper()} {value}" for mask, value in mode.masks.items())
    yield f"{POWER_ON} GPU_PWR_CNTL_EN on"
    for index, policy in enumerate(board.cpu_policies):
        if policy.cpus[0] in online:
            yield f"CPU_CLUSTER_{index} MIN_FREQ {mode.cpu_min_khz or 0}"
            yield f"CPU_CLUSTER_{index} MAX_FREQ {mode.cpu_khz or -1}"
    yield "GPU MIN_FREQ 0"
    yield f"GPU MAX_FREQ {mode.gpu_hz or -1}"
    yield f"{POWER_AUTO} GPU_PWR_CNTL_DIS auto"


def _gating(mask: str) -> str:
    return f"{mask.partition('_')[0].upper()}_POWER_GATING"


def _older_and_newer(paths: Sequence[str]) -> Sequence[str]:
    """Reversed paths: a description lists the newest first."""
    return paths[:1] if len(paths) == 1 else (paths[-1], paths[0])
