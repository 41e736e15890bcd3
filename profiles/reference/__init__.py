# SPDX-License-Identifier: Apache-2.0
"""Reference networks: the ten of MIRAGE (SEC '21), by ``tests/fixtures/make_reference_models.py``."""

from __future__ import annotations

from pathlib import Path

from ...kernels.decompose import decompose
from ...kernels.network import Network, TensorSpec
from ...kernels.text import valid_instead
from ..errors import ProfilesError

FOLDER = Path(__file__).parent


def reference_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.pt")))


def reference_model(name: str) -> Path:
    """TorchScript file of a reference network. Raises ProfilesError if unknown."""
    if name not in reference_names():
        raise ProfilesError(f"reference network {name!r} is not known{valid_instead(name, reference_names())}")
    return FOLDER / f"{name}.pt"


def reference_input(name: str, batch: int = 1) -> TensorSpec:
    """Input for measurements: ImageNet's 224 x 224, Inception's 299 x 299."""
    size = 299 if name.startswith("inception") else 224
    return TensorSpec((batch, 3, size, size))


def reference_network(name: str, batch: int = 1) -> Network:
    return decompose(reference_model(name), [reference_input(name, batch)], name=name)
