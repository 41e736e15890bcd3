# SPDX-License-Identifier: Apache-2.0
"""The table of models, ``models.yaml``, as one entry per model, and how each is made."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

#: The packages, and the module here that makes their models.
PACKAGES = {
    "torchvision": "images",
    "timm": "images",
    "transformers": "transformers",
    "diffusers": "diffusers",
    "ultralytics": "images",
    "segmentation_models_pytorch": "images",
    "torchaudio": "sound",
    "torch_geometric": "graphs",
}


@dataclass(frozen=True)
class Entry:
    """A model of the table.

    Attributes:
        package: whose it is.
        group: the keys it stands below, joined by a slash; says how it is made.
        name: its name there.
    """

    package: str
    group: str
    name: str

    @property
    def title(self) -> str:
        return "/".join(part for part in (self.package, self.group, self.name) if part)

    def make(self) -> Made:
        """The model with random weights.

        Raises:
            Exception: whatever its package raises.
        """
        import torch

        from jetdvfs.tests.support.models import oracle

        oracle.torchvision()
        torch.manual_seed(0)
        module = importlib.import_module(f"jetdvfs.tests.zoo.packages.{PACKAGES[self.package]}")
        make: Callable[[Entry], Made] = getattr(module, self.package)
        made = make(self)
        made.module.eval().requires_grad_(False)
        # As after training: exporters leave out a bias of zeros and a scale of ones, and join what is equal.
        for name, tensor in (*made.module.named_parameters(), *made.module.named_buffers()):
            vector = tensor.dim() and tensor.numel() == max(tensor.shape)
            if vector and tensor.is_floating_point() and not name.endswith(("inv_freq", "window")):
                tensor.data.add_(0.1 * torch.rand_like(tensor))
        return made


@dataclass(frozen=True)
class Made:
    """A model, and tensors to call it with."""

    module: Any
    inputs: tuple[Any, ...]


def entries() -> list[Entry]:
    """Every model of the table, mixed but always in the same order, so that a part of a run says something of all."""
    table = yaml.safe_load((Path(__file__).parent / "models.yaml").read_text(encoding="utf-8"))
    found = [entry for package in table for entry in _below(package, "", table[package])]
    random.Random(0).shuffle(found)
    return found


def _below(package: str, group: str, value: Any) -> Iterator[Entry]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _below(package, f"{group}/{key}" if group else str(key), inner)
        return
    yield from (Entry(package, group, str(name)) for name in value)
