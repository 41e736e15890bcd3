# SPDX-License-Identifier: Apache-2.0
"""Errors of this package. None of them is worth retrying: the same input fails the same way again."""

from __future__ import annotations

from typing import ClassVar


class KernelsError(Exception):
    """Base of every error raised by :mod:`jetdvfs.kernels`; its text is one line that says what, where and what is valid."""

    exit_code: ClassVar[int] = 3


class ModelError(KernelsError):
    """The model file cannot be read as what it claims to be."""


class EndsEarly(ModelError):
    """The list of launches ends before its network does, at an operator that nobody accepted as its end."""


class UnsupportedOperator(ModelError):
    """The model calls an operator, or uses a construct, that has no shape rule."""


class ShapeError(ModelError):
    """The network cannot run on inputs of the given shapes and types."""


class BudgetExceeded(ModelError):
    """Reading the model would take more than the reader allows itself (size, steps, depth, time)."""


class GridError(KernelsError):
    """A frequency or a configuration is not one of the grid's."""


class EnsembleError(KernelsError):
    """A tree ensemble is malformed or of a sort that cannot be swept exactly."""


class CostModelError(KernelsError):
    """The kernel models do not fit the network or the grid they are asked about."""
