# SPDX-License-Identifier: Apache-2.0
"""The language models that others measured, as their launches for one token: by their published sizes and formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from ....kernels.budget import Account, Budget
from ....kernels.inputs import parse_input
from ....kernels.language.launches import network_of
from ....kernels.language.model import Family, LanguageModel
from ....kernels.network import Network
from ....kernels.sized import SizedTensor


@dataclass(frozen=True)
class Sizes:
    """A model's, by its config.json; ``tied``: the table of tokens is the last product's weight, too."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    tokens: int
    tied: bool
    head_size: int = 128


SIZES: Mapping[str, Sizes] = {
    "Qwen2.5-1.5B": Sizes(28, 1536, 12, 2, 8960, 151936, tied=True),
    "Qwen2.5-3B": Sizes(36, 2048, 16, 2, 11008, 151936, tied=True),
    "Qwen2.5-7B": Sizes(28, 3584, 28, 4, 18944, 152064, tied=False),
    "Qwen3-1.7B": Sizes(28, 2048, 16, 8, 6144, 151936, tied=True),
    "Qwen3-4B": Sizes(36, 2560, 32, 8, 9728, 151936, tied=True),
    "Llama-3.1-8B": Sizes(32, 4096, 32, 8, 14336, 128256, tied=False),
}

#: Element types of a format's products and of its last one. INT4 is TensorRT Edge-LLM's, whose last product is not quantised.
FORMATS: Mapping[str, tuple[str, str]] = {
    "bf16": ("bfloat16", "bfloat16"),
    "F16": ("float16", "float16"),
    "Q8_0": ("q8_0", "q8_0"),
    "Q6_K": ("q6_K", "q6_K"),
    "Q4_K_M": ("q4_K", "q6_K"),
    "IQ4_XS": ("iq4_xs", "q6_K"),
    "INT4": ("int4", "float16"),
}


#: Instructions for each weight of a product, by its element type: loads, unpacking, products of four bytes and scales, counted
#: in llama.cpp's kernels for one column (``vecdotq.cuh``). A saturating difference of four bytes, of which Q6_K has one for
#: every four weights, counts as the eight that GPUs make of it. The kernels of Edge-LLM are not public: as Q4_K.
INSTRUCTIONS: Mapping[str, float] = {"q8_0": 2.1, "iq4_xs": 2.8, "q4_K": 3.6, "q5_K": 4.8, "q6_K": 6.75, "int4": 3.6}
_IN_ATTENTION = 1.0


@dataclass(frozen=True)
class Part:
    """Launches of one token that are alike: products whose weights have one element type, attention, or all others.

    Attributes:
        bytes: moved: weights, keys and values, and what passes between launches.
        instructions: of products whose weights are unpacked as they are read, and of attention.
        cache: whether the bytes are keys and values.
    """

    bytes: float
    instructions: float
    cache: bool = False


@dataclass(frozen=True)
class Token:
    """What one token costs, whatever the board.

    Attributes:
        parts: what its launches do, by kind.
        launches: how many.
    """

    parts: tuple[Part, ...]
    launches: int

    @property
    def bytes(self) -> float:
        return sum(part.bytes for part in self.parts)

    @property
    def instructions(self) -> float:
        return sum(part.instructions for part in self.parts)


@cache
def token(model: str, form: str, context: int) -> Token:
    """One token of a model in a format that sees so many positions.

    Raises:
        KeyError: the model or the format is not among those here.
    """
    launches = _network(model, form, context).launches
    parts: dict[str, Part] = {}
    for call in launches:
        product = call.kind == "matmul"
        kind = call.dtype if product else call.kind if call.kind == "attention" else ""
        each = _IN_ATTENTION if kind == "attention" else INSTRUCTIONS.get(call.dtype, 0.0) if product else 0.0
        before = parts.get(kind, Part(0.0, 0.0))
        done = before.instructions + each * call.flops / 2
        parts[kind] = Part(before.bytes + call.bytes, done, cache=kind == "attention")
    return Token(tuple(parts.values()), len(launches))


def _network(model: str, form: str, context: int) -> Network:
    sizes, (own, last) = SIZES[model], FORMATS[form]
    weights = dict(_weights(model, form))
    weights["token_embd"] = SizedTensor((sizes.tokens, sizes.width), last if sizes.tied else own)
    if not sizes.tied:
        weights["output"] = SizedTensor((sizes.tokens, sizes.width), last)
    known = LanguageModel(
        family=Family(),
        layers=sizes.layers,
        width=sizes.width,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        key_size=sizes.head_size,
        value_size=sizes.head_size,
        experts_used=0,
        window=0,
        weights=weights,
        compute="float16",
        cache="float16",
        runtime="",
    )
    return network_of(known, [parse_input(f"decode={context}:int")], Account(Budget()), model)


def _weights(model: str, form: str) -> Iterator[tuple[str, SizedTensor]]:
    sizes = SIZES[model]
    own, _ = FORMATS[form]
    width, q, kv = sizes.width, sizes.heads * sizes.head_size, sizes.kv_heads * sizes.head_size
    products = {"attn_q": (q, width), "attn_k": (kv, width), "attn_v": (kv, width), "attn_output": (width, q)}
    products |= {"ffn_gate": (sizes.inner, width), "ffn_up": (sizes.inner, width), "ffn_down": (width, sizes.inner)}
    yield "output_norm", SizedTensor((width,), "float32")
    for number in range(sizes.layers):
        finer = _finer(form, number, sizes.layers)
        for name, shape in products.items():
            yield f"blk.{number}.{name}", SizedTensor(shape, finer.get(name, own))
        norms = {"attn_norm": width, "ffn_norm": width}
        norms |= dict.fromkeys(("attn_q_norm", "attn_k_norm"), sizes.head_size) if model.startswith("Qwen3") else {}
        for name, size in norms.items():
            yield f"blk.{number}.{name}", SizedTensor((size,), "float32")


def _finer(form: str, number: int, layers: int) -> Mapping[str, str]:
    """The products of a block that llama.cpp keeps in a finer type (``llama_tensor_get_type`` in its llama-quant.cpp)."""
    eighth = layers // 8
    if form == "Q4_K_M" and (number < eighth or number >= 7 * layers // 8 or (number - eighth) % 3 == 2):
        return {"attn_v": "q6_K", "ffn_down": "q6_K"}
    if form == "IQ4_XS":
        return {"attn_v": "q5_K", **({"ffn_down": "q5_K"} if number < eighth else {})}
    return {}
