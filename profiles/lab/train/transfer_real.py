# SPDX-License-Identifier: Apache-2.0
"""Learning programs on published tables of real boards, from random observations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ....kernels.correction.correct import correct
from ....kernels.correction.flat import flat_surface
from ....kernels.correction.observation import Observation
from ....kernels.cost.model import surface
from ....kernels.surface import Surface
from ...adapt.prior import prior_of
from ...board import load_board
from ...bundle.bundle import Bundle
from ...reference import reference_network
from ...twin.measured.tables import MeasuredTable
from .transfer_table import COUNTS, overlap_fit, two_rates

Array: TypeAlias = NDArray[np.float64]
Figures: TypeAlias = tuple[Array, Array | None]
"""Latency in ms and power in mW, if known, at a table's configurations."""

PROFILE, UNPREDICTED, OVERLAP, LAUNCHES = "profile", "no profile", "overlap fit", "launches, two rates"
WAYS = (PROFILE, UNPREDICTED, OVERLAP, LAUNCHES)
RUNS = 24
"""Least number of random orders per table and board; two of each program."""
_FRAMES = 30  # rows of the tables are means of many


class TransferErrors(Struct, frozen=True):
    """|predicted / measured - 1| in percent at unobserved configurations, medians over programs and orders."""

    latency_mean_percent: float
    latency_median_percent: float
    power_mean_percent: float | None
    power_median_percent: float | None


class RealRow(Struct, frozen=True):
    """Errors on a table's programs on one board, by :data:`WAYS`."""

    table: str
    board: str
    source: str
    programs: int
    observations: int
    errors: Mapping[str, TransferErrors]


def on_real_boards(
    tables: Sequence[MeasuredTable],
    profile_of: Callable[[str], Bundle | None],
    seed: int = 0,
    progress: Callable[[int, int, str], None] = lambda done, total, text: None,
) -> list[RealRow]:
    """A row for each table, board and number of observations, :data:`.transfer_table.COUNTS` up to the table's configurations.

    ``profile_of`` returns the profile that predicts known launches on a board, if any. Raises BoardDescriptionError, GridError.
    """
    found: dict[tuple[str, str, int], dict[str, list[list[float | None]]]] = {}
    programs: dict[tuple[str, str], list[MeasuredTable]] = {}
    for table in tables:
        programs.setdefault((table.name, table.board), []).append(table)
    for number, table in enumerate(tables):
        progress(number, len(tables), f"{table.workload} on a {table.board}")
        program = _TableProgram(table, profile_of(table.board) if table.reference else None)
        for draw in range(max(2, -(-RUNS // len(programs[table.name, table.board])))):
            order = np.random.default_rng([seed, draw]).permutation(len(program.cells))
            for count in (count for count in COUNTS if count < len(order)):
                for way, figures in program.after(order[:count]):
                    ways = found.setdefault((table.name, table.board, count), {})
                    ways.setdefault(way, []).append(program.errors(figures, order[count:]))
    progress(1, 1, "done")
    return [
        RealRow(
            *(name, board, own[0].source, len(own), count),
            {way: TransferErrors(*_middle(runs)) for way, runs in found[name, board, count].items()},
        )
        for (name, board), own in programs.items()
        for count in COUNTS
        if (name, board, count) in found
    ]


class _TableProgram:
    """Program of a table, with every method's predictions at measured configurations."""

    def __init__(self, table: MeasuredTable, profile: Bundle | None) -> None:
        self.cells = [(int(cpu), int(gpu), int(emc)) for cpu, gpu, emc in np.argwhere(table.measured)]
        self._grid, self._device = table.grid, load_board(table.board)
        here = tuple(np.array(self.cells).T)
        self._measured = table.latency_ms[here], table.power_mw[here]
        self._observations = [
            Observation(self._grid.configuration(cell), float(ms), float(mw), frames=_FRAMES)
            for cell, ms, mw in zip(self.cells, *self._measured, strict=True)
        ]
        self._network = reference_network(table.reference, table.batch) if table.reference else None
        self._predicted = None
        if self._network is not None and profile is not None:
            self._predicted = surface(self._network, prior_of(profile, self._device).cost)

    def after(self, numbers: NDArray[np.intp]) -> Iterator[tuple[str, Figures]]:
        seen = [self._observations[number] for number in numbers]
        if self._predicted is not None:
            yield PROFILE, self._at_cells(correct(self._predicted, seen).surface if seen else self._predicted)
        if seen:
            yield UNPREDICTED, self._at_cells(correct(flat_surface(self._grid), seen).surface)
            yield OVERLAP, self._at_cells(overlap_fit(self._grid, seen))
        if self._network is not None:
            latency_ms = two_rates(self._network, self._device.chip, self._grid, seen)
            yield LAUNCHES, (latency_ms[tuple(np.array(self.cells).T)], None)

    def errors(self, figures: Figures, numbers: NDArray[np.intp]) -> list[float | None]:
        found: list[float | None] = []
        for ours, measured in zip(figures, self._measured, strict=True):
            percent = None if ours is None else 100 * np.abs(ours / measured - 1)[numbers]
            found += [None, None] if percent is None else [float(percent.mean()), float(np.median(percent))]
        return found

    def _at_cells(self, made: Surface) -> Figures:
        places = tuple(np.array([made.grid.index(one.configuration) for one in self._observations]).T)
        return made.latency_ms[places], made.power_mw[places]


def _middle(runs: Sequence[Sequence[float | None]]) -> list[Any]:
    return [None if column[0] is None else float(np.median(column)) for column in zip(*runs, strict=True)]
