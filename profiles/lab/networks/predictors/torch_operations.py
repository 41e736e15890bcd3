# SPDX-License-Identifier: Apache-2.0
"""Operations of graph networks for PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .operations import Segments


class TorchOperations:
    """:class:`~jetdvfs.profiles.lab.networks.predictors.operations.Operations` on tensors."""

    def __init__(self, training: bool = False) -> None:
        import torch

        self._torch = torch
        self.training = training

    def array(self, values: NDArray[np.float32]) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(values, np.float32))

    def relu(self, x: Any) -> Any:
        return self._torch.relu(x)

    def leaky_relu(self, x: Any, slope: float) -> Any:
        return self._torch.nn.functional.leaky_relu(x, slope)

    def sigmoid(self, x: Any) -> Any:
        return self._torch.sigmoid(x)

    def exp(self, x: Any) -> Any:
        return self._torch.exp(x)

    def log(self, x: Any) -> Any:
        return self._torch.log(x)

    def concat(self, parts: Sequence[Any]) -> Any:
        return self._torch.cat(list(parts), 1)

    def take(self, x: Any, index: NDArray[np.int64]) -> Any:
        return x.index_select(0, self._torch.from_numpy(index))

    def segment_sum(self, x: Any, segments: Segments) -> Any:
        found = x.new_zeros((segments.count, x.shape[1]))
        return found.index_add(0, self._torch.from_numpy(segments.index), x)

    def segment_max(self, x: Any, segments: Segments) -> Any:
        index = self._torch.from_numpy(segments.index)[:, None].expand(-1, x.shape[1])
        return x.new_zeros((segments.count, x.shape[1])).scatter_reduce(0, index, x, "amax", include_self=False)

    def dropout(self, x: Any, share: float) -> Any:
        return self._torch.nn.functional.dropout(x, share, self.training)
