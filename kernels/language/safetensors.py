# SPDX-License-Identifier: Apache-2.0
"""A safetensors file and the ``config.json`` beside it, as transformers writes them: the header alone, weights unread."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ..budget import Account
from ..errors import BudgetExceeded, ModelError, UnsupportedOperator
from ..exported.pieces import JsonText
from ..network import DTYPE_BYTES, numel
from ..sized import SizedTensor
from .model import FAMILIES, Family, LanguageModel, integer

_PARTS = 256
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")

#: What the format calls element types.
TYPES: Mapping[str, str] = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "F16": "float16",
    "BF16": "bfloat16", "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip

#: By transformers' ``model_type``: the architecture as GGUF calls it.
_ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen2_moe": "qwen2moe", "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe", "gemma": "gemma", "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "phi3",
}  # fmt: skip
_SLIDES_EVERYWHERE = ("mistral", "phi3")

#: Parts of transformers' names, and what llama.cpp calls the same.
_IN_BLOCKS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}  # fmt: skip
_EXPERTS = {
    "gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
    "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps",
}  # fmt: skip
_OUTSIDE = {"model.embed_tokens.weight": "token_embd", "lm_head.weight": "output", "model.norm.weight": "output_norm"}
_BLOCK = re.compile(r"model\.layers\.(\d{1,5})\.(.+)\.(weight|bias)")
_EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.(\d{1,5})\.(\w+)")


def is_safetensors(stream: BinaryIO) -> bool:
    """Whether a file starts as safetensors does: the length of a header, and the header."""
    length = stream.seek(0, 2)
    stream.seek(0)
    head = stream.read(10)
    return 2 <= int.from_bytes(head[:8], "little") <= length - 8 and head[8:10] in (b'{"', b"{}")


def of_safetensors(stream: BinaryIO, folder: Path | None, name: str, account: Account) -> LanguageModel:
    """The model that a file, the parts beside it and their ``config.json`` are.

    Args:
        stream: the file.
        folder: where it lies; None where that is not known.
        name: its name there.
        account: bounds on what reading may cost.

    Raises:
        UnsupportedOperator: it is of a family without rules, or has weights whose use is not known.
        ModelError: it is damaged, lacks its configuration, or does not fit together.
    """
    if folder is None:
        raise ModelError(
            "a safetensors file holds weights without a network, which the config.json beside it describes: decompose it by "
            "its path (jetdvfs decompose FILE --json) and give that list, or give a GGUF file"
        )
    said = _configuration(folder / "config.json", account)
    said = said["text_config"] if isinstance(said.get("text_config"), dict) else said
    kind = said.get("model_type")
    if not isinstance(kind, str) or kind not in _ARCHITECTURES:
        raise UnsupportedOperator(
            f"config.json: model_type {kind!r:.60} has no rules; valid: {', '.join(sorted(_ARCHITECTURES))}"
        )
    if said.get("quantization_config"):
        raise UnsupportedOperator("config.json: weights that are quantised in safetensors have no rules; give a GGUF file")
    tensors: dict[str, SizedTensor] = {}
    for part in _parts(stream, folder, name):
        tensors |= _opened(part, account) if isinstance(part, Path) else _header(part, account)
    weights = _named(tensors, kind)
    width, heads = integer(said, "hidden_size"), integer(said, "num_attention_heads")
    size = integer(said, "head_dim", width // heads if heads > 0 else 0)
    compute = weights["token_embd"].dtype if "token_embd" in weights else "float16"
    if compute not in DTYPE_BYTES:
        raise UnsupportedOperator(f"embeddings of type {compute} have no rules")
    slides = kind in _SLIDES_EVERYWHERE or FAMILIES[_ARCHITECTURES[kind]].sliding
    return LanguageModel(
        family=Family("silu", _LAST) if kind in _SLIDES_EVERYWHERE else FAMILIES[_ARCHITECTURES[kind]],
        layers=integer(said, "num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=integer(said, "num_key_value_heads", heads),
        key_size=size,
        value_size=size,
        experts_used=integer(said, "num_experts_per_tok", 0),
        window=integer(said, "sliding_window", 0) if slides else 0,
        weights=weights,
        compute=compute,
        cache=compute,
        runtime="transformers",
    )


_LAST = 1 << 30
"""So many blocks in a row slide: all of them."""


def _configuration(path: Path, account: Account) -> Mapping[str, Any]:
    most = account.budget.graph_bytes
    try:
        with open(path, "rb", opener=_without_waiting) as stream:
            content = stream.read(most + 1)
    except OSError as error:
        why = f"{path.name}, which says what network the weights are of, cannot be read beside them"
        raise ModelError(f"{why}: {error.strerror or error}") from error
    if len(content) > most:
        raise BudgetExceeded(f"{path.name} has more than {most} bytes")
    try:
        document = JsonText(content.decode(), account)
        said, end = document.value(0)
        document.finish(end)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path.name} is no JSON ({str(error)[:100]})") from error
    if not isinstance(said, dict):
        raise ModelError(f"{path.name} is {said!r:.40}; expected an object")
    return said


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; of a named pipe, without waiting for somebody to write into it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parts(stream: BinaryIO, folder: Path, name: str) -> Sequence[BinaryIO | Path]:
    """The file, or all parts of which it is one."""
    part = _PART.fullmatch(name)
    if part is None:
        return [stream]
    count = int(part[3])
    if not 0 < count <= _PARTS:
        raise BudgetExceeded(f"{name:.80} is one of {count} parts; at most {_PARTS} are read")
    return [folder / f"{part[1]}-{number:05}-of-{part[3]}.safetensors" for number in range(1, count + 1)]


def _opened(path: Path, account: Account) -> dict[str, SizedTensor]:
    try:
        with open(path, "rb", opener=_without_waiting) as stream:
            if not is_safetensors(stream):
                raise ModelError(f"{path.name} is no safetensors file")
            return _header(stream, account)
    except OSError as error:
        raise ModelError(f"{path.name}, a part of the model, cannot be read: {error.strerror}") from error


def _header(stream: BinaryIO, account: Account) -> dict[str, SizedTensor]:
    """The tensors that a file's header lists."""
    size = stream.seek(0, 2)
    stream.seek(0)
    length = int.from_bytes(stream.read(8), "little")
    room = min(account.room(), account.budget.entry_bytes)
    if length > room:
        raise BudgetExceeded(f"a header of {length} bytes; there is room to read {room}")
    tensors: dict[str, SizedTensor] = {}

    def keep(name: str, made: Any) -> None:
        if name == "__metadata__":
            return
        if len(tensors) >= account.budget.entries:
            raise BudgetExceeded(f"the file lists more than {account.budget.entries} tensors")
        tensors[name] = _tensor(name, made, size - 8 - length, account)

    try:
        text = JsonText(stream.read(length).decode(), account)
        text.finish(text.entries(0, keep))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the header is damaged ({str(error)[:100]}); download the file again") from error
    return tensors


