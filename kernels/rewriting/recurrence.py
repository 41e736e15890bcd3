# SPDX-License-Identifier: Apache-2.0
"""A recurrent layer, one launch, as the products of matrices that it is made of.

The steps' inputs do not depend on each other and are multiplied by the weights together; the state of each step follows from
the one before (NVIDIA, "Recurrent Layers User's Guide"). What the gates do to single elements is little beside that.
"""

from __future__ import annotations

from ..kinds import GATES
from ..network import KernelInvocation, element_bytes, numel


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
    batch = max(state[-2], 1) if len(state) == 3 else 1
    told = (layer.params[name] for name in ("hidden", "layers", "directions"))
    hidden, layers, directions = (size for size in told if isinstance(size, int))
    steps, out = numel(many) // batch, state[-1]
    bias = bool(layer.params.get("bias"))
    found = []
    for inputs in (width, *[out * directions] * (layers - 1)):
        found.append((_product(layer, steps * batch, inputs, gates * hidden, bias), directions))
        found.append((_product(layer, batch, out, gates * hidden, bias), directions * steps))
        if out != hidden:
            found.append((_product(layer, batch, hidden, out, False), directions * steps))
    return tuple(found)


def _product(layer: KernelInvocation, m: int, k: int, n: int, bias: bool) -> KernelInvocation:
    moved = round(element_bytes(layer.dtype) * (m * k + k * n + m * n + bias * n))
    params = {"m": m, "k": k, "n": n, "batch": 1, "bias": bias}
    return KernelInvocation("matmul", layer.scope, ((m, k),), (m, n), layer.dtype, params, 2 * m * k * n, moved)
