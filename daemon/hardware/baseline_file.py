# SPDX-License-Identifier: Apache-2.0
"""The file that keeps how a board was found: written in one step, removed when the board is as it was."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import HardwareRefused
from .clocks.domain import ClockDomain

_VERSION = 1


class BaselineDamaged(HardwareRefused):
    """A baseline's file cannot be understood, so that nothing can be given back by it."""


@dataclass(frozen=True)
class BaselineEntry:
    """What is ours in one file.

    Attributes:
        values: values we wrote or meant to write, and what the last one read back as.
        confirmed: the last write was seen to take effect; until then another value proves nothing.
    """

    values: tuple[str, ...]
    confirmed: bool


@dataclass(frozen=True)
class BaselineRecord:
    """What the file holds.

    Attributes:
        boot_id: the boot that it counts for.
        domains: the clock domains that it covers.
        values: what each file of theirs held when it was found.
        journal: what was written to each since.
    """

    boot_id: str
    domains: tuple[ClockDomain, ...]
    values: Mapping[str, str]
    journal: Mapping[str, BaselineEntry]


def load_record(path: Path) -> BaselineRecord | None:
    """Read the file; None where there is none.

    Raises:
        BaselineDamaged: it cannot be understood; the text says how to go on.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != _VERSION:
            raise ValueError(f"version {data['version']}, expected {_VERSION}")
        journal = {name: BaselineEntry(tuple(e["values"]), bool(e["confirmed"])) for name, e in data["journal"].items()}
        domains = tuple(ClockDomain.from_json(item) for item in data["domains"])
        outside = [name for domain in domains for name in domain.paths if not name.startswith("/sys/") or ".." in name]
        if outside:
            raise ValueError(f"{outside[0]} is not below /sys")
        return BaselineRecord(str(data["boot_id"]), domains, dict(data["values"]), journal)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BaselineDamaged(f"baseline {path}: damaged ({error}); set the clocks by hand, then remove it") from error


def save_record(path: Path, record: BaselineRecord) -> None:
    """Write the file in one step; it is on disk afterwards.

    Raises:
        HardwareRefused: it cannot be written; nothing may be set then.
    """
    data = {
        "version": _VERSION,
        "boot_id": record.boot_id,
        "domains": [asdict(domain) for domain in record.domains],
        "values": record.values,
        "journal": {name: asdict(entry) for name, entry in record.journal.items()},
    }
    partial = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(data, stream)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise HardwareRefused(f"baseline {path}: cannot be written ({error.strerror}); no clock was set") from error


def remove_record(path: Path) -> None:
    """Remove the file, where there is one, for good."""
    if path.exists():
        path.unlink()
        _sync_folder(path.parent)


def set_aside(path: Path, damage: BaselineDamaged) -> Path:
    """Rename a damaged file, for people to look at; returns where it is now.

    Raises:
        HardwareRefused: it cannot be renamed.
    """
    aside = path.with_name(path.name + ".damaged")
    try:
        path.replace(aside)
    except OSError as trouble:
        raise HardwareRefused(f"{damage}; it cannot be set aside ({trouble.strerror})") from damage
    return aside


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
