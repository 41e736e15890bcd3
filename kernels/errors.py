# SPDX-License-Identifier: Apache-2.0
"""Errors of this package. A retry is useless: the same input fails the same way."""

from __future__ import annotations

from typing import ClassVar


class KernelsError(Exception):
    """Base of every error of :mod:`jetdvfs.kernels`; one line tells fault, place and valid values."""

    exit_code: ClassVar[int] = 3


class ModelError(KernelsError):
    """The model file cannot be read as its claimed format."""


class EndsEarly(ModelError):
    """The list of launches ends before its network does, at an operator that the caller did not accept."""


class UnsupportedOperator(ModelError):
    """The model uses an operator or construct without a shape rule."""


class ShapeError(ModelError):
    """The network cannot run on inputs of the given shapes and types."""


class BudgetExceeded(ModelError):
    """Reading the model would exceed the reader's limits (size, steps, depth, time)."""


class GridError(KernelsError):
    """A frequency or a configuration is not on the grid."""


class EnsembleError(KernelsError):
    """A tree ensemble is malformed or cannot be swept exactly."""


class CostModelError(KernelsError):
    """The kernel models do not fit the network or the grid."""
