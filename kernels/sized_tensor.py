# SPDX-License-Identifier: Apache-2.0
"""Tensors as files describe them."""

from __future__ import annotations

from dataclasses import dataclass

from .network import Shape, numel, tensor_bytes


@dataclass(frozen=True)
class SizedTensor:
    """A tensor's sizes, outermost first, and element type."""

    shape: Shape
    dtype: str

    @property
    def nbytes(self) -> int:
        return tensor_bytes(numel(self.shape), self.dtype)


@dataclass(frozen=True)
class ScaledTensor(SizedTensor):
    """A quantised tensor with scales and zero points outside its element type, of ``extra`` bytes, which are read with it."""

    extra: int = 0

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.extra
