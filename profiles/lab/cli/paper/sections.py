# SPDX-License-Identifier: Apache-2.0
"""Tables of a report, with the paper's values next to the record's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from .....kernels.grid import FrequencyGrid
from ...paper.overhead import Overhead
from ...paper.published import NAMES

PAPER = "paper"
MEAN = "mean"

FITTED = "the chip was fitted to MIRAGE's Tables 1, 4, 5 and 6 and Figure 2, so agreement with them is no prediction"
DIFFERENCES = (
    "Models predict the logarithm of time over a roofline bound, from derived features; the paper's predict the logarithm of "
    "time from raw shapes, parameters and clocks. Tables 4 and 5 have a column with its recipe.",
    "Hyperparameters are set, not searched, without --recipes; reg_lambda 1 and reg_alpha 0 lie outside of Table 2.",
    "In Figures 2 and 3 the lowest CPU clock is a sixth up the range; the paper's footnote 3 says so of Figure 4 alone.",
    "Networks are predicted by a timeline of host and GPU; the paper adds kernels up, as the column 'plain sum' does.",
    "Boards are left out one at a time, 4 by default; the paper trained on 11 boards and left 2 out.",
    "Kernels are exact medians on simulated boards; the paper's are medians of 100 runs on 13 real ones.",
    "Distributions are compared by 40 medians at 3 configurations; the paper has 500 configurations of 10,000 runs.",
    "Random kernels reach further than the networks' own ranges.",
    "Factors for kernels inside networks are fitted to the judged networks as wholes on other boards.",
    "Table 8 compares 1 board with the others of the record, 24 times with 13 boards; the paper has 26 comparisons.",
)


class Section(Struct, frozen=True):
    """Table or figure of the paper; columns headed :data:`PAPER` are its values of the column before."""

    part: str
    title: str
    notes: tuple[str, ...]
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        kind, _, number = self.part.partition("-")
        return f"{kind.capitalize()} {number}"

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "notes": self.notes, "headers": self.headers, "rows": self.rows}


def where(grid: FrequencyGrid, configuration: int) -> str:
    _, gpu, emc = (int(at) for at in np.unravel_index(configuration, grid.shape))
    if configuration == grid.size - 1:
        return "high"
    return "low" if gpu == emc == 0 else "middle"


def model_name(overhead: Overhead) -> str:
    return f"{NAMES[overhead.kind]} {'runtime' if overhead.target == 'time' else 'power'}"


def boards_named(nodes: Sequence[int]) -> str:
    return f"board{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
