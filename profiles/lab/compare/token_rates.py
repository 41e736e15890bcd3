# SPDX-License-Identifier: Apache-2.0
"""How long a token takes and what it costs, by two rates each of a runtime on a board; and each row from all others.

A launch's time is what its bytes take on the way from memory and what its instructions take in the GPU's units, of which the
longer one shows (their third powers add up), and its start at the GPU's clock; launches run one after the other. In eager
execution the host issues them meanwhile, and that overlaps, too. Keys and values may reach less of the bandwidth than weights
do: few heads of them leave units idle.

A token's energy is a power of each unit that is on, as long as it lasts, and so much for each byte and each instruction. What
is gated draws nothing; how many instructions a weight takes depends on its format (:data:`.token_models.INSTRUCTIONS`).

Fitted are the three prices of energy, and two rates, whichever explain the others best: of the bandwidth that is reached, the
cycles of an instruction, a launch's start and what keys and values take.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...errors import ComparisonDataError
from .token_rows import Row

WITHIN_MS, WITHIN_MJ = 0.15, 0.20
"""How far off a prediction may be: of tokens per second, and of the energy of one."""

EAGER = ("transformers",)
_OVERLAP = 3.0
# What rates are before anything is fitted, in the order of `Rates`; and the third under eager execution.
_USUAL, _USUAL_HOST_MS = (1.2, 1 / 128, 12_000.0, 1.0), 0.1
_LEAST = (1.0, 1e-5, 1e-3, 0.5)
_MEMORY, _WORK, _START, _CACHE = range(4)
_PAIRS = ((_MEMORY, _START), (_MEMORY, _WORK), (_WORK, _START), (_MEMORY, _CACHE), (_WORK, _CACHE))
# What rows say nothing of stays as it is: weight of a rate's usual value, in the same logarithms as the rows' errors.
_HOLD = 0.03


@dataclass(frozen=True)
class Rates:
    """Of a runtime on a board.

    Attributes:
        memory: the memory's peak over the bandwidth that is reached.
        work: cycles of one unit (a TPC) for each instruction.
        start: of a launch: cycles of the GPU, or milliseconds of the host under eager execution.
        cache: how much longer a byte of keys and values takes than one of weights.
        unit_mw: power of each unit that is on, while tokens are made; byte_mj, instruction_mj: energy for each.
    """

    memory: float
    work: float
    start: float
    cache: float = 1.0
    unit_mw: float = 0.0
    byte_mj: float = 0.0
    instruction_mj: float = 0.0

    def ms(self, row: Row) -> float:
        """What a token of a row takes."""
        clocks, token = row.clocks, row.token
        if row.runtime in EAGER:
            return _longer(1e3 * self.memory * token.bytes / clocks.memory_bytes_s, self.start * token.launches)
        shown_ms = 1e3 * self.start * token.launches / clocks.gpu_hz
        for part in token.parts:
            memory_ms = 1e3 * self.memory * part.bytes * (self.cache if part.cache else 1.0) / clocks.memory_bytes_s
            shown_ms += _longer(memory_ms, 1e3 * self.work * part.instructions / (clocks.units * clocks.gpu_hz))
        return shown_ms

    def mj(self, row: Row) -> float:
        """What a token of a row costs."""
        token = row.token
        power_mj = self.unit_mw * row.clocks.units * self.ms(row) / 1e3
        return power_mj + self.byte_mj * token.bytes + self.instruction_mj * token.instructions


@dataclass(frozen=True)
class Judged:
    """A row, and the rates that were fitted to the other rows of its group; None where it stands alone."""

    row: Row
    rates: Rates | None

    @property
    def ms(self) -> float:
        """What a token is predicted to take; no number without rates."""
        return self.rates.ms(self.row) if self.rates else math.nan

    @property
    def mj(self) -> float:
        """What a token is predicted to cost; no number without rates."""
        return self.rates.mj(self.row) if self.rates else math.nan

    @property
    def rate_error(self) -> float:
        """Of tokens per second, relative."""
        return self.row.ms / self.ms - 1

    @property
    def energy_error(self) -> float:
        """Of the energy of a token, relative."""
        return self.mj / self.row.mj - 1

    @property
    def in_time(self) -> bool:
        return abs(self.rate_error) <= WITHIN_MS

    @property
    def in_energy(self) -> bool:
        return abs(self.energy_error) <= WITHIN_MJ


def fit(rows: Sequence[Row]) -> Rates:
    """The rates of a runtime on a board, by least squares of relative errors.

    Raises:
        ModuleNotFoundError: scipy is not installed.
    """
    from scipy.optimize import least_squares, nnls

    eager = rows[0].runtime in EAGER
    usual = np.log(_USUAL)
    if eager:
        usual[_START] = math.log(_USUAL_HOST_MS)

    def errors(logs: NDArray[np.float64], free: Sequence[int]) -> list[float]:
        rates = Rates(*np.exp(_with(usual, free, logs)))
        return [*(math.log(rates.ms(row) / row.ms) for row in rows), *(_HOLD * (logs - usual[free]))]

    found = []
    for free in map(list, _PAIRS[:1] if eager else _PAIRS):
        bounds = (np.log(_LEAST)[free], np.full(len(free), np.inf))
        solved = least_squares(errors, usual[free], bounds=bounds, args=(free,))
        found.append((float(solved.cost), Rates(*map(float, np.exp(_with(usual, free, solved.x))))))
    timed = min(found, key=lambda one: one[0])[1]
    # In billions, so that the columns are alike; nothing is unpacked in eager execution.
    costs = [(row.clocks.units * row.ms / 1e3, row.token.bytes / 1e9, row.token.instructions / 1e9) for row in rows]
    shares = np.array(costs)[:, : 2 if eager else 3] / np.array([[row.mj] for row in rows])
    prices = [*map(float, nnls(shares, np.ones(len(rows)))[0]), 0.0]
    return replace(timed, unit_mw=prices[0], byte_mj=prices[1] / 1e9, instruction_mj=prices[2] / 1e9)


def _with(usual: NDArray[np.float64], free: Sequence[int], logs: NDArray[np.float64]) -> NDArray[np.float64]:
    changed = usual.copy()
    changed[free] = logs
    return changed


def judge(rows: Sequence[Row]) -> Iterator[Judged]:
    """Every row from the others of its group, group by group.

    Raises:
        ComparisonDataError: there are none.
        ModuleNotFoundError: scipy is not installed.
    """
    if not rows:
        raise ComparisonDataError("the tables of tokens have no rows")
    for group in dict.fromkeys(row.group for row in rows):
        own = [row for row in rows if row.group == group]
        for number, row in enumerate(own):
            others = own[:number] + own[number + 1 :]
            yield Judged(row, fit(others) if others else None)


def _longer(*parts_ms: float) -> float:
    """What of several parts at once shows: the longest, and a little of the others."""
    return float(sum(part**_OVERLAP for part in parts_ms) ** (1 / _OVERLAP))
