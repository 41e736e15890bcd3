# SPDX-License-Identifier: Apache-2.0
"""A file made in memory, decomposed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import Network, TensorSpec

SMALL = [TensorSpec((2, 3))]


def read(data: bytes, inputs: Sequence[TensorSpec] = SMALL, **options: Any) -> Network:
    """The network in this file, for these inputs."""
    return decompose(io.BytesIO(data), inputs, **options)
