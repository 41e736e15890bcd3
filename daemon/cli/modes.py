# SPDX-License-Identifier: Apache-2.0
"""Power modes of the board: list and change them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import asdict

from ...kernels.units import CLOCKS, mhz_text
from ...profiles.board import ModeSet, PowerMode
from ..errors import HardwareRefused, InputError, NotPermitted
from ..hardware.files import Files
from ..hardware.identity import described_boards, match_board, read_identity
from ..hardware.jetson_stats import JetsonStats, connect
from ..hardware.nvpmodel import PROGRAM, ModeSwitch, Nvpmodel
from ..hardware.power_modes import CONF, active_mode, changed_masks, find_mode, read_modes, written_for_another


def running_modes(files: Files) -> tuple[ModeSet, str]:
    identity = read_identity(files)
    board = match_board(identity, described_boards())
    modes = read_modes(files, board.cores)
    if modes is None:
        raise InputError(f"{CONF}: cannot be read, so that this system's power modes are not known")
    return modes, written_for_another(files, board, identity)


def list_modes(root: str) -> tuple[list[dict[str, Any]], list[str]]:
    files = Files(root)
    modes, foreign = running_modes(files)
    active = active_mode(files, modes)
    shown, lines = [], [f"note: {foreign}"] if foreign else []
    for mode in modes.table:
        masks, default = list(changed_masks(active, mode)), mode.id == modes.default
        shown.append({**asdict(mode), "active": mode is active, "default": default, "changed_masks": masks})
        remarks = [*(["the default"] if default else []), *(["may need a reboot"] if masks else [])]
        note = f" ({', '.join(remarks)})" if remarks else ""
        lines.append(f"{'*' if mode is active else ' '} {_described(mode)}{note}")
    return shown, lines


def switch_mode(
    root: str, name_or_id: str, *, dry_run: bool, stats: Callable[[], AbstractContextManager[JetsonStats | None]] = connect
) -> tuple[dict[str, Any], list[str]]:
    """Change the mode, or print the change; also for users of the jetson-stats service. Raises NotPermitted, or HardwareRefused
    if the mode is not in force afterwards.
    """
    files = Files(root)
    modes, foreign = running_modes(files)
    mode, active = find_mode(modes, name_or_id), active_mode(files, modes)
    if dry_run:
        masks = changed_masks(active, mode)
        lines = [f"from {_described(active)}" if active else "from a mode that is not known", f"to   {_described(mode)}"]
        lines += [f"changes {', '.join(masks)}: may need a reboot"] if masks else []
        lines += [f"note: {foreign}"] if foreign else []
        return {"requested": asdict(mode), "active": active and asdict(active), "changed_masks": list(masks)}, lines
    if root == "/" and os.geteuid() != 0:
        done = _requested_of(stats, mode, changed_masks(active, mode))
    else:
        done = Nvpmodel(PROGRAM if root == "/" else f"{files.root}{PROGRAM}").switch(mode)
    if done.needs_reboot:
        raise HardwareRefused(f"power mode {mode.name} needs a reboot, which is yours to do; {done.active} stays in force")
    if not done.done:
        raise HardwareRefused(
            f"power mode {mode.name} was not set, {done.active} is in force: {done.text or 'no reason given'}"
        )
    lines = [f"power mode {done.active} is in force"]
    if active is not None and active != mode:
        where = "" if root == "/" else f" --root {shlex.quote(root)}"
        reboot = "; that may need a reboot" if changed_masks(mode, active) else ""
        lines.append(f"before: {active.name}; to go back: sudo jetdvfs board mode {shlex.quote(active.name)}{where}{reboot}")
    return {**asdict(done), "done": done.done, "before": active and asdict(active)}, lines


def _requested_of(
    stats: Callable[[], AbstractContextManager[JetsonStats | None]], mode: PowerMode, masks: tuple[str, ...]
) -> ModeSwitch:
    with stats() as service:
        if service is None:
            raise NotPermitted(
                f"power mode {mode.name}: only root may change it, or who may use a running jetson-stats service; "
                "--dry-run shows the change"
            )
        return service.switch(mode, masks)


def _described(mode: PowerMode) -> str:
    return f"{mode.id:3} {mode.name:18} {', '.join(_limits(mode))}"


def _limits(mode: PowerMode) -> Iterator[str]:
    if mode.cores is not None:
        yield f"{mode.cores} cores"
    for axis, title in CLOCKS.items():
        cap = getattr(mode, axis)
        yield f"{title} uncapped" if cap is None else f"{title} up to {mhz_text(axis, cap)} MHz"
