# SPDX-License-Identifier: Apache-2.0
"""Operations of graph networks for NumPy; :mod:`.torch_operations` has the same for PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Segments:
    """Rows in ``count`` groups, which may be empty; ``index`` (n,) has each row's."""

    def __init__(self, index: NDArray[np.int64], count: int) -> None:
        self.index, self.count = index, count

    @cached_property
    def sizes(self) -> NDArray[np.float32]:
        return np.bincount(self.index, minlength=self.count).astype(np.float32)[:, None]

    @cached_property
    def order(self) -> NDArray[np.int64]:
        return np.argsort(self.index, kind="stable")

    @cached_property
    def present(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.sizes[:, 0])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        return np.searchsorted(self.index[self.order], self.present)


class Operations(Protocol):
    """Operations on arrays or tensors of shape (n, columns)."""

    def array(self, values: NDArray[np.float32]) -> Any: ...

    def relu(self, x: Any) -> Any: ...

    def leaky_relu(self, x: Any, slope: float) -> Any: ...

    def sigmoid(self, x: Any) -> Any: ...

    def exp(self, x: Any) -> Any: ...

    def log(self, x: Any) -> Any: ...

    def concat(self, parts: Sequence[Any]) -> Any: ...

    def take(self, x: Any, index: NDArray[np.int64]) -> Any: ...

    def segment_sum(self, x: Any, segments: Segments) -> Any:
        """(groups, columns) sums; 0 for empty groups."""
        ...

    def segment_max(self, x: Any, segments: Segments) -> Any:
        """(groups, columns) maxima; 0 for empty groups."""
        ...

    def dropout(self, x: Any, share: float) -> Any: ...


class NumpyOperations:
    def array(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(values, np.float32)

    def relu(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.maximum(x, np.float32(0))

    def leaky_relu(self, x: NDArray[np.float32], slope: float) -> NDArray[np.float32]:
        return np.where(x > 0, x, np.float32(slope) * x)

    def sigmoid(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):  # towards 0
            return np.asarray(1 / (1 + np.exp(-x)), np.float32)

    def exp(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.exp(x)

    def log(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.log(x)

    def concat(self, parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        return np.concatenate(parts, axis=1)

    def take(self, x: NDArray[np.float32], index: NDArray[np.int64]) -> NDArray[np.float32]:
        return x[index]

    def segment_sum(self, x: NDArray[np.float32], segments: Segments) -> NDArray[np.float32]:
        return self._reduced(np.add, x, segments)

    def segment_max(self, x: NDArray[np.float32], segments: Segments) -> NDArray[np.float32]:
        return self._reduced(np.maximum, x, segments)

    def dropout(self, x: NDArray[np.float32], share: float) -> NDArray[np.float32]:
        return x

    def _reduced(self, how: np.ufunc, x: NDArray[np.float32], segments: Segments) -> NDArray[np.float32]:
        found = np.zeros((segments.count, x.shape[1]), np.float32)
        if len(x):
            found[segments.present] = how.reduceat(x[segments.order], segments.starts, axis=0)
        return found
