# SPDX-License-Identifier: Apache-2.0
"""Launches of published networks outside the reference set."""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from ....kernels.network import Network
from ...reference import reference_network


def folded(network: Network, dtype: str = "float32") -> Network:
    """Network with batch norms folded into convolutions, in an element type."""
    kept = (call for call in network.launches if call.kind != "batch_norm")
    return Network(network.name, network.inputs, tuple(replace(call, dtype=dtype) for call in kept))


@lru_cache(maxsize=8)
def inception_v3(batch: int) -> Network:
    return folded(reference_network("inception_v3", batch))
