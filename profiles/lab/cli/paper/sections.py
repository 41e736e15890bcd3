# SPDX-License-Identifier: Apache-2.0
"""What a report is made of: each of the paper's tables and figures as headers and rows, its own figures beside the record's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .....kernels.grid import FrequencyGrid
from ...paper.overhead import Overhead
from ...paper.published import NAMES

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
    _, gpu, emc = (int(at) for at in np.unravel_index(configuration, grid.shape))
    if configuration == grid.size - 1:
        return "high"
    return "low" if gpu == emc == 0 else "middle"


def model_name(overhead: Overhead) -> str:
    """The model that an overhead is of: ``Conv2d runtime``."""
    return f"{NAMES[overhead.kind]} {'runtime' if overhead.target == 'time' else 'power'}"


def boards_named(nodes: Sequence[int]) -> str:
    return f"board{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
