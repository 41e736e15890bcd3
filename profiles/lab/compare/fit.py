# SPDX-License-Identifier: Apache-2.0
"""Accuracy of simulated boards against measurements, for the nominal chip without noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins
from numpy.typing import NDArray

from ....kernels.network import KernelInvocation
from ...errors import ComparisonDataError, MeasurementError
from ...twin.measured.rows import read_lines
from ...twin.silicon.chip import Chip, own_parameters


class FittedQuantity(Struct, frozen=True):
    """One quantity, simulated and measured, each of shape ``(points,)``.

    Attributes:
        held_out: points not used for fitting, shape ``(points,)``; None if too few to split.
        limit: largest acceptable median relative error, of every point if ``every``; None if only reported.
    """

    quantity: str
    measured: NDArray[np.float64]
    simulated: NDArray[np.float64]
    held_out: NDArray[np.bool_] | None = None
    limit: float | None = None
    every: bool = False

    @property
    def errors(self) -> NDArray[np.float64]:
        return np.asarray(np.abs(self.simulated / self.measured - 1.0))

    def quantile(self, share: float, *, held_out: bool) -> float:
        """Quantile of relative errors, of held-out or of fitted points."""
        errors = self.errors
        if self.held_out is not None:
            errors = errors[self.held_out == held_out]
        return float(np.quantile(errors, share))

    @property
    def passed(self) -> bool:
        share = 1.0 if self.every else 0.5
        return self.limit is None or max(self.quantile(share, held_out=part) for part in (False, True)) <= self.limit

    def to_json(self) -> dict[str, Any]:
        parts: tuple[tuple[str, bool], ...] = (("all", False),)
        if self.held_out is not None:
            parts = (("fitted", False), ("held_out", True))
        return {
            "quantity": self.quantity,
            "points": len(self.measured),
            "limit": self.limit,
            "limit_on": "every point" if self.every else "median",
            "passed": self.passed,
            **{
                name: {
                    "median": self.quantile(0.5, held_out=part),
                    "p90": self.quantile(0.9, held_out=part),
                    "largest": self.quantile(1.0, held_out=part),
                }
                for name, part in parts
            },
        }


class Report(Struct, frozen=True):
    """Comparison of a simulated board with a real one; ``notes`` name omissions."""

    board: str
    chip: Chip
    source: str
    fits: tuple[FittedQuantity, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return all(fit.passed for fit in self.fits)

    def to_json(self) -> dict[str, Any]:
        return {
            "board": self.board,
            "simulated": True,
            "silicon_version": self.chip.version,
            "parameters": to_builtins(self.chip),
            "set_in_its_file": own_parameters(self.chip.name),
            "source": self.source,
            "passed": self.passed,
            "fits": [fit.to_json() for fit in self.fits],
            "notes": list(self.notes),
        }


def find_file(folder: Path, name: str) -> Path:
    """Find a file by name in a folder. Raises ComparisonDataError."""
    if not folder.is_dir():
        raise ComparisonDataError(f"{folder}: not a folder of measurements")
    found = min(folder.rglob(name), default=None)
    if found is None:
        raise ComparisonDataError(f"{folder}: no measurements {name} in it")
    return found


def read_rows(folder: Path, name: str) -> Iterator[Mapping[str, str]]:
    """Rows of a table (CSV, gzipped or not, # for comments). Raises ComparisonDataError."""
    yield from read_table(find_file(folder, name))


def read_table(path: Path) -> Iterator[Mapping[str, str]]:
    try:
        yield from (row for _, row in read_lines(path))
    except MeasurementError as error:
        raise ComparisonDataError(str(error)) from error


def numbers(rows: Sequence[Mapping[str, str]], name: str, source: str) -> NDArray[np.float64]:
    """One column, NaN for empty cells. Raises ComparisonDataError."""
    try:
        return np.array([float(row[name] or "nan") for row in rows], np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise ComparisonDataError(f"{source}: column {name}: {error!r}") from error


def held_out(*axes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """A quarter of the configurations, spread evenly over the axes' grid; shape ``(points,)``."""
    ranks = [np.unique(axis, return_inverse=True)[1] for axis in axes]
    steps = (3, 5, 7)
    return np.asarray(sum(step * rank for step, rank in zip(steps, ranks, strict=False)) % 4 == 0)


def product(m: int, k: int, n: int, batch: int = 1, dtype: str = "float32") -> KernelInvocation:
    shape = (m, k) if batch == 1 else (batch, m, k)
    params = {"m": m, "k": k, "n": n, "batch": batch, "bias": False}
    return KernelInvocation("matmul", "", (shape,), (*shape[:-1], n), dtype, params)
