# SPDX-License-Identifier: Apache-2.0
"""Choice of the daemon's profile."""

from __future__ import annotations

import logging
from pathlib import Path

from msgspec import Struct

from ..profiles.bundle.finding import find_bundles, resolve_bundle
from ..profiles.bundle.identity import BundleIdentity, is_of, read_identity
from ..profiles.errors import BundleError
from .errors import InputError
from .wire.protocol import one_line

log = logging.getLogger(__name__)


class Profile(Struct, frozen=True):
    path: Path
    identity: BundleIdentity


def find_profile(name_or_dir: str, board: str) -> Profile:
    path = resolve_bundle(name_or_dir).resolve()
    identity = read_identity(path)
    if identity.board != board:
        raise InputError(f"profile {identity.name} was made for board {identity.board}; this board is {board}")
    return Profile(path, identity)


def choose_profile(name_or_dir: str | None, board: str, *, running_system: bool) -> tuple[Profile | None, tuple[str, ...]]:
    """The wanted profile, or the board's first one, and notes if there is none; errors as for :func:`find_profile`.

    On the running system, a profile of a simulated board is used only by name.
    """
    if name_or_dir is not None:
        return find_profile(name_or_dir, board), ()
    simulated = []
    for name, path in find_bundles().items():
        if not is_of(path, board):
            continue
        try:
            identity = read_identity(path)
            if identity.board == board and not identity.simulated:
                return Profile(path.resolve(), identity), ()
            simulated += [(name, Profile(path.resolve(), identity))] if identity.board == board else []
        except BundleError as error:
            log.warning("profile %s is passed over: %s", name, one_line(error))
    if simulated and not running_system:
        return simulated[0][1], ()
    none = f"no profile of board {board} is in use: configurations can be held, nothing can be predicted"
    if not simulated:
        log.warning("%s", none)
        return None, ()
    name, _ = simulated[0]
    return None, (f"{none}; to plan with one that was measured on a simulated board, configure profile: {name}",)
