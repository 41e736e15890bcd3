# SPDX-License-Identifier: Apache-2.0
"""Operations of graph networks on tensors of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Segments:
    """Rows in ``count`` groups, which may be empty; ``index`` (n,) has each row's."""

    def __init__(self, index: NDArray[np.int64], count: int) -> None:
        self.index, self.count = index, count

    @cached_property
    def sizes(self) -> NDArray[np.float32]:
        return np.bincount(self.index, minlength=self.count).astype(np.float32)[:, None]


class Operations:
    """Operations on tensors of shape (n, columns); those of a name that PyTorch has are its own."""

    def __init__(self, training: bool = False) -> None:
        import torch

        self._torch, self._training = torch, training
        self.relu, self.sigmoid, self.exp, self.log = torch.relu, torch.sigmoid, torch.exp, torch.log
        self.leaky_relu = torch.nn.functional.leaky_relu

    def array(self, values: NDArray[np.float32]) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(values, np.float32))

    def concat(self, parts: Sequence[Any]) -> Any:
        return self._torch.cat(list(parts), 1)

    def take(self, x: Any, index: NDArray[np.int64]) -> Any:
        return x.index_select(0, self._torch.from_numpy(index))

    def segment_sum(self, x: Any, segments: Segments) -> Any:
        """(groups, columns) sums; 0 for empty groups."""
        found = x.new_zeros((segments.count, x.shape[1]))
        return found.index_add(0, self._torch.from_numpy(segments.index), x)

    def segment_max(self, x: Any, segments: Segments) -> Any:
        """(groups, columns) maxima; 0 for empty groups."""
        index = self._torch.from_numpy(segments.index)[:, None].expand(-1, x.shape[1])
        return x.new_zeros((segments.count, x.shape[1])).scatter_reduce(0, index, x, "amax", include_self=False)

    def dropout(self, x: Any, share: float) -> Any:
        return self._torch.nn.functional.dropout(x, share, self._training)
