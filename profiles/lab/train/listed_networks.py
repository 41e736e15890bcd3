# SPDX-License-Identifier: Apache-2.0
"""Networks by family, for training, evaluation and bounds; written by ``tests/fixtures/make_trained_networks.py``."""

from __future__ import annotations

import json
import lzma
from functools import lru_cache
from pathlib import Path

from ....kernels.network import Network

FAMILIES = Path(__file__).with_name("families.json.xz")
CALIBRATING = Path(__file__).with_name("calibrating.json.xz")


@lru_cache(maxsize=1)
def _families() -> tuple[tuple[str, bool, Network], ...]:
    """(family, left out of training, network)."""
    lists = json.loads(lzma.decompress(FAMILIES.read_bytes()))
    return tuple((item["family"], item["left_out"], Network.from_json(item["network"])) for item in lists)


def trained_networks() -> tuple[Network, ...]:
    return tuple(network for _, left_out, network in _families() if not left_out)


def left_out_networks() -> tuple[Network, ...]:
    return tuple(network for _, left_out, network in _families() if left_out)


@lru_cache(maxsize=1)
def calibrating_networks() -> tuple[Network, ...]:
    """Networks for fitting bounds, of families in neither training nor evaluation."""
    lists = json.loads(lzma.decompress(CALIBRATING.read_bytes()))
    return tuple(Network.from_json(item) for item in lists)
