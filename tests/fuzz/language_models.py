# SPDX-License-Identifier: Apache-2.0
"""Headers of language models made from choices: families that fit, that do not, and absurd counts, texts, types and offsets."""

from __future__ import annotations

import struct
from typing import Any

from jetdvfs.tests.fuzz.choices import Choices
from jetdvfs.tests.support.models.handmade_gguf import gguf, header, model, weight_bytes

FAMILIES = (
    "llama", "qwen2", "qwen3moe", "gemma2", "gemma3", "gemma4", "gpt-oss", "granite", "lfm2", "olmo2",
    "phi2", "phi3", "smollm3", "mamba", "",
)  # fmt: skip
NUMBERS = (0, 1, 2, 3, 7, 1 << 16, (1 << 31) - 1, (1 << 32) - 1)
LIMITS = (0, 1, 255, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
KEYS = (
    "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.sliding_window", "attention.sliding_window_pattern", "attention.key_length_swa", "attention.shared_kv_layers",
    "expert_used_count", "residual_scale", "final_logit_softcapping",
)  # fmt: skip
_MADE = (((256,), "float32"), ((256, 256), "q8_0"), ((1,), "float32"), ((256, 3), "float16"))
_PARTS = (
    "shortconv.in_proj.weight", "shortconv.conv.weight", "shortconv.out_proj.weight", "attn_q_norm.weight", "attn_sinks.weight",
    "post_ffw_norm.weight", "ffn_gate_inp.scale", "attn_q.scale", "inp_gate.weight", "proj.weight", "layer_output_scale.weight",
)  # fmt: skip


def language_model(choices: Choices) -> bytes:
    """A GGUF file."""
    family = choices.of(FAMILIES)
    experts = choices.of((0, 0, 4))
    said, tensors = model(
        family, layers=1 + choices.below(3), experts=experts, used=min(experts, 2), joined=bool(choices.below(2)),
        dtype=choices.of(("q4_K", "float16", "q8_0", "bfloat16")), gated=bool(choices.below(2)), width=256, inner=256, heads=2,
        tokens=64,
    )  # fmt: skip
    for _ in range(choices.below(3)):
        made: Any = choices.of((choices.of(NUMBERS), 1.5, "text", [1, 2, 3], [4, 4], [0, 2], [True, False, True], True, ["a"]))
        said[f"{family}.{choices.of(KEYS)}" if choices.below(4) else "general.alignment"] = made
    for _ in range(choices.below(3)):
        tensors[f"blk.{choices.below(3)}.{choices.of(_PARTS)}"] = choices.of(_MADE)
    for _ in range(choices.below(3)):
        name = choices.of(sorted(tensors))
        shape, dtype = tensors.pop(name)
        if choices.below(2):
            sizes = (
                tuple(choices.of((0, 1, 256, 1 << 20, 1 << 33)) for _ in range(choices.below(6))) if choices.below(2) else shape
            )
            tensors[choices.of((name, "blk.0.ssm_a.weight", "blk.99999.attn_q.weight", "é", ""))] = (sizes, dtype)
    small = weight_bytes(tensors) < 1 << 20
    data = bytearray(gguf(said, tensors) if small else header(said, tensors))
    for _ in range(choices.below(3)):
        at = choices.below(65536) % max(len(header(said, tensors)) - 8, 1)
        struct.pack_into("<Q", data, at, choices.of(LIMITS))
    return bytes(data[: choices.below(65536)] if choices.below(8) == 0 else data)
