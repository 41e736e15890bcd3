# SPDX-License-Identifier: Apache-2.0
"""Graph networks of torch_geometric: whole models, and single convolutions between two linear layers."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch

from jetdvfs.tests.zoo.table import Entry, Made

_NODES, _EDGES, _FEATURES = 12, 40, 16
_OPTIONS: dict[str, dict[str, Any]] = {
    "PNA": {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"], "deg": torch.tensor([1, 2, 3, 4])},
    "ARMAConv": {"num_stacks": 2, "num_layers": 2},
    "ChebConv": {"K": 3},
    "EGConv": {"num_heads": 4, "num_bases": 2},
    "FeaStConv": {"heads": 2},
    "GATv2Conv": {"heads": 2},
    "GatedGraphConv": {"num_layers": 2},
    "SSGConv": {"alpha": 0.5},
    "SuperGATConv": {"heads": 2},
    "TransformerConv": {"heads": 2},
    "RGCNConv": {"num_relations": 3},
}


class Convolution(torch.nn.Module):
    """A convolution of a graph, and a linear layer after it."""

    def __init__(self, convolution: torch.nn.Module, features: int) -> None:
        super().__init__()
        self.convolution = convolution
        self.last = torch.nn.Linear(features, 4)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.convolution(x, edges).relu())
        return out


class Typed(Convolution):
    """The same, of edges that have types."""

    def forward(self, x: torch.Tensor, edges: torch.Tensor, types: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        out: torch.Tensor = self.last(self.convolution(x, edges, types).relu())
        return out


class Remembering(Convolution):
    """The same, of a convolution that is told the first features once more."""

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.convolution(x, x, edges).relu())
        return out


def torch_geometric(entry: Entry) -> Made:
    package = importlib.import_module("torch_geometric.nn")
    x, edges = torch.rand(_NODES, _FEATURES), torch.randint(0, _NODES, (2, _EDGES))
    options = _OPTIONS.get(entry.name, {})
    if entry.group == "models":
        models = importlib.import_module("torch_geometric.nn.models")
        return Made(getattr(models, entry.name)(_FEATURES, 32, num_layers=2, out_channels=4, **options), (x, edges))
    convolution = getattr(package, entry.name)
    if entry.name.startswith("DenseGIN"):
        layer = torch.nn.Sequential(torch.nn.Linear(_FEATURES, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32))
        made, features = convolution(layer), 32
    elif entry.name in ("FAConv",):
        made, features = convolution(_FEATURES), _FEATURES
    elif entry.name == "GatedGraphConv":
        made, features = convolution(32, **options), 32
    elif entry.name == "LGConv":
        made, features = convolution(), _FEATURES
    else:
        takes = inspect.signature(convolution).parameters
        assert "in_channels" in takes, entry.name
        made, features = convolution(_FEATURES, 32, **options), 32
    heads = options.get("heads", 1) if entry.name not in ("FeaStConv",) else 1
    features *= heads
    if entry.name.startswith("Dense"):
        return Made(Convolution(made, features), (x[None], torch.randint(0, 2, (1, _NODES, _NODES)).float()))
    if entry.name == "RGCNConv":
        return Made(Typed(made, features), (x, edges, torch.randint(0, 3, (_EDGES,))))
    return Made(Remembering(made, features) if entry.name == "FAConv" else Convolution(made, features), (x, edges))
