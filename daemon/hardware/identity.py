# SPDX-License-Identifier: Apache-2.0
"""Identity of the board and its software, from the device tree and the L4T release file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...profiles.board import BOARDS_DIR, BoardDescription, list_boards, load_board
from ...profiles.timing import Clock
from ..errors import DaemonError, HardwareBusy, InputError
from .files import Files

# Containers often lack the second.
DEVICE_TREES = ("/sys/firmware/devicetree/base", "/proc/device-tree")
RELEASE_FILE = "/etc/nv_tegra_release"
# nvpmodel's configuration name, which names the module if no device tree is visible.
MODES_FILE = "/var/lib/nvpmodel/conf_file_path"
# Retry time and interval for a device tree that does not answer.
_READ_AGAIN_S, _PAUSE_S = 5.0, 0.25
# NVIDIA's release notes; an unlisted release is known by its first number.
JETPACK_BY_L4T = {
    "32": "4",
    "32.7": "4.6",
    "35": "5",
    "35.3.1": "5.1.1",
    "35.4.1": "5.1.2",
    "36": "6",
    "36.3": "6.0",
    "36.4": "6.1",
    "36.4.3": "6.2",
    "36.4.4": "6.2.1",
    "36.4.7": "6.2.1",
    "36.5": "6.2.2",
    "38": "7",
    "38.2": "7.0",
    "38.4": "7.1",
    "39": "7",
    "39.2": "7.2",
}


class BoardIdentity(Struct, frozen=True):
    model: str
    compatible: tuple[str, ...]
    l4t: str
    jetpack: str
    kernel: str
    modes_conf: str = ""
    unread: tuple[str, ...] = ()


def read_identity(files: Files) -> BoardIdentity:
    found = {"model": "", "compatible": ""}
    unread = []
    for path in (f"{tree}/{name}" for tree in DEVICE_TREES for name in found):
        name = path.rpartition("/")[2]
        try:
            found[name] = found[name] or files.read_text(path)
        except DaemonError as error:
            unread += [str(error)] if files.exists(path) else []
    release = re.search(r"# R(\d+) \(release\), REVISION: ([\d.]+)", files.find_text(RELEASE_FILE) or "")
    l4t = f"{release[1]}.{release[2]}" if release else ""
    parts = l4t.split(".")
    jetpack = next((known for n in (3, 2, 1) if (known := JETPACK_BY_L4T.get(".".join(parts[:n])))), "")
    kernel = files.find_text("/proc/sys/kernel/osrelease") or ""
    names = tuple(name for name in found["compatible"].split("\0") if name)
    return BoardIdentity(found["model"], names, l4t, jetpack, kernel, files.find_text(MODES_FILE) or "", tuple(unread))


def identify(
    files: Files, clock: Clock, boards: Sequence[BoardDescription] | None = None
) -> tuple[BoardIdentity, BoardDescription]:
    """Identity of the running system, and its board, retried while the device tree does not answer."""
    deadline = clock.monotonic() + _READ_AGAIN_S
    while True:
        identity = read_identity(files)
        try:
            return identity, match_board(identity, likely_boards(identity) if boards is None else tuple(boards))
        except InputError:
            if not identity.unread:
                raise
        if clock.monotonic() >= deadline:
            raise HardwareBusy(f"it cannot be told which board this is: {'; '.join(identity.unread)}")
        clock.sleep(_PAUSE_S)


def described_boards() -> tuple[BoardDescription, ...]:
    return tuple(load_board(name) for name in list_boards())


def likely_boards(identity: BoardIdentity) -> tuple[BoardDescription, ...]:
    """Boards whose files hold a name that the device tree lists, else all, as loading takes milliseconds; none for no name."""
    if not (identity.compatible or identity.model or identity.modes_conf):
        return ()
    texts = {name: (BOARDS_DIR / f"{name}.yaml").read_text(encoding="utf-8") for name in list_boards()}
    named = [name for name, text in texts.items() if any(one in text for one in identity.compatible)]
    found = tuple(load_board(name) for name in named)
    known = {name for board in found for name in board.compatible[:-1]}
    return found if known.intersection(identity.compatible) else described_boards()


def parts_in(text: str) -> set[str]:
    """Part numbers of NVIDIA's modules and carriers in a name: ``p3767-0003``."""
    return set(re.findall(r"(?<![0-9a-z])p\d{4}-\d{4}(?![0-9])", text.replace("_", "-")))


def match_board(identity: BoardIdentity, boards: Sequence[BoardDescription]) -> BoardDescription:
    """The description of the board that a device tree names; raises InputError.

    The tree lists names from most to least specific; a description's last name, its chip's, does not suffice. A module's part
    number identifies it on any carrier (``vendor,carrier+p3767-0003``); in a container, nvpmodel's file may name it. An
    undescribed module of a known chip uses a described board's files (:attr:`BoardDescription.like`).
    """

    def rank(board: BoardDescription) -> int | None:
        places = [identity.compatible.index(name) for name in board.compatible[:-1] if name in identity.compatible]
        return min(places, default=None)

    ranked = [(place, board) for board in boards if (place := rank(board)) is not None]
    if ranked:
        best = min(place for place, _ in ranked)
        fitting = [board for place, board in ranked if place == best]
        return next((board for board in fitting if board.model == identity.model), fitting[0])
    modules = {module for board in boards for module in board.modules}
    carriers = parts_in(" ".join(name for board in boards for name in board.compatible)) - modules
    told = parts_in(" ".join(identity.compatible)) - carriers
    of_chip = [board for board in boards if not identity.compatible or board.compatible[-1] in identity.compatible]
    unseen = identity.unread and not identity.compatible  # a device tree that does not answer may name another module
    named = told or (set() if unseen else parts_in(identity.modes_conf.rpartition("/")[2]))
    by_module = next((board for board in (boards if told else of_chip) if named.intersection(board.modules)), None)
    if by_module is not None:
        return by_module
    by_model = next((board for board in boards if not told and identity.model and board.model == identity.model), None)
    found = by_model or _undescribed(identity, told, [board for board in boards if board.compatible[-1] in identity.compatible])
    if found is None:
        described = ", ".join([board.name for board in boards] or list_boards())
        said = ", ".join((identity.model, *identity.compatible)).strip(", ") or "nothing"
        raise InputError(
            f"no described board fits this machine, whose device tree says {said}; described: {described} "
            "('board: NAME' in the configuration takes it for one of them)"
        )
    return found


def _undescribed(identity: BoardIdentity, parts: set[str], of_chip: Sequence[BoardDescription]) -> BoardDescription | None:
    """An undescribed module: of the same series by part number, or else of the same chip."""
    series = {part.partition("-")[0] for part in parts}
    related = [board for board in of_chip if series.intersection(module.partition("-")[0] for module in board.modules)]
    if not of_chip:
        return None
    like = (related or of_chip)[0]
    name = min((part for part in parts if part.partition("-")[0] in " ".join(like.modules)), default=like.soc)
    return replace(
        like,
        name=name,
        title=identity.model or name,
        model=identity.model,
        compatible=identity.compatible,
        modules=(),
        firmware={},
        marks=dict.fromkeys(like.marks, "unknown"),
        like=like.name,
    )
