# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's power modes: nvpmodel's configuration, the mode in force, and its caps.

The configuration is a sequence of ``< KIND KEY=VALUE ... >`` headers, each followed by words: pairs of argument and path after
PARAM, triples of parameter, argument and value after POWER_MODEL. ``#`` starts a comment, lines may be wrapped, and identifiers
may have gaps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...kernels.text import valid_instead
from ...profiles.board import BOARDS_DIR, BoardDescription, ModeSet, PowerMode
from ..errors import InputError, UsageError
from .files import Files
from .identity import BoardIdentity, parts_in

CONF = "/etc/nvpmodel.conf"
STATUS = "/var/lib/nvpmodel/status"
_AXES = {"CPU": "cpu_khz", "GPU": "gpu_hz", "EMC": "emc_hz"}
UNITS_MASK = "tpc_pg_mask"
_MASKS = ("TPC_PG_MASK", "FBP_PG_MASK", "GPC_PG_MASK", "GPU_PG_MASK")


class RunningModes:
    def __init__(self, files: Files, board: BoardDescription, identity: BoardIdentity) -> None:
        self.modes: ModeSet | None = None
        self._files = files
        self._unknown = ""
        try:
            modes = read_modes(files, board.cores)
        except InputError as error:
            self._unknown = f"power modes are not known: {error}"
            return
        if modes is not None and (foreign := written_for_another(files, board, identity)):
            self._unknown = f"power modes are not known: {foreign}"
        else:
            self.modes = modes

    @property
    def note(self) -> str:
        """Reason why the modes, or the one in force, are unknown; empty if nvpmodel reports nothing."""
        if self.modes is None or (number := mode_in_status(self._files)) is None:
            return self._unknown
        known = any(mode.id == number for mode in self.modes.table)
        return "" if known else f"power mode {number} is in force, which {self.modes.conf} does not list"

    def active(self) -> PowerMode | None:
        return None if self.modes is None else active_mode(self._files, self.modes)


def written_for_another(files: Files, board: BoardDescription, identity: BoardIdentity) -> str:
    for path in dict.fromkeys((files.resolved(CONF), identity.modes_conf)):
        name = path.rpartition("/")[2]
        parts = parts_in(name)
        own = parts.intersection({*board.modules, *parts_in(" ".join(identity.compatible))})
        if own or name in {modes.conf for modes in board.modes}:
            continue
        others = (one.read_text(encoding="utf-8") for one in BOARDS_DIR.glob("*.yaml"))
        if parts or (name and any(f" conf: {name}\n" in text for text in others)):
            return f"{path} is written for another module{f', {min(parts)}' if parts else ''}"
    return ""


def parse_modes(text: str, cores: int, name: str = CONF) -> ModeSet:
    table, default = [], None
    for kind, keys, words, line in _sections(text, name):
        if kind == "POWER_MODEL":
            table.append(_mode(keys, words, cores, f"{name}:{line}"))
        elif kind == "PM_CONFIG":
            default = _number(keys.get("DEFAULT", ""), f"{name}:{line}: DEFAULT")
    if not table:
        raise InputError(f"{name}: no POWER_MODEL in it")
    numbers = [mode.id for mode in table]
    if len(set(numbers)) < len(numbers):
        raise InputError(f"{name}: an ID is used twice among {numbers}")
    return ModeSet("running", name, table[0].id if default is None else default, tuple(table))


def read_modes(files: Files, cores: int) -> ModeSet | None:
    text = files.find_text(CONF)
    return None if text is None else parse_modes(text, cores)


def active_mode(files: Files, modes: ModeSet) -> PowerMode | None:
    number = mode_in_status(files)
    return next((mode for mode in modes.table if mode.id == number), None)


def mode_in_status(files: Files) -> int | None:
    match = re.match(r"pmode:(\d+)\b", files.find_text(STATUS) or "")
    return int(match[1]) if match else None


def find_mode(modes: ModeSet, name_or_id: str) -> PowerMode:
    for mode in modes.table:
        if name_or_id == mode.name or (name_or_id.isdecimal() and int(name_or_id) == mode.id):
            return mode
    known = valid_instead(name_or_id, [f"{mode.id} {mode.name}" for mode in modes.table])
    raise UsageError(f"power mode {name_or_id!r}: not in {modes.conf}{known}")


def pending_units(mode: PowerMode | None, masks: Mapping[str, int] | None) -> str:
    units = (masks or {}).get(UNITS_MASK)
    if mode is None or mode.masks.get(UNITS_MASK, units) == units:
        return ""
    asked = mode.masks[UNITS_MASK]
    return f"power mode {mode.name} asks for {UNITS_MASK} {asked}, but it is {units}; a reboot may change that"


def changed_masks(before: PowerMode | None, after: PowerMode) -> tuple[str, ...]:
    """Units' masks that differ between two modes: changing them may need a reboot."""
    if before is None:
        return tuple(after.masks)
    names = {**before.masks, **after.masks}
    return tuple(name for name in names if before.masks.get(name) != after.masks.get(name))


def bound_levels(levels: tuple[int, ...], cap: int | None) -> tuple[int, ...]:
    return levels if cap is None else tuple(level for level in levels if level <= cap) or levels[:1]


def _sections(text: str, name: str) -> Iterable[tuple[str, dict[str, str], list[str], int]]:
    lines = [line.partition("#")[0] for line in text.splitlines()]
    clean = "\n".join(lines)
    headers = list(re.finditer(r"<([^<>]*)>", clean))
    for header, following in zip(headers, [*headers[1:], None], strict=False):
        head = header[1].split()
        line = clean.count("\n", 0, header.start()) + 1
        if not head:
            raise InputError(f"{name}:{line}: an empty header; valid: PARAM, POWER_MODEL, PM_CONFIG, FAN_CONFIG")
        keys = dict(word.partition("=")[::2] for word in head[1:])
        yield head[0], keys, clean[header.end() : following.start() if following else None].split(), line


def _mode(keys: dict[str, str], words: list[str], cores: int, where: str) -> PowerMode:
    if len(words) % 3:
        raise InputError(f"{where}: {len(words)} words after POWER_MODEL, expected triples of parameter, argument and value")
    caps: dict[str, int] = {}
    lowest: int | None = None
    masks: dict[str, int] = {}
    there = {f"CORE_{core}" for core in range(cores)}
    for parameter, argument, value in zip(words[::3], words[1::3], words[2::3], strict=True):
        axis = _AXES.get(parameter.partition("_")[0])
        if parameter == "CPU_ONLINE":
            cores -= value == "0" and argument in there
        elif argument in _MASKS:
            masks[argument.lower()] = _number(value, f"{where}: {argument}")
        elif axis and argument in ("MAX_FREQ", "MIN_FREQ"):
            # Zero and minus one are no limit. All clusters move together, so that the lowest cap applies to all.
            limit = _number(value, f"{where}: {parameter} {argument}")
            if limit > 0 and argument == "MAX_FREQ":
                caps[axis] = min(limit, caps.get(axis, limit))
            elif limit > 0 and axis == "cpu_khz":
                lowest = limit if lowest is None else min(limit, lowest)
    name = keys.get("NAME")
    if not name:
        raise InputError(f"{where}: a POWER_MODEL without NAME")
    number = _number(keys.get("ID", ""), f"{where}: ID")
    return PowerMode(number, name, cores, lowest, caps.get("cpu_khz"), caps.get("gpu_hz"), caps.get("emc_hz"), masks)


def _number(word: str, what: str) -> int:
    try:
        return int(word, 0)
    except ValueError:
        raise InputError(f"{what} is {word!r}, expected a whole number") from None
