# SPDX-License-Identifier: Apache-2.0
"""Described board as installed, with one JetPack release and one firmware.

``twin.releases`` and ``twin.firmware`` are laid over the description: mappings merge, null removes a key, all else replaces.
``twin.like`` names a board whose ``twin`` section is inherited; ``twin.usual_firmware`` the firmware of a release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..board import BoardDescription, ModeSet, PowerMode, load_board, parse_board
from ..documents import DocumentError, laid_over
from ..errors import TwinError


def installed(description: BoardDescription, jetpack: str = "", firmware: str = "") -> BoardDescription:
    """Description with this JetPack (``"5"``; by default its own) and firmware. Raises TwinError."""
    twin = _twin(description)
    jetpack = jetpack or description.jetpack.partition(".")[0]
    releases: Mapping[str, Any] = twin.get("releases", {})
    known = {release.jetpack for release in description.releases if release.jetpack in releases} | {
        description.jetpack.partition(".")[0]
    }
    if jetpack not in known:
        raise TwinError(f"board {description.name}: no simulated JetPack {jetpack!r}; valid: {', '.join(sorted(known))}")
    raw = laid_over({**description.raw, "twin": twin}, releases.get(jetpack) or {})
    firmware = firmware or raw["twin"].get("usual_firmware", "")
    if firmware and firmware not in description.firmware:
        names = ", ".join(description.firmware) or "only the one it has"
        raise TwinError(f"board {description.name}: no firmware {firmware!r}; valid: {names}")
    if firmware:
        grid = description.firmware[firmware]
        raw = laid_over(raw, {"axes": grid.to_json()})
        raw = laid_over(raw, twin.get("firmware", {}).get(firmware) or {})
        raw = laid_over(raw, {"twin": {"installed_firmware": firmware}})
    try:
        return parse_board(raw)
    except DocumentError as error:
        raise TwinError(f"board {description.name}: twin of JetPack {jetpack}: {error}") from error


def _twin(description: BoardDescription) -> Mapping[str, Any]:
    twin = description.raw.get("twin")
    if not isinstance(twin, Mapping):
        raise TwinError(f"board {description.name}: has no twin section, so that it cannot be simulated")
    if "like" not in twin:
        return twin
    own = {"silicon": description.name, **twin}
    # Measurements of another board do not count for this one.
    below = {**_twin(load_board(str(twin["like"]))), "calibrated_on": "nothing"}
    return laid_over(below, own)


def mode_set(description: BoardDescription) -> ModeSet:
    """Power modes of the installed firmware, else the last described ones."""
    firmware = description.section("twin").get("installed_firmware")
    return next((modes for modes in description.modes if modes.name == firmware), description.modes[-1])


def boot_mode(description: BoardDescription, modes: ModeSet, name_or_id: str = "") -> PowerMode:
    """Power mode at boot. Raises TwinError if unknown.

    Args:
        name_or_id: its name; by default that of the ``twin`` section (name or ID), else the modes' default.
    """
    usual = description.section("twin").get("power_mode")
    for choice in (name_or_id,) if name_or_id else (usual, modes.default):
        for mode in modes.table:
            if choice in (mode.id, mode.name):
                return mode
    names = ", ".join(mode.name for mode in modes.table)
    raise TwinError(f"board {description.name}: no power mode {name_or_id!r}; valid: {names}")


def powered_sms(description: BoardDescription, name_or_id: str = "") -> int:
    """Streaming multiprocessors left powered by the boot mode's mask; 0 without such a mask.

    A bit is a TPC of two multiprocessors; ``twin.tpcs`` is the chip's number.
    """
    tpcs = int(description.section("twin").get("tpcs", 0))
    mask = boot_mode(description, mode_set(description), name_or_id).masks.get("tpc_pg_mask", 0)
    return 2 * (tpcs - (mask & ((1 << tpcs) - 1)).bit_count())
