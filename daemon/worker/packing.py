# SPDX-License-Identifier: Apache-2.0
"""Packed networks and surfaces of children (:mod:`.answers`)."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...kernels.inputs import phase_of
from ...kernels.network import Network, TensorSpec
from ...kernels.surface import FIGURES, TERMS, Surface, SurfaceInfo
from ..errors import InputError
from .answers import (
    COMPRESSED_BYTES,
    FIGURE,
    NAME_CHARACTERS,
    NETWORK_BYTES,
    NetworkInfo,
)

if TYPE_CHECKING:
    import numpy as np
else:
    from ...kernels.lazy import numpy as np


def packed_network(network: Network) -> tuple[NetworkInfo, bytes]:
    """A network's description and packed form, which has no names, so that renamed networks are equal. Raises InputError."""
    name, launches = network.name, network.launches
    if not launches:
        raise InputError(f"network {name!r:.60} launches no kernel; there is nothing to predict")
    if len(name) > NAME_CHARACTERS:
        raise InputError(f"network: its name has {len(name)} characters; at most {NAME_CHARACTERS}")
    inputs = tuple(TensorSpec(spec.shape, spec.dtype) for spec in network.inputs if not spec.is_plain)
    plain = json.dumps(replace(network, name="", inputs=inputs).to_json(host_calls=True)).encode()
    payload = zlib.compress(plain)
    for size, limit, how in ((len(plain), NETWORK_BYTES, ""), (len(payload), COMPRESSED_BYTES, " compressed")):
        if size > limit:
            raise InputError(
                f"network {name!r:.60}: its list of {len(launches)} launches is longer than an answer may be: "
                f"{size} bytes{how}, at most {limit}"
            )
    info = NetworkInfo(
        name=name,
        digest=network.digest,
        launches=len(launches),
        host_calls=len(network.calls) - len(launches),
        kinds=network.kinds,
        flops=sum(launch.flops for launch in launches),
        boundary=network.boundary,
        phase=phase_of(network.inputs),
    )
    return info, payload


def unpacked_network(payload: bytes) -> Network:
    inflating = zlib.decompressobj()
    try:
        plain = inflating.decompress(payload, NETWORK_BYTES + 1)
        data = json.loads(plain) if inflating.eof else {}
    except (zlib.error, ValueError, RecursionError) as error:
        raise InputError(f"network: its packed form cannot be read ({error})") from error
    return Network.from_json(data)


def packed_surface(surface: Surface) -> tuple[SurfaceInfo, bytes]:
    terms = surface.terms
    arrays = [getattr(surface, name) for name in FIGURES]
    arrays += [getattr(terms, name) if terms else np.zeros(surface.grid.shape) for name in TERMS]
    return surface.info, b"".join(array.astype(FIGURE).tobytes() for array in arrays)
