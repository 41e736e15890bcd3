# SPDX-License-Identifier: Apache-2.0
"""A recurrent layer, one launch, as the products of matrices that it is made of.

The steps' inputs do not depend on each other and are multiplied by the weights together; the state of each step follows from
the one before (NVIDIA, "Recurrent Layers User's Guide"). What the gates do to single elements is little beside that.
"""

from __future__ import annotations

from ..kinds import GATES
from ..network import KernelInvocation, element_bytes, numel

_MOST_FLOPS = 1 << 62  # of launches: more is not counted anywhere


def products_of(layer: KernelInvocation) -> tuple[tuple[KernelInvocation, int], ...]:
    """The products, and how many of each follow one another.

    None of a kernel that is no recurrent layer, or whose launch does not say how large it is.
    """
    try:
        return _products(layer, GATES[layer.kind])
    except (KeyError, IndexError, ValueError):
        return ()


def _products(layer: KernelInvocation, gates: int) -> tuple[tuple[KernelInvocation, int], ...]:
    (*many, width), state = layer.inputs[0], layer.inputs[1]
    told = (layer.params[name] for name in ("hidden", "layers", "directions"))
    hidden, layers, directions = (size for size in told if isinstance(size, int))
    batch, out, bias = state[-2] if len(state) == 3 else 1, state[-1], bool(layer.params.get("bias"))
    if min(*many, width, batch, out, hidden, layers, directions) < 1:
        return ()
    steps = numel(many) // batch
    found = [
        (_product(layer, steps * batch, width, gates * hidden, bias), directions),
        (_product(layer, steps * batch, out * directions, gates * hidden, bias), directions * (layers - 1)),
        (_product(layer, batch, out, gates * hidden, bias), directions * steps * layers),
        (_product(layer, batch, hidden, out, False), directions * steps * layers if out != hidden else 0),
    ]
    if max(product.flops * times for product, times in found) > _MOST_FLOPS:
        return ()
    return tuple((product, times) for product, times in found if times)


def _product(layer: KernelInvocation, m: int, k: int, n: int, bias: bool) -> KernelInvocation:
    moved = round(element_bytes(layer.dtype) * (m * k + k * n + m * n + bias * n))
    params = {"m": m, "k": k, "n": n, "batch": 1, "bias": bias}
    return KernelInvocation("matmul", layer.scope, ((m, k),), (m, n), layer.dtype, params, 2 * m * k * n, moved)
