# SPDX-License-Identifier: Apache-2.0
"""A described board as installed: with one of its JetPack releases and one of its firmwares.

``twin.releases`` of a description says for each JetPack what differs from the rest of the file, and ``twin.firmware`` for each
firmware what differs beside the axes. Both are laid over the description: mappings are merged, null removes a key, everything
else replaces.
``twin.like`` names a board whose ``twin`` section a board's own is laid over; ``twin.usual_firmware`` the firmware that a
release is found with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..board import BoardDescription, ModeSet, PowerMode, load_board, parse_board
from ..documents import DocumentError, laid_over
from ..errors import TwinError


def installed(description: BoardDescription, jetpack: str = "", firmware: str = "") -> BoardDescription:
    """The description of a board with this JetPack (``"5"``; by default the description's own) and this firmware.

    Raises:
        TwinError: the description does not describe the twin with them; the text lists those it describes.
    """
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
    """The twin section, laid over those of the boards that it is like."""
    twin = description.raw.get("twin")
    if not isinstance(twin, Mapping):
        raise TwinError(f"board {description.name}: has no twin section, so that it cannot be simulated")
    if "like" not in twin:
        return twin
    own = {"silicon": description.name, **twin}
    # What was measured on another board was not measured on this one.
    below = {**_twin(load_board(str(twin["like"]))), "calibrated_on": "nothing"}
    return laid_over(below, own)


def mode_set(description: BoardDescription) -> ModeSet:
    """The power modes of an installed board: those named after its firmware, else those that its description lists last."""
    firmware = description.section("twin").get("installed_firmware")
    return next((modes for modes in description.modes if modes.name == firmware), description.modes[-1])


def boot_mode(description: BoardDescription, modes: ModeSet, wanted: str = "") -> PowerMode:
    """The power mode that a board boots with.

    Args:
        wanted: its name; by default the one of the description's ``twin`` section (by name or ID), else the modes' own.

    Raises:
        TwinError: the board has no mode of that name; the text lists those it has.
    """
    usual = description.section("twin").get("power_mode")
    for choice in (wanted,) if wanted else (usual, modes.default):
        for mode in modes.table:
            if choice in (mode.id, mode.name):
                return mode
    names = ", ".join(mode.name for mode in modes.table)
    raise TwinError(f"board {description.name}: no power mode {wanted!r}; valid: {names}")


def powered_sms(description: BoardDescription, wanted: str = "") -> int:
    """The streaming multiprocessors that the mask of the mode at boot leaves powered; 0 where the twin has no such mask.

    A mask's bit is a TPC, of two multiprocessors; ``twin.tpcs`` says how many the chip was made with.
    """
    tpcs = int(description.section("twin").get("tpcs", 0))
    mask = boot_mode(description, mode_set(description), wanted).masks.get("tpc_pg_mask", 0)
    return 2 * (tpcs - (mask & ((1 << tpcs) - 1)).bit_count())
