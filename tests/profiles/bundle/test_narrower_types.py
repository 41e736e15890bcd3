# SPDX-License-Identifier: Apache-2.0
"""Shipped profiles on element types without measurements: ratios as real boards have them, though times are simulated."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import pytest

from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.engine.fusing import as_engine
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.tests.support.models.handmade_gguf import gguf, model
from jetdvfs.tests.support.paths import REFERENCE

#: Tokens per second of a real AGX Orin over those of half precision: a 7B model under llama.cpp (Q8_0 17.3, Q4_K_M 28.0, F16
#: 10.7), a 4B model under TensorRT Edge-LLM (W8 35.5, W4 52.2, W16 20.2).
PUBLISHED = {"q8_0": (1.62, 1.76), "q4_K": (2.58, 2.62)}


@cache
def token_ms(dtype: str) -> float:
    """One token of a model with an 8B model's products, in two blocks, at the top clocks."""
    sizes: dict[str, Any] = {
        "layers": 2,
        "width": 4096,
        "heads": 32,
        "kv_heads": 8,
        "inner": 14336,
        "head_size": 128,
        "tokens": 8016,
    }
    said, tensors = model(**sizes, dtype=dtype)
    last = dtype if dtype in ("float16", "q8_0") else "q6_K"
    tensors |= {name: (tensors[name][0], last) for name in ("token_embd.weight", "output.weight")}
    network = decompose(io.BytesIO(gguf(said, tensors)), [parse_input("decode=512:int")])
    return float(surface(network, load_bundle("agx-orin-64gb-sim").cost).latency_ms[-1, -1, -1])


@pytest.mark.parametrize("dtype", PUBLISHED)
def test_quantised_tokens_keep_the_published_ratios_to_half_precision(dtype: str) -> None:
    ratio = token_ms("float16") / token_ms(dtype)
    least, most = PUBLISHED[dtype]
    assert 0.85 * least < ratio < 1.15 * most


def test_an_engine_in_8_bits_is_not_slower_than_one_in_half_precision() -> None:
    network = decompose(REFERENCE / "resnet18.pt", [parse_input("1x3x224x224")], optimized=True)
    cost = load_bundle("agx-orin-64gb-sim").cost
    half, eight = (surface(as_engine(network, dtype), cost).latency_ms for dtype in ("float16", "int8"))
    assert (eight <= half * 1.02).all()
