# SPDX-License-Identifier: Apache-2.0
"""What a report is made of: each of the paper's tables and figures as headers and rows, its own figures beside the record's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....kernels.grid import FrequencyGrid

PAPER = "paper"
MEAN = "mean"


@dataclass(frozen=True)
class Section:
    """One of the paper's tables or figures.

    Attributes:
        part: its name, for instance ``table-4``.
        title: what it shows.
        notes: how it was made, and what to keep in mind; sentences.
        headers, rows: the table; columns headed :data:`PAPER` are the paper's own figures of the column before.
    """

    part: str
    title: str
    notes: tuple[str, ...]
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        """``Table 4``."""
        kind, _, number = self.part.partition("-")
        return f"{kind.capitalize()} {number}"

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "notes": self.notes, "headers": self.headers, "rows": self.rows}


def where(grid: FrequencyGrid, configuration: int) -> str:
    """A configuration that all boards have in common, in words."""
    places = {0: "lowest", grid.size - 1: "highest"}
    index = np.unravel_index(configuration, grid.shape)
    if index[1:] == (0, 0):
        return "low"
    return "high" if places.get(configuration) == "highest" else "middle"


def boards_named(nodes: Sequence[int]) -> str:
    return f"board{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
