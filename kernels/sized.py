# SPDX-License-Identifier: Apache-2.0
"""A tensor as files describe it."""

from __future__ import annotations

from dataclasses import dataclass

from .network import Shape, numel, tensor_bytes


@dataclass(frozen=True)
class SizedTensor:
    """A tensor's sizes, the outermost first, and its element type."""

    shape: Shape
    dtype: str

    @property
    def nbytes(self) -> int:
        return tensor_bytes(numel(self.shape), self.dtype)
