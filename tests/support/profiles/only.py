# SPDX-License-Identifier: Apache-2.0
"""A profile made of formulas in place of all that are installed, and a network that it predicts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jetdvfs.kernels.cost.board import BoardCost
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle import bundle
from jetdvfs.profiles.errors import BundleError
from jetdvfs.tests.support.profiles.analytic import board, conv2d, matmul, network, relu, view

#: Of four kernels the last has no model in :data:`COST`.
NETWORK = network(conv2d(), view(), relu(1 << 18), matmul(300), relu(1 << 16, kind="cumsum"))
COST = board(sigma=0.1, common=0.05)


def only_profile(monkeypatch: pytest.MonkeyPatch, cost: BoardCost) -> SimpleNamespace:
    """Let ``small-sim`` with these models be the only profile there is; its manifest, which can be changed."""
    manifest = SimpleNamespace(
        name="small-sim",
        board="agx-xavier",
        simulated=True,
        temperature_c=45.0,
        leakage_fold_c=None,
        fleet=None,
        rails=("GPU",),
        described=lambda: load_board("agx-xavier"),
    )

    def load(name: str) -> SimpleNamespace:
        if name != manifest.name:
            raise BundleError(f"profile {name!r}: no such bundle; valid: {manifest.name}")
        return SimpleNamespace(manifest=manifest, cost=cost)

    monkeypatch.setattr(bundle, "load_bundle", load)
    return manifest
