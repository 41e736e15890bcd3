# SPDX-License-Identifier: Apache-2.0
"""Finished units of a campaign, one file each, for resuming."""

from __future__ import annotations

import contextlib
import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import asdict

from ....kernels.stored_files import replacing
from ...adapt.measurements import MeasurementRows, arrays_of, rows_of
from ...errors import MeasurementError
from .meters.notes import StepNotes

_ABOUT = "campaign.json"


class UnitStore:
    """Folder of finished units, written atomically; None keeps nothing. Raises MeasurementError."""

    def __init__(self, folder: Path | None, digest: str = "", about: Mapping[str, Any] | None = None) -> None:
        self._folder = None if folder is None else folder / digest
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                if not (told := self._folder / _ABOUT).exists():
                    told.write_text(json.dumps(about or {}))
            except OSError as error:
                raise MeasurementError(f"{self._folder}: {error.strerror or error}; nothing was measured") from error

    def get(self, number: int) -> dict[str, MeasurementRows] | None:
        if self._folder is None:
            return None
        try:
            with np.load(self._path(self._folder, number), allow_pickle=False) as arrays:
                return rows_of(arrays)
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
            return None

    def page(self, number: int) -> StepNotes:
        if self._folder is None:
            return StepNotes()
        with np.load(self._path(self._folder, number), allow_pickle=False) as arrays:
            return StepNotes.from_json(json.loads(arrays["page"].tobytes())) if "page" in arrays else StepNotes()

    def put(self, number: int, tables: Mapping[str, MeasurementRows], page: StepNotes | None = None) -> None:
        """Keep a finished unit and its notes. Raises MeasurementError."""
        if self._folder is None:
            return
        arrays = arrays_of(tables)
        if page is not None:
            arrays["page"] = np.frombuffer(json.dumps(asdict(page)).encode(), np.uint8)
        try:
            with replacing(self._path(self._folder, number), durable=False) as file:
                np.savez(file, **arrays)
        except OSError as error:
            why = f"{self._folder}: {error.strerror or error}"
            raise MeasurementError(f"{why}; the {number} steps before are kept, and the same command goes on there") from error

    @staticmethod
    def _path(folder: Path, number: int) -> Path:
        return folder / f"unit-{number:05d}.npz"


def parts_folder(out: Path, folder: Path | None) -> Path:
    return folder or out.with_name(f"{out.name}.parts")


def kept_of_another(folder: Path, digest: str, about: Mapping[str, Any]) -> str:
    """Message that a folder keeps a different campaign, or an empty string."""
    if (folder / digest).is_dir():
        return ""
    differing = set[str]()
    others = sorted(folder.glob(f"*/{_ABOUT}"))
    for path in others:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            theirs = json.loads(path.read_text())
            differing |= {name for name, value in json.loads(json.dumps(about)).items() if theirs.get(name) != value}
    what = f"other {', '.join(name for name in about if name in differing)}" if differing else "another one"
    return f"{folder}: keeps a campaign of {what}; this one begins anew, next to it" if others else ""


def forget_parts(folder: Path, digest: str) -> None:
    shutil.rmtree(folder / digest, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
