# SPDX-License-Identifier: Apache-2.0
"""The finished units of a campaign, each a file of its own, so that an interrupted campaign goes on where it ended."""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..errors import MeasurementError
from .measurements import Rows, arrays_of, rows_of
from .meters.notes import Page


class KeptUnits:
    """A folder of finished units; a unit is there as a whole or not at all.

    Args:
        folder: made if it is not there; ``None`` keeps nothing.

    Raises:
        MeasurementError: it cannot be made.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise MeasurementError(f"{folder}: {error.strerror or error}; nothing was measured") from error

    def get(self, number: int) -> dict[str, Rows] | None:
        """A finished unit's tables, or None where it is not there or was cut short."""
        if self._folder is None:
            return None
        try:
            with np.load(self._path(self._folder, number), allow_pickle=False) as arrays:
                return rows_of(arrays)
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
            return None

    def page(self, number: int) -> Page:
        """What was noted with a finished unit; an empty one where nothing was."""
        if self._folder is None:
            return Page()
        with np.load(self._path(self._folder, number), allow_pickle=False) as arrays:
            return Page.from_json(json.loads(arrays["page"].tobytes())) if "page" in arrays else Page()

    def put(self, number: int, tables: Mapping[str, Rows], page: Page | None = None) -> None:
        """Keep a finished unit, and what was noted with it.

        Raises:
            MeasurementError: it cannot be written; those before are there.
        """
        if self._folder is None:
            return
        path = self._path(self._folder, number)
        fresh = path.with_suffix(".tmp")
        arrays = arrays_of(tables)
        if page is not None:
            arrays["page"] = np.frombuffer(json.dumps(page.to_json()).encode(), np.uint8)
        try:
            with fresh.open("wb") as file:
                np.savez(file, **arrays)
            fresh.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink()
            why = f"{self._folder}: {error.strerror or error}"
            raise MeasurementError(f"{why}; the {number} steps before are kept, and the same command goes on there") from error

    @staticmethod
    def _path(folder: Path, number: int) -> Path:
        return folder / f"unit-{number:05d}.npz"
