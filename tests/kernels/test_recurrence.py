# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers as products: their work, and what follows what."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jetdvfs.kernels.fusion import products_of
from jetdvfs.tests.support.profiles.analytic import recurrent, relu


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize(
    "more", [{}, {"layers": 3, "directions": 2}, {"batch_first": True}, {"layers": 2, "projection": 32}], ids=str
)
def test_the_products_do_the_work_of_the_layer(kind: str, more: dict[str, Any]) -> None:
    layer = recurrent(kind, **more)
    assert sum(times * product.flops for product, times in products_of(layer)) == layer.flops


def test_inputs_are_multiplied_together_and_states_step_by_step_wherever_the_batch_stands() -> None:
    sizes = [
        [((call.params["m"], call.params["k"], call.params["n"]), times) for call, times in products_of(layer)]
        for layer in (recurrent(), recurrent(batch_first=True))
    ]
    assert sizes[0] == sizes[1] == [((100, 64, 512), 1), ((2, 128, 512), 50)]


def test_what_is_no_recurrent_layer_or_does_not_say_how_large_it_is_has_none() -> None:
    assert products_of(relu()) == ()
    assert products_of(replace(recurrent(), params={})) == ()
    assert products_of(replace(recurrent(), inputs=())) == ()
    assert products_of(replace(recurrent(), inputs=((50, 0, 64), (1, 0, 128)))) == ()
    for layers in (-1, 10**400):
        assert products_of(replace(recurrent(), params={"hidden": 128, "layers": layers, "directions": 1})) == ()
