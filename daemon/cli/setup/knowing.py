# SPDX-License-Identifier: Apache-2.0
"""What is known of a board before anything is measured: its profiles, its clocks, its sensors, and what stands in the way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....profiles.board import BoardDescription, load_board
from ....profiles.bundle.bundle import read_manifest
from ....profiles.bundle.finding import find_bundles, resolve_bundle
from ....profiles.bundle.manifest import Manifest
from ....profiles.errors import ProfilesError
from ...errors import InputError
from .board import SetUpBoard


@dataclass(frozen=True)
class Known:
    """What is known.

    Attributes:
        title, board: the board.
        profiles: the names of its own profiles.
        prior: the profile that would be adapted, and where it is.
        manifest: what that says of itself.
        levels: how many levels each clock offers now, of how many.
        missing: the energy rails that no sensor measures.
        notes: what else stands in the way of setting clocks.
    """

    title: str
    board: str
    profiles: tuple[str, ...]
    prior: Path
    manifest: Manifest
    levels: dict[str, tuple[int, int]]
    missing: tuple[str, ...]
    rails: tuple[str, ...]
    notes: tuple[str, ...]

    def check_ready(self) -> None:
        """Refuse what cannot be set up.

        Raises:
            InputError: power cannot be measured.
        """
        if self.missing:
            raise InputError(
                f"power rails {', '.join(self.missing)} cannot be read: a profile needs them; 'jetdvfs doctor' says more"
            )

    def lines(self) -> Iterator[str]:
        """It all, for people."""
        yield f"board          {self.title} ({self.board})"
        own = ", ".join(self.profiles) or "none"
        yield f"its profiles   {own}"
        origin = f"board {self.manifest.board}{', simulated' if self.manifest.simulated else ''}"
        yield f"to be adapted  {self.manifest.name} ({origin})"
        shown = (
            f"{axis.partition('_')[0]} {f'{now} of {of}' if now <= of else f'{now}, more than the described {of},'} levels"
            for axis, (now, of) in self.levels.items()
        )
        yield f"clocks         {', '.join(shown)}"
        without = f"; not to be read: {', '.join(self.missing)}" if self.missing else ""
        yield f"power rails    {', '.join(self.rails) or 'none'}{without}"
        for note in self.notes:
            yield f"note           {note}"

    def to_json(self) -> dict[str, Any]:
        return {
            "board": self.board, "profiles": list(self.profiles), "prior": self.manifest.name,
            "prior_board": self.manifest.board,
            "clocks": {axis: {"offered": now, "described": of} for axis, (now, of) in self.levels.items()},
            "rails": list(self.rails), "missing_rails": list(self.missing), "notes": list(self.notes),
        }  # fmt: skip


def what_is_known(board: SetUpBoard, wanted: str | None) -> Known:
    """Look at the board and at the profiles there are.

    Raises:
        InputError: there is no profile that could be adapted.
        BundleError: the one wanted does not exist, or is malformed.
    """
    description, (offered, unknown) = board.description, board.hardware.seen()
    manifests = {}
    for name, path in find_bundles().items():
        try:
            manifests[name] = (path, read_manifest(path))
        except ProfilesError:
            continue
    own = tuple(name for name, (_, manifest) in manifests.items() if manifest.board == description.name)
    if wanted is not None:
        prior = resolve_bundle(wanted)
        manifest = read_manifest(prior)
    else:
        usable = [one for one in manifests.values() if one[1].rails and one[1].carried is None and one[1].device is None]
        if not usable:
            raise InputError("no profile that could be adapted is there; make one: jetdvfs-lab train --simulated --board NAME")
        prior, manifest = min(usable, key=lambda one: _distance(one[1], description))
    missing = board.missing_rails()
    return Known(
        title=description.title,
        board=description.name,
        profiles=own,
        prior=prior,
        manifest=manifest,
        levels={
            axis: (len(offered.levels(axis)), len(description.grid.levels(axis))) for axis in ("cpu_khz", "gpu_hz", "emc_hz")
        },
        missing=tuple(missing),
        rails=tuple(rail for rail in board.energy_rails if rail not in missing),
        notes=(*board.hardware.notes, *unknown),
    )


def _distance(manifest: Manifest, description: BoardDescription) -> tuple[bool, bool, bool, float]:
    """How far a profile's board is from another: another board, simulated, another chip; by how much faster or slower."""
    theirs = load_board(manifest.board)
    speeds = [one.chip.flops_per_gpu_cycle["float32"] * one.grid.gpu_hz[-1] for one in (theirs, description)]
    return (
        manifest.board != description.name,
        theirs.soc != description.soc,
        manifest.simulated,
        abs(math.log(speeds[0] / speeds[1])),
    )
