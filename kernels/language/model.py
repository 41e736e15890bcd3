# SPDX-License-Identifier: Apache-2.0
"""Language models of the known families: sizes of each block, and its weights under llama.cpp's names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from ..errors import BudgetExceeded, ModelError, UnsupportedOperator
from ..network import SizedTensor
from .gguf import GgufHeader

_MOST = 1 << 24
_LAYERS = 4096


class Family(Struct, frozen=True):
    """Properties of a family that neither its weights nor its metadata give.

    Attributes:
        period: the last block of each ``period`` sees all positions, the rest a window; 0: no block has a window.
        scales_embedding: embeddings are multiplied by a constant.
        normalizes_values: values are normalised, without a scale, before they are cached.
        rope_period: the last block of each ``rope_period`` has no rotary embedding; 0: every block has one.
    """

    activation: str = "silu"
    period: int = 0
    scales_embedding: bool = False
    normalizes_values: bool = False
    rope_period: int = 0


_LLAMA_LIKE = (
    "llama", "mistral3", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "phi3", "phimoe",
    "granite", "granitemoe", "lfm2",
)  # fmt: skip

#: By architecture, under GGUF's names (llama.cpp's ``llama-arch.cpp`` and ``src/models``).
FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(_LLAMA_LIKE, Family()),
    "gemma": Family("gelu", scales_embedding=True),
    "gemma2": Family("gelu", 2, scales_embedding=True),
    "gemma3": Family("gelu", 6, scales_embedding=True),
    "gemma4": Family("gelu", 6, scales_embedding=True, normalizes_values=True),
    "gpt-oss": Family(period=2),
    "olmo2": Family(period=4),
    "phi2": Family("gelu"),
    "smollm3": Family(rope_period=4),
}

#: Weights that a block may have; any other means work without a rule.
_OF_A_BLOCK = frozenset(
    (
        "attn_norm", "attn_norm_2", "attn_q", "attn_k", "attn_v", "attn_qkv",
        "attn_output", "attn_q_norm", "attn_k_norm", "attn_sinks", "post_attention_norm", "shortconv.in_proj",
        "shortconv.conv", "shortconv.out_proj", "ffn_norm", "post_ffw_norm", "ffn_gate", "ffn_up",
        "ffn_down", "post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2", "ffn_gate_inp", "ffn_gate_exps",
        "ffn_up_exps", "ffn_down_exps", "ffn_gate_up_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp",
        "ffn_gate_inp_shexp", "inp_gate", "proj", "post_norm", "layer_output_scale", "rope_freqs",
        "rope_factors_long", "rope_factors_short",
    )
)  # fmt: skip
_OUTSIDE = re.compile(
    r"(token_embd|output|output_norm|token_embd_norm|rope_freqs|rope_factors_long|rope_factors_short|per_layer_token_embd"
    r"|per_layer_model_proj|per_layer_proj_norm)\.(weight|bias|scale|input_scale)"
)
_BLOCK = re.compile(r"blk\.(\d{1,5})\.([a-z0-9_.]+)\.(weight|bias|scale|input_scale)")


class Block(Struct, frozen=True):
    """Attention of one block.

    Attributes:
        key_size, value_size: elements of one head.
        window: positions that a token sees, its own included; 0: all.
        rope: queries and keys are rotated by their positions.
        shares_cache: keys and values are those of an earlier block.
    """

    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    window: int = 0
    rope: bool = True
    shares_cache: bool = False

    def check(self) -> None:
        for name in ("heads", "kv_heads", "key_size", "value_size"):
            if not 0 < getattr(self, name) <= _MOST:
                raise ModelError(f"the model's {name} is {getattr(self, name)}; expected 1 to {_MOST}")
        if self.heads % self.kv_heads:
            raise ModelError(f"{self.heads} heads do not share {self.kv_heads} heads of keys and values")


class LanguageModel(Struct, frozen=True):
    """Sizes and weights from which the launches of a model follow.

    Attributes:
        width: elements of a token between blocks.
        weights: by name, without ``.weight``; biases and scales with their suffix.
        compute: element type between launches.
        cache: element type of cached keys and values.
        experts_used: experts per token of a mixture of experts; else 0.
        scaled: of ``embedding``, ``residual`` and ``logits``, those multiplied by a constant.
        softcap: logits are limited by a scaled hyperbolic tangent.
    """

    family: Family
    width: int
    blocks: tuple[Block, ...]
    weights: Mapping[str, SizedTensor]
    compute: str
    cache: str
    runtime: str
    experts_used: int = 0
    scaled: frozenset[str] = frozenset()
    softcap: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.width <= _MOST:
            raise ModelError(f"the model's width is {self.width}; expected 1 to {_MOST}")

    def weight(self, name: str) -> SizedTensor | None:
        found = self.weights.get(name)
        if found is not None and not found.shape:
            raise ModelError(f"{name}.weight is one number")
        return found

    def needed(self, name: str) -> SizedTensor:
        """A weight that a model of its family has, or ModelError."""
        found = self.weight(name)
        if found is None:
            raise ModelError(f"the model has no tensor {name}.weight")
        return found


def check_layers(layers: int) -> int:
    if not 0 < layers <= _LAYERS:
        raise BudgetExceeded(f"the model has {layers} blocks; 1 to {_LAYERS} are listed")
    return layers


def windows_of(window: int, layers: int, period: int, flags: Sequence[Any] | None = None) -> list[int]:
    """The window of each block: by ``flags`` that are true for a window, else by ``period`` as in :class:`Family`."""
    if flags is None:
        flags = [period > 0 and number % period < period - 1 for number in range(layers)]
    return [max(window, 0) if flag else 0 for flag in flags]


def of_gguf(header: GgufHeader) -> LanguageModel:
    """The model of a GGUF file; raises ModelError, or UnsupportedOperator for an unknown family or weight."""
    said = header.said
    kind = said.get("general.type", "model")
    if kind != "model":
        raise ModelError(
            f"the file is of type {kind!r:.20}, a part that is loaded next to a model; give the language model's own GGUF file"
        )
    architecture = said.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in FAMILIES:
        raise UnsupportedOperator(f"the architecture {architecture!r:.60} has no rules; valid: {', '.join(sorted(FAMILIES))}")
    family = FAMILIES[architecture]

    def get(name: str, default: Any = None) -> Any:
        return said.get(f"{architecture}.{name}", default)

    def number(name: str, default: int | None = None) -> int:
        value = get(name, default)
        if isinstance(value, tuple) and value and len(set(value)) == 1:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelError(f"the metadata's {architecture}.{name} is {value!r:.60}; expected one number")
        return value

    def each(name: str, default: int | None = None) -> list[int]:
        value = get(name)
        if isinstance(value, tuple) and len(value) >= layers and all(isinstance(n, int) and n >= 0 for n in value):
            return list(value[:layers])
        return [number(name, default)] * layers

    layers, width = check_layers(number("block_count")), number("embedding_length")
    heads = each("attention.head_count")
    kv_heads = each("attention.head_count_kv", heads[0]) if get("attention.head_count_kv") is not None else heads
    key_size = number("attention.key_length", width // heads[0] if heads[0] > 0 else 0)
    value_size = number("attention.value_length", key_size)
    pattern = get("attention.sliding_window_pattern", family.period)
    flags = pattern if isinstance(pattern, tuple) and len(pattern) >= layers else None
    period = family.period if isinstance(pattern, tuple) else number("attention.sliding_window_pattern", family.period)
    windows = windows_of(number("attention.sliding_window", 0), layers, period, flags and flags[:layers])
    swa = number("attention.key_length_swa", key_size), number("attention.value_length_swa", value_size)
    own_caches = layers - number("attention.shared_kv_layers", 0)
    scales = {"embedding": "embedding_scale", "residual": "residual_scale", "logits": "logit_scale"}
    return LanguageModel(
        family=family,
        width=width,
        blocks=tuple(
            Block(
                heads[block],
                kv_heads[block],
                *(swa if windows[block] else (key_size, value_size)),
                window=windows[block],
                rope=has_rope(block, family.rope_period),
                shares_cache=block >= own_caches,
            )
            for block in range(layers)
        ),
        weights=_known(header.tensors),
        compute="float32",
        cache="float16",
        runtime="llama.cpp",
        experts_used=number("expert_used_count", 0),
        scaled=frozenset(name for name, key in scales.items() if get(key)),
        softcap=bool(get("final_logit_softcapping")),
    )


def has_rope(block: int, period: int) -> bool:
    return not period or (block + 1) % period != 0


def _known(tensors: Mapping[str, SizedTensor]) -> dict[str, SizedTensor]:
    kept = {}
    for name, tensor in tensors.items():
        block = _BLOCK.fullmatch(name)
        if not (_OUTSIDE.fullmatch(name) or (block is not None and block[2] in _OF_A_BLOCK)):
            raise UnsupportedOperator(f"the use of tensor {name!r:.80} has no rule")
        kept[name.removesuffix(".weight")] = tensor
    return kept