def _tensor(name: str, made: Any, room: int, account: Account) -> SizedTensor:
    shape, offsets = (_counts(made.get("shape")), _counts(made.get("data_offsets"))) if isinstance(made, dict) else (None, None)
    if shape is None or offsets is None or len(offsets) != 2:
        raise ModelError(f"tensor {name!r:.80} is {made!r:.60}; expected dtype, shape and data_offsets")
    dtype = TYPES.get(str(made.get("dtype")))
    if dtype is None:
        raise ModelError(f"tensor {name!r:.80} is of type {made.get('dtype')!r:.30}; valid: {', '.join(TYPES)}")
    most = account.budget.elements
    if len(shape) > account.budget.rank or 0 in shape or numel(shape) > most:
        raise BudgetExceeded(f"tensor {name!r:.80} has the shape {shape!r:.60}; 1 to {most} elements are possible")
    tensor = SizedTensor(shape, dtype)
    if offsets[1] - offsets[0] != tensor.nbytes or offsets[1] > room:
        raise ModelError(
            f"tensor {name!r:.80} of {tensor.nbytes} bytes lies at {offsets[0]} to {offsets[1]} of {room}: the file is damaged "
            "or cut off; download it again"
        )
    return tensor


def _counts(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value):
        return None
    return tuple(value)


def _named(tensors: Mapping[str, SizedTensor], kind: str) -> dict[str, SizedTensor]:
    """The weights by llama.cpp's names, those of a block's experts as one."""
    named: dict[str, SizedTensor] = {}
    experts: dict[str, list[SizedTensor]] = {}
    # Two norms around each part, where there are that many; else the second one stands before the feed-forward part.
    four = any(name.endswith("pre_feedforward_layernorm.weight") for name in tensors)
    norms = {"post_attention_layernorm": "post_attention_norm" if four else "ffn_norm"}
    norms |= {"pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
    for name, tensor in tensors.items():
        block = _BLOCK.fullmatch(name)
        expert = _EXPERT.fullmatch(block[2]) if block else None
        if name in _OUTSIDE:
            named[_OUTSIDE[name]] = tensor
        elif block and expert and expert[2] in _EXPERTS and block[3] == "weight":
            experts.setdefault(f"blk.{block[1]}.{_EXPERTS[expert[2]]}", []).append(tensor)
        elif block and (own := _IN_BLOCKS.get(block[2]) or norms.get(block[2])):
            named[f"blk.{block[1]}.{own}" + (".bias" if block[3] == "bias" else "")] = tensor
        elif not name.endswith("rotary_emb.inv_freq"):
            raise UnsupportedOperator(f"what tensor {name!r:.80} of a {kind} is used for has no rule")
    for name, alike in experts.items():
        if len(set(alike)) > 1:
            raise ModelError(f"the experts of {name} are not alike")
        named[name] = SizedTensor((len(alike), *alike[0].shape), alike[0].dtype)
    return named
