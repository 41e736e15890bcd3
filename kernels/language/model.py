# SPDX-License-Identifier: Apache-2.0
"""A language model of the families that are known: its sizes, and the weights of each of its blocks by llama.cpp's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import BudgetExceeded, ModelError, UnsupportedOperator
from ..sized import SizedTensor
from .gguf import GgufHeader

_MOST = 1 << 24
_LAYERS = 4096


@dataclass(frozen=True)
class Family:
    """How a family's blocks differ where the weights do not say so.

    Attributes:
        activation: what the feed-forward part applies.
        sliding: of so many blocks in a row, all but the last see the last few positions alone; 0 where none does.
    """

    activation: str = "silu"
    sliding: int = 0


#: By the name of the architecture in GGUF.
FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(("llama", "mistral3", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "phi3", "phimoe"), Family()),
    "gemma": Family("gelu"),
    "gemma2": Family("gelu", 2),
    "gemma3": Family("gelu", 6),
    "phi2": Family("gelu"),
}

#: The weights that a block may have; any other means work that is not known.
_OF_A_BLOCK = frozenset(
    [
        "attn_norm",
        "attn_norm_2",
        "attn_q",
        "attn_k",
        "attn_v",
        "attn_qkv",
        "attn_output",
        "attn_q_norm",
        "attn_k_norm",
        "post_attention_norm",
        "ffn_norm",
        "post_ffw_norm",
        "ffn_gate",
        "ffn_up",
        "ffn_down",
        "ffn_gate_inp",
        "ffn_gate_exps",
        "ffn_up_exps",
        "ffn_down_exps",
        "ffn_gate_up_exps",
        "ffn_gate_shexp",
        "ffn_up_shexp",
        "ffn_down_shexp",
        "ffn_gate_inp_shexp",
    ]
)
_OUTSIDE = frozenset(
    [
        "token_embd.weight",
        "output.weight",
        "output.bias",
        "output_norm.weight",
        "output_norm.bias",
        "rope_freqs.weight",
        "rope_factors_long.weight",
        "rope_factors_short.weight",
    ]
)
_BLOCK = re.compile(r"blk\.(\d{1,5})\.([a-z0-9_]+)\.(weight|bias)")
_ROPE = ("rope_freqs", "rope_factors_long", "rope_factors_short")  # llama.cpp writes them into blocks, too


@dataclass(frozen=True)
class LanguageModel:
    """What the launches of a model follow from.

    Attributes:
        family: what its weights do not say.
        layers: its blocks.
        width: the size of what passes between them.
        heads, kv_heads: of queries, and of keys and values.
        key_size, value_size: of one head.
        experts_used: of a mixture of experts, how many each token takes; 0 for any other.
        window: how many positions a sliding block sees; 0 where there is none.
        weights: by name, without ``.weight``; biases with theirs.
        compute: the element type of what passes between launches.
        cache: that of keys and values that are kept.
        runtime: whose launches these are.
    """

    family: Family
    layers: int
    width: int
    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    experts_used: int
    window: int
    weights: Mapping[str, SizedTensor]
    compute: str
    cache: str
    runtime: str

    def __post_init__(self) -> None:
        for name in ("width", "heads", "kv_heads", "key_size", "value_size"):
            if not 0 < getattr(self, name) <= _MOST:
                raise ModelError(f"the model's {name} is {getattr(self, name)}; expected 1 to {_MOST}")
        if not 0 < self.layers <= _LAYERS:
            raise BudgetExceeded(f"the model has {self.layers} blocks; 1 to {_LAYERS} are listed")
        if self.heads % self.kv_heads:
            raise ModelError(f"{self.heads} heads do not share {self.kv_heads} heads of keys and values")

    def weight(self, name: str) -> SizedTensor | None:
        """A weight, where the model has it.

        Raises:
            ModelError: it is one number without dimensions.
        """
        found = self.weights.get(name)
        if found is not None and not found.shape:
            raise ModelError(f"{name}.weight is one number")
        return found

    def needed(self, name: str) -> SizedTensor:
        """A weight that a model of its family has.

        Raises:
            ModelError: it has not.
        """
        found = self.weight(name)
        if found is None:
            raise ModelError(f"the model has no tensor {name}.weight")
        return found


def of_gguf(header: GgufHeader) -> LanguageModel:
    """The model that a GGUF file holds.

    Raises:
        UnsupportedOperator: it is of a family without rules, or has weights whose use is not known.
        ModelError: what it says does not fit together.
    """
    said = header.said
    architecture = said.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in FAMILIES:
        raise UnsupportedOperator(f"the architecture {architecture!r:.60} has no rules; valid: {', '.join(sorted(FAMILIES))}")

    def number(name: str, default: int | None = None) -> int:
        value = said.get(f"{architecture}.{name}", default)
        if isinstance(value, tuple) and value and len(set(value)) == 1:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelError(f"the metadata's {architecture}.{name} is {value!r:.60}; expected one number")
        return value

    width, heads = number("embedding_length"), number("attention.head_count")
    usual = width // heads if heads > 0 else 0
    key_size = number("attention.key_length", usual)
    return LanguageModel(
        family=FAMILIES[architecture],
        layers=number("block_count"),
        width=width,
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        key_size=key_size,
        value_size=number("attention.value_length", key_size),
        experts_used=number("expert_used_count", 0),
        window=number("attention.sliding_window", 0),
        weights=_known(header.tensors),
        compute="float32",
        cache="float16",
        runtime="llama.cpp",
    )


def _known(tensors: Mapping[str, SizedTensor]) -> dict[str, SizedTensor]:
    """The weights by name, if all of them are of those whose use is known."""
    kept = {}
    for name, tensor in tensors.items():
        block = _BLOCK.fullmatch(name)
        known = name in _OUTSIDE or (block is not None and (block[2] in _OF_A_BLOCK or block[2] in _ROPE))
        if not known:
            raise UnsupportedOperator(f"what tensor {name!r:.80} is used for has no rule")
        kept[name.removesuffix(".weight")] = tensor
    return kept


def integer(said: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A whole number of a configuration in JSON.

    Raises:
        ModelError: it is none.
    """
    value = said.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(f"config.json: {name} is {value!r:.60}; expected a whole number")
    return value
