# SPDX-License-Identifier: Apache-2.0
"""How near a board that was left out comes to the mean of what the others measured of the very same kernels.

No model of the others can be expected to be nearer: what is left is that boards differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...adapt.measurements import Measurements, Rows
from .accuracy import Compared
from .published import NAMES
from .rotation import DTYPE, total_mw

_TABLES = {"time": "fixed_kernel_ms", "power": "fixed_kernel_mw"}


def means_of_others(record: Measurements, left_out: Sequence[int]) -> Mapping[tuple[str, str], Compared]:
    """Networks' kernels at the configurations that all boards have in common, by kind and target ("time" in ms, "power" in W);
    empty where the record has none."""
    board, found = record.described, dict[tuple[str, str], list[Compared]]()
    for target, table in _TABLES.items():
        for kind in NAMES:
            of_kind = [what for what, call in enumerate(record.invocations) if call.kind == kind and call.dtype == DTYPE]
            rows = record.tables[table].where(np.isin(record.tables[table].what, of_kind))
            for node in left_out:
                mine, others = rows.where(rows.node == node), rows.where(rows.node != node)
                known, place = np.unique(_asked(others, board.grid.size), return_inverse=True)
                mine = mine.where(np.isin(_asked(mine, board.grid.size), known))
                if not len(mine):
                    continue
                means = np.bincount(place, np.maximum(others.value, 0.0)) / np.bincount(place)
                mean = means[np.searchsorted(known, _asked(mine, board.grid.size))]
                value = np.maximum(mine.value, 0.0)
                if target == "power":
                    mean = (mean + total_mw(record, set(record.nodes) - {node}, board)[mine.configuration]) / 1e3
                    value = (value + total_mw(record, {node}, board)[mine.configuration]) / 1e3
                found.setdefault((kind, target), []).append(Compared(mean, value, mine.node))
    return {key: Compared.joined(parts) for key, parts in found.items()}


def _asked(rows: Rows, configurations: int) -> NDArray[np.int64]:
    """A number for each kernel and configuration."""
    return rows.what * configurations + rows.configuration
