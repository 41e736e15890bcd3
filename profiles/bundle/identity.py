# SPDX-License-Identifier: Apache-2.0
"""Identifying part of a manifest, which alone the resident daemon reads; the worker checks the rest (:mod:`.bundle`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from ...kernels.errors import KernelsError
from ...kernels.grid import FrequencyGrid
from ...kernels.text import printable
from ..board import BOARDS_DIR, BoardDescription, load_board
from ..device import Device
from ..documents import DocumentError, Sha256, convert, load_json
from ..errors import BundleError, ProfilesError
from .reading import MANIFEST, read_file

FORMAT_VERSION = 3
BundleName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,80}\Z", description="a plain name")]
FileName: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_.-]{0,80}\Z", description="a plain file name")]

_NO_MODELS = ("board.npz", "host.json")


class BundleIdentity(Struct, frozen=True):
    """Identity of a bundle's profile.

    Attributes:
        board: name of the board or ``device``.
        rails: energy rails with measured power; maybe empty.
        simulated: True if measured on a simulated board.
        checksums: SHA-256 of every other file, by name.
        digest: SHA-256 of the manifest and the board's rates, which determine predictions.
    """

    name: BundleName
    board: str
    grid: FrequencyGrid
    rails: tuple[str, ...]
    simulated: bool
    checksums: Mapping[FileName, Sha256] = field(default_factory=dict)
    device: Device | None = None
    digest: str = ""

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(digest for name, digest in self.checksums.items() if name not in _NO_MODELS)


def read_identity(directory: Path, *, boards: Path = BOARDS_DIR) -> BundleIdentity:
    """Read a bundle's identity, and check its board or device. Raises BundleError."""
    try:
        text = read_file(directory / MANIFEST)
        data = load_json(text)
        check_format(data)
        found = convert(printable_document(data), BundleIdentity)
        if found.device is not None and found.device.name != found.board:
            raise BundleError(f"board {found.board!r}: expected its device's name, {found.device.name!r}")
        board = found.device or load_board(found.board, boards)
        if found.grid != board.grid:
            raise BundleError(f"its grid {found.grid.shape} is not that of board {board.name} {board.grid.shape}")
        known = tuple(board.roles) if isinstance(board, BoardDescription) else board.energy_rails
        strange = [rail for rail in found.rails if rail not in known]
        if strange:
            raise BundleError(f"board {board.name} has no rail {', '.join(strange)}; valid: {', '.join(known)}")
    except (ProfilesError, KernelsError, DocumentError) as error:
        raise BundleError(f"bundle {directory}: {error}") from error
    rates = json.dumps([sorted(board.chip.flops_per_gpu_cycle.items()), board.chip.bytes_per_emc_cycle])
    return replace(found, digest=hashlib.sha256(text + rates.encode()).hexdigest())


def is_of(directory: Path, board: str) -> bool:
    """True if a bundle names this board, or cannot be read."""
    try:
        data = load_json(read_file(directory / MANIFEST))
    except (BundleError, DocumentError):
        return True
    return not isinstance(data, dict) or data.get("board", board) == board


def check_format(data: Any) -> None:
    """Raise BundleError for a manifest of another format."""
    version = data.get("format") if isinstance(data, Mapping) else None
    if version != FORMAT_VERSION:
        later = isinstance(version, int) and version > FORMAT_VERSION
        remedy = "upgrade jetdvfs to the release that made it" if later else "make the profile again with it"
        raise BundleError(f"manifest: format {version!r:.40}; this release reads {FORMAT_VERSION}: {remedy}")


def printable_document(data: Any) -> Any:
    """Document with every text made one printable line, for terminals."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, list):
        return [printable_document(item) for item in data]
    return {printable(name): printable_document(value) for name, value in data.items()} if isinstance(data, dict) else data
