# SPDX-License-Identifier: Apache-2.0
"""The reference networks: the ten of MIRAGE (SEC '21) as TorchScript files, shipped without weights; and the lists of what
many others launch, by family: those that profiles are trained on, those that judge them, and those that bounds are fitted to.

``tests/fixtures/make_reference_models.py`` writes the files, ``tests/fixtures/make_trained_networks.py`` the lists.
"""

from __future__ import annotations

import json
import lzma
from functools import lru_cache
from pathlib import Path

from ...kernels.decompose import decompose
from ...kernels.network import Network, TensorSpec
from ...kernels.text import valid_instead
from ..errors import ProfilesError

FOLDER = Path(__file__).parent
FAMILIES = FOLDER / "families.json.xz"
CALIBRATING = FOLDER / "calibrating.json.xz"


def reference_names() -> tuple[str, ...]:
    """The names of the networks, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.pt")))


def reference_model(name: str) -> Path:
    """The TorchScript file of a reference network.

    Raises:
        ProfilesError: there is no such network; the text lists those there are.
    """
    if name not in reference_names():
        raise ProfilesError(f"reference network {name!r} is not known{valid_instead(name, reference_names())}")
    return FOLDER / f"{name}.pt"


def reference_input(name: str, batch: int = 1) -> TensorSpec:
    """The input a reference network is measured with: ImageNet's 224 x 224, Inception's 299 x 299."""
    size = 299 if name.startswith("inception") else 224
    return TensorSpec((batch, 3, size, size))


def reference_network(name: str, batch: int = 1) -> Network:
    """A reference network, decomposed for a batch of images."""
    return decompose(reference_model(name), [reference_input(name, batch)], name=name)


@lru_cache(maxsize=1)
def _families() -> tuple[tuple[str, bool, Network], ...]:
    """(family, whether it is left out of training, network) of each."""
    lists = json.loads(lzma.decompress(FAMILIES.read_bytes()))
    return tuple((item["family"], item["left_out"], Network.from_json(item["network"])) for item in lists)


def trained_networks() -> tuple[Network, ...]:
    """The networks around whose kernels profiles are trained."""
    return tuple(network for _, left_out, network in _families() if not left_out)


def left_out_networks() -> tuple[Network, ...]:
    """Networks of the families that no profile is trained on."""
    return tuple(network for _, left_out, network in _families() if left_out)


@lru_cache(maxsize=1)
def calibrating_networks() -> tuple[Network, ...]:
    """Networks by whose errors bounds are fitted: of families that profiles are neither trained on nor judged by."""
    lists = json.loads(lzma.decompress(CALIBRATING.read_bytes()))
    return tuple(Network.from_json(item) for item in lists)
