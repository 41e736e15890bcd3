# SPDX-License-Identifier: Apache-2.0
"""Guard against incomplete lists: weights of the file that no launch reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec.structs import replace

from ..boundary import Boundary
from ..network import Network
from .values import Tensor

#: Name that accepts a list with few FLOPs for its weights.
MISSING = "jetdvfs::missing_launches"
#: A product of one row has two FLOPs per element of its weight; below this share of that, launches are missing.
_SHARE = 0.1
#: Elements of constants that the host may have used.
_FEW = 64


def with_unread(network: Network, weights: Mapping[str, Tensor], reached: Callable[[], Collection[str]]) -> Network:
    """Note the weights that no launch reads; if they imply 10 times the list's FLOPs, the list ends early (:data:`MISSING`).

    Only weights in ``reached()`` count, whose names the method's code mentions; it is called only if needed.
    """
    unread = {name: tensor for name, tensor in weights.items() if not tensor.memory.read and _is_large(tensor)}
    if not unread or network.boundary is not None:
        return network
    large = [tensor for tensor in weights.values() if _is_large(tensor)]
    share = sum(tensor.numel for tensor in unread.values()) / sum(tensor.numel for tensor in large)
    counted = f"{len(unread)} of {len(large)} weights ({share:.0%} of their elements)"
    text = f"{counted} are read by no launch: {', '.join(unread):.200}"
    listed = sum(launch.flops for launch in network.launches)
    implied = _implied(unread, unread)
    if listed < _SHARE * implied:
        implied = _implied(unread, reached())
    boundary = None
    if listed < _SHARE * implied:
        reason = f"{text}; they imply {implied:.4g} FLOPs or more, {listed:.4g} are listed"
        boundary = Boundary(MISSING, "the last launch", reason)
    return replace(network, boundary=boundary, unread=text)


def _is_large(tensor: Tensor) -> bool:
    return tensor.is_floating and tensor.numel > _FEW


def _implied(weights: Mapping[str, Tensor], names: Collection[str]) -> int:
    return 2 * sum(tensor.numel for name, tensor in weights.items() if name in names and tensor.rank > 1)
