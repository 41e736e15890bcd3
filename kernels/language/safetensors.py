# SPDX-License-Identifier: Apache-2.0
"""Safetensors files and their ``config.json``, as transformers writes them: headers alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from msgspec.structs import replace

from ..budget import Account
from ..errors import BudgetExceeded, ModelError, UnsupportedOperator
from ..exported_pieces import JsonText
from ..network import DTYPE_BYTES, ScaledTensor, SizedTensor, numel
from .folder import nonblocking
from .model import FAMILIES, Block, LanguageModel, check_layers, has_rope, windows_of
from .parts import opened_part, parts_of
from .quantised import check_method, stored_weights

#: Element types under the format's names.
TYPES: Mapping[str, str] = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "F16": "float16",
    "BF16": "bfloat16", "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "U16": "int16", "U32": "int32", "U64": "int64",
}  # fmt: skip

#: GGUF's architecture of each ``model_type`` of transformers, including those of text towers.
_ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "ministral": "mistral3", "ministral3": "mistral3",
    "mistral3": "mistral3",
    "qwen2": "qwen2", "qwen2_moe": "qwen2moe", "qwen3": "qwen3", "qwen3_moe": "qwen3moe",
    "qwen2_vl": "qwen2vl", "qwen2_vl_text": "qwen2vl", "qwen2_5_vl": "qwen2vl", "qwen2_5_vl_text": "qwen2vl",
    "qwen3_vl": "qwen3vl", "qwen3_vl_text": "qwen3vl", "qwen3_vl_moe": "qwen3vlmoe", "qwen3_vl_moe_text": "qwen3vlmoe",
    "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3", "gemma3_text": "gemma3",
    "gemma4": "gemma4", "gemma4_text": "gemma4",
    "gpt_oss": "gpt-oss", "granite": "granite", "granitemoe": "granitemoe", "lfm2": "lfm2", "olmo2": "olmo2", "olmo3": "olmo2",
    "phi3": "phi3", "smollm3": "smollm3",
}  # fmt: skip
_SLIDES_EVERYWHERE = ("mistral", "phi3")
_FULL, _SLIDING = ("full_attention", "conv"), "sliding_attention"

#: Parts of transformers' names, and llama.cpp's names for them.
_IN_BLOCKS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.out_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks", "input_layernorm": "attn_norm", "operator_norm": "attn_norm", "ffn_norm": "ffn_norm",
    "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv", "conv.out_proj": "shortconv.out_proj",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
    "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
    "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
    "router.proj": "ffn_gate_inp",
    "block_sparse_moe.router.layer": "ffn_gate_inp", "block_sparse_moe.input_linear": "ffn_gate_up_exps",
    "block_sparse_moe.output_linear": "ffn_down_exps", "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    **{f"{place}.gate_up_proj": "ffn_gate_up_exps" for place in ("mlp.experts", "experts")},
    **{f"{place}.down_proj": "ffn_down_exps" for place in ("mlp.experts", "experts")},
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "post_feedforward_layernorm_1": "post_ffw_norm_1", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_2": "post_ffw_norm_2", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm", "layer_scalar": "layer_output_scale",
}  # fmt: skip
_EXPERTS = {
    "gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
    "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps",
}  # fmt: skip
_OUTSIDE = {
    "embed_tokens": "token_embd", "norm": "output_norm", "embedding_norm": "output_norm",
    "embed_tokens_per_layer": "per_layer_token_embd", "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
}  # fmt: skip
_NOTHING = SizedTensor((), "float32")
_TABLE, _HEAD = "embed_tokens", "lm_head"
_TOWER = re.compile(r"(model\.)?(visual|vision_\w+|audio_\w+|embed_vision|embed_audio|mm_projector|multi_modal_projector)\..+")
_BLOCK = re.compile(r"layers\.(\d{1,5})\.(.+)")
_EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.(\d{1,5})\.(\w+)")


def is_safetensors(stream: BinaryIO) -> bool:
    length = stream.seek(0, 2)
    stream.seek(0)
    head = stream.read(10)
    return 2 <= int.from_bytes(head[:8], "little") <= length - 8 and head[8:10] in (b'{"', b"{}")


def of_safetensors(stream: BinaryIO, folder: Path | None, name: str, account: Account) -> LanguageModel:
    """The model of a file, the parts next to it and their ``config.json``; of a model with towers, its text tower.

    Raises ModelError, or UnsupportedOperator for an unknown family or weight.
    """
    if folder is None:
        raise ModelError(
            "a safetensors file holds weights without a network, which the config.json next to it describes: decompose it by "
            "its path (jetdvfs decompose FILE --json) and give that list, or give a GGUF file"
        )
    outer = _configuration(folder / "config.json", account)
    said = outer["text_config"] if isinstance(outer.get("text_config"), dict) else outer
    kind = said.get("model_type", outer.get("model_type"))
    if not isinstance(kind, str) or kind not in _ARCHITECTURES:
        raise UnsupportedOperator(
            f"config.json: model_type {kind!r:.60} has no rules; valid: {', '.join(sorted(_ARCHITECTURES))}"
        )
    quantisation = check_method(outer)
    tensors: dict[str, SizedTensor] = {}
    paths = parts_of(folder, name, ".safetensors")
    if paths is None:
        tensors = _header(stream, account)
    for path in paths or ():
        with opened_part(path) as part:
            if not is_safetensors(part):
                raise ModelError(f"{path.name} is no safetensors file")
            tensors |= _header(part, account)
    towers = any(isinstance(outer.get(key), dict) for key in ("text_config", "vision_config", "audio_config"))
    weights = _named(stored_weights(tensors, quantisation), kind, towers)
    return _described(said, kind, weights)


def _described(config: Mapping[str, Any], kind: str, weights: Mapping[str, SizedTensor]) -> LanguageModel:
    def number(name: str, default: int | None = None) -> int:
        value = config.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelError(f"config.json: {name} is {value!r:.60}; expected a whole number")
        return value

    def rows(block: int, part: str) -> int:
        found = weights.get(f"blk.{block}.{part}")
        return found.shape[0] if found is not None and found.shape else 0

    family = FAMILIES[_ARCHITECTURES[kind]]
    present = [int(name.split(".")[1]) for name in weights if name.startswith("blk.")]
    layers = check_layers(number("num_hidden_layers", max(present, default=-1) + 1))
    width = number("hidden_size", weights["token_embd"].shape[-1] if weights.get("token_embd", _NOTHING).shape else None)
    windows = _windows(config, kind, layers, family.period)
    rotated = config.get("no_rope_layers")
    rotated = rotated if isinstance(rotated, list) and len(rotated) == layers else None
    own_caches = layers - number("num_kv_shared_layers", 0)
    usual = rows(0, "attn_q_norm") if family.period else 0
    heads = config.get("num_attention_heads")
    key_size = number("head_dim", usual or (width // heads if isinstance(heads, int) and heads > 0 else 0))
    blocks = []
    for block in range(layers):
        size = key_size if windows[block] else number("global_head_dim", key_size)
        kv_heads = "num_key_value_heads"
        if not windows[block] and config.get("num_global_key_value_heads") and config.get("attention_k_eq_v"):
            kv_heads = "num_global_key_value_heads"
        own_heads = number("num_attention_heads", rows(block, "attn_q") // max(size, 1) or None)
        own_kv_heads = number(kv_heads, rows(block, "attn_k") // max(size, 1) or own_heads)
        rope = bool(rotated[block]) if rotated else has_rope(block, number("no_rope_layer_interval", family.rope_period))
        blocks.append(Block(own_heads, own_kv_heads, size, size, windows[block], rope, shares_cache=block >= own_caches))
    compute = weights["token_embd"].dtype if "token_embd" in weights else "float16"
    if compute not in DTYPE_BYTES:
        raise UnsupportedOperator(f"embeddings of type {compute} have no rules")
    scales = {"embedding": "embedding_multiplier", "residual": "residual_multiplier", "logits": "logits_scaling"}
    return LanguageModel(
        family=family,
        width=width,
        blocks=tuple(blocks),
        weights=weights,
        compute=compute,
        cache=compute,
        runtime="transformers",
        experts_used=number("num_experts_per_tok", number("top_k_experts", 0)),
        scaled=frozenset(name for name, key in scales.items() if config.get(key)),
        softcap=bool(config.get("final_logit_softcapping")),
    )


def _windows(config: Mapping[str, Any], kind: str, layers: int, period: int) -> list[int]:
    window, types = config.get("sliding_window"), config.get("layer_types")
    if window is None or config.get("use_sliding_window") is False:
        window = 0
    if isinstance(window, bool) or not isinstance(window, int):
        raise ModelError(f"config.json: sliding_window is {window!r:.60}; expected a whole number or null")
    if types is not None:
        if not isinstance(types, list) or len(types) < layers:
            raise ModelError(f"config.json: layer_types is {types!r:.60}; expected a list of {layers}")
        for each in types:
            if each not in (*_FULL, _SLIDING):
                raise UnsupportedOperator(
                    f"config.json: layers of type {each!r:.40} have no rules; valid: {', '.join((*_FULL, _SLIDING))}"
                )
        if window == 0 and _SLIDING in types[:layers] and config.get("use_sliding_window") is not False:
            raise ModelError("config.json: layer_types has sliding_attention, without a sliding_window")
        return windows_of(window, layers, 0, [each == _SLIDING for each in types[:layers]])
    if kind in _SLIDES_EVERYWHERE:
        return windows_of(window, layers, 0, [True] * layers)
    if kind.startswith("qwen") and config.get("use_sliding_window"):
        first = config.get("max_window_layers", 28)
        if not isinstance(first, int):
            raise ModelError(f"config.json: max_window_layers is {first!r:.60}; expected a whole number")
        return windows_of(window, layers, 0, [block >= first for block in range(layers)])
    pattern = config.get("sliding_window_pattern", period)
    return windows_of(window, layers, pattern if isinstance(pattern, int) else period)


def _configuration(path: Path, account: Account) -> Mapping[str, Any]:
    most = account.budget.graph_bytes
    try:
        with open(path, "rb", opener=nonblocking) as stream:
            content = stream.read(most + 1)
    except OSError as error:
        why = f"{path.name}, which describes the network of the weights, cannot be read"
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


def _header(stream: BinaryIO, account: Account) -> dict[str, SizedTensor]:
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


def _named(tensors: Mapping[str, SizedTensor], kind: str, towers: bool) -> dict[str, SizedTensor]:
    named: dict[str, SizedTensor] = {}
    experts: dict[str, list[SizedTensor]] = {}
    root = min(
        (name.removesuffix(_TABLE) for name in tensors if re.fullmatch(rf"([a-z_]+\.)*{_TABLE}", name)),
        default="model.",
        key=len,
    )
    # With two norms around each part, the second follows attention; else it precedes the feed-forward part.
    four = any(name.endswith("post_feedforward_layernorm") for name in tensors)
    norms = {"post_attention_layernorm": "post_attention_norm" if four else "ffn_norm"}
    norms |= {"pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
    for full, tensor in tensors.items():
        bias = ".bias" if full.endswith((".bias", "_proj_bias")) else ""
        name = full.removesuffix(".bias").removesuffix("_bias")
        inside = name.removeprefix(root) if name.startswith(root) else ""
        block = _BLOCK.fullmatch(inside)
        expert = _EXPERT.fullmatch(block[2]) if block else None
        if inside in _OUTSIDE:
            named[_OUTSIDE[inside]] = tensor
        elif name.split(".")[-1] == _HEAD:
            named["output" + bias] = tensor
        elif block and expert and expert[2] in _EXPERTS and not bias:
            experts.setdefault(f"blk.{block[1]}.{_EXPERTS[expert[2]]}", []).append(tensor)
        elif block and (own := _IN_BLOCKS.get(block[2]) or norms.get(block[2])):
            named[f"blk.{block[1]}.{own}{bias}"] = tensor
        elif not (name.endswith("rotary_emb.inv_freq") or _TOWER.fullmatch(name) or (towers and not inside)):
            raise UnsupportedOperator(f"the use of tensor {full!r:.80} of a {kind} has no rule")
    for name, alike in experts.items():
        if len(set(alike)) > 1:
            raise ModelError(f"the experts of {name} are not alike")
        shape = (len(alike), *alike[0].shape)
        extra = len(alike) * alike[0].extra if isinstance(alike[0], ScaledTensor) else 0
        named[name] = ScaledTensor(shape, alike[0].dtype, extra)
    width = named["token_embd"].shape[-1] if "token_embd" in named and named["token_embd"].shape else 0
    for name, tensor in named.items():
        joined, down = name.endswith("ffn_gate_up_exps"), name.endswith("ffn_down_exps")
        place = 2 if joined else 1
        if (joined or down) and len(tensor.shape) == 3 and tensor.shape[place] != width == tensor.shape[3 - place]:
            named[name] = replace(tensor, shape=(tensor.shape[0], tensor.shape[2], tensor.shape[1]))
    return named
