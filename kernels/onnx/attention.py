# SPDX-License-Identifier: Apache-2.0
"""Attention in ONNX: its own operator, and those of ONNX Runtime (docs/ContribOperators.md of onnxruntime).

Attention over a cache writes new keys and values in place, without copying the cache.
"""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError, UnsupportedOperator
from ..network import numel
from ..operators.layout import show
from ..operators.values import Tensor
from .call import NodeCall, onnx_operator
from .layers import flipped


def in_heads(call: NodeCall, x: Tensor, heads: int) -> Tensor:
    """Rows (batch, time, width) as (batch, heads, time, width of a head)."""
    if x.rank == 4:
        return x
    if x.rank != 3 or heads < 1 or x.shape[-1] % heads:
        raise ShapeError(f"operator {call.node.key} in {heads} heads of an input of shape {show(x.shape)}")
    apart: Tensor = call.aten("view", x, [*x.shape[:2], heads, x.shape[-1] // heads])
    turned: Tensor = call.aten("transpose", apart, 1, 2)
    return turned


def out_of_heads(call: NodeCall, x: Tensor) -> Tensor:
    moved: Tensor = call.aten("transpose", x, 1, 2)
    merged: Tensor = call.aten("reshape", moved, [*moved.shape[:2], moved.shape[2] * moved.shape[3]])
    return merged


def _joined(call: NodeCall, past: Tensor | None, x: Tensor) -> Tensor:
    if past is None or not past.numel:
        return x
    made: Tensor = call.aten("cat", [past, x], 2)
    return made


@onnx_operator("Attention")
def attention(call: NodeCall) -> Any:
    """One launch, or its steps for a soft cap or requested scores, which PyTorch's call lacks."""
    x, ranked = call.tensor(0), call.tensor(0).rank == 3
    counts = [int(call.attribute(name, 0)) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    query, key, value = (in_heads(call, call.tensor(place), count) for place, count in enumerate(counts))
    key, value = _joined(call, call.optional(4), key), _joined(call, call.optional(5), value)
    mask, causal, cap = call.optional(3), bool(call.attribute("is_causal", 0)), call.attribute("softcap", 0.0)
    grouped, scores = query.shape[1] != key.shape[1], None
    if grouped and query.shape[1] % max(key.shape[1], 1):
        raise ShapeError(f"operator Attention of {query.shape[1]} heads over {key.shape[1]} heads of keys")
    left, right = (call.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    if left >= 0 and (right >= 0 or causal) and not cap and len(call.node.outputs) < 4:
        made = _over_cache(call, query, [key, value], key.shape[2], left + 1 + max(right, 0), mask)
    elif not cap and len(call.node.outputs) < 4:
        made = call.aten("scaled_dot_product_attention", query, key, value, mask, 0.0, causal, None, grouped)
    else:
        times = query.shape[1] // key.shape[1]
        keys, values = (call.aten("repeat_interleave", part, times, 1) if grouped else part for part in (key, value))
        soft = scores = call.aten("mul", call.aten("matmul", query, call.aten("transpose", keys, -1, -2)), 1.0)
        if cap:
            soft = call.aten("mul", call.aten("tanh", call.aten("div", soft, cap)), cap)
        if mask is not None:
            soft = call.aten("masked_fill" if mask.dtype == "bool" else "add", soft, mask, *[0.0] * (mask.dtype == "bool"))
        made = call.aten("matmul", call.aten("softmax", soft, -1), values)
    return out_of_heads(call, made) if ranked else made, key, value, scores if x.rank else None


def _over_cache(call: NodeCall, query: Tensor, cache: list[Tensor], cached: int, window: int, mask: Tensor | None) -> Tensor:
    """Attention of the newest tokens over a cache in place, one launch."""
    cap, causal = call.attribute("softcap", 0.0), call.attribute("is_causal", query.shape[2] > 1)
    recorder, (batch, heads, tokens, _) = call.recorder, query.shape
    looked = min(cached, window) if window > 0 else cached
    read = min(cached, window + tokens - 1) if window > 0 else cached
    kept = [recorder.tensor((*part.shape[:2], read, part.shape[3]), part.dtype, of=part) for part in cache]
    width = cache[1].shape[3]
    output = recorder.tensor(
        (batch, heads, tokens, width), query.dtype, (tokens * heads * width, width, heads * width, 1)
    )  # as fused kernels lay it out
    work = 2 * batch * heads * tokens * looked * (query.shape[3] + width)
    params: dict[str, Any] = {"mask": mask is not None, "causal": bool(causal), **({"softcap": cap} if cap else {})}
    return recorder.launch("attention", [query, *kept], output, params, (mask,), work=work)


@onnx_operator("com.microsoft::GroupQueryAttention")
def group_query_attention(call: NodeCall) -> Any:
    """Norms and rotation, writes into the cache, then attention with shared heads."""
    recorder, query = call.recorder, call.tensor(0)
    heads, shared = int(call.attribute("num_heads", 0)), int(call.attribute("kv_num_heads", 0))
    if heads < 1 or shared < 1 or heads % shared:
        raise ShapeError(f"operator {call.node.key} of {heads} heads over {shared} heads of keys")
    packed = [query, *(call.optional(place) for place in (1, 2))]
    if packed[1] is None:
        width = query.shape[-1] // (heads + 2 * shared)
        packed = call.aten("split_with_sizes", query, [heads * width, shared * width, shared * width], -1)
    parts = [in_heads(call, x, count) for x, count in zip(packed, (heads, shared, shared), strict=True) if x is not None]
    for place, scale in enumerate((call.optional(14), call.optional(15))):
        if scale is not None:
            parts[place] = call.aten("rms_norm", parts[place], [scale.numel], scale)
    if call.attribute("do_rotary", 0):
        parts[:2] = [rotated(call, part) for part in parts[:2]]
    query, key, value = parts
    past = [call.optional(place) for place in (3, 4)]
    tokens, before = query.shape[2], 0 if past[0] is None else past[0].shape[2]
    total = int(call.numbers(6)[0]) if call.given(6) and call.is_known(6) else before + tokens
    present = []
    for part, kept in zip((key, value), past, strict=True):
        shape = (part.shape[0], shared, max(before, total), part.shape[3])
        cache = recorder.tensor(shape, part.dtype if kept is None else kept.dtype, of=kept)
        present.append(cache)
        recorder.launch("copy", [part], recorder.tensor(part.shape, cache.dtype))
    made = _over_cache(call, query, present, total, int(call.attribute("local_window_size", -1)), call.optional(10))
    return (out_of_heads(call, made), *present)


def rotated(call: NodeCall, x: Tensor) -> Tensor:
    return call.recorder.launch("rope", [x], call.recorder.tensor(x.shape, x.dtype, x.strides), work=3 * x.numel)


@onnx_operator("com.microsoft::RotaryEmbedding", "com.microsoft::GemmaRotaryEmbedding")
def rotary_embedding(call: NodeCall) -> Any:
    return rotated(call, call.tensor(0))


@onnx_operator("com.microsoft::MultiHeadAttention")
def multi_head_attention(call: NodeCall) -> Any:
    heads = int(call.attribute("num_heads", 0))
    if not (call.given(1) and call.given(2)) or call.tensor(1).rank == 5:
        raise UnsupportedOperator("operator com.microsoft::MultiHeadAttention of packed inputs has no shape rule")
    query, key, value = (call.tensor(place) for place in range(3))
    if call.given(3):
        sizes = [x.shape[-1] for x in (query, key, value)]
        pieces = call.aten("split_with_sizes", call.tensor(3), sizes, 0)
        query, key, value = (call.aten("add", x, piece) for x, piece in zip((query, key, value), pieces, strict=True))
    query, key, value = (in_heads(call, x, heads) for x in (query, key, value))
    key, value = _joined(call, call.optional(6), key), _joined(call, call.optional(7), value)
    mask = call.optional(5) if call.given(5) else call.optional(4)
    causal = bool(call.attribute("unidirectional", 0))
    made = call.aten("scaled_dot_product_attention", query, key, value, mask, 0.0, causal)
    return out_of_heads(call, made), key, value


@onnx_operator("com.microsoft::Attention")
def packed_attention(call: NodeCall) -> Any:
    packed = call.aten("linear", call.tensor(0), flipped(call.recorder, call.tensor(1)), call.optional(2))
    return attended(call, packed, 4, call.optional(5) if call.given(5) else call.optional(3))


def attended(call: NodeCall, packed: Tensor, past_at: int, mask: Tensor | None) -> Any:
    """Attention of packed queries, keys and values; the past is one tensor (2, batch, heads, time, width)."""
    sizes = call.attribute("qkv_hidden_sizes") or [packed.shape[-1] // 3] * 3
    heads, past = int(call.attribute("num_heads", 0)), call.optional(past_at)
    parts = call.aten("split_with_sizes", packed, list(sizes), -1)
    query, key, value = (in_heads(call, part, heads) for part in parts)
    if past is not None:
        key, value = (_joined(call, call.aten("select", past, 0, place), part) for place, part in enumerate((key, value)))
    causal = bool(call.attribute("unidirectional", 0))
    made = call.aten("scaled_dot_product_attention", query, key, value, mask, 0.0, causal)
    return out_of_heads(call, made), call.recorder.tensor((2, *key.shape), key.dtype)


@onnx_operator("CausalConvWithState")
def causal_convolution(call: NodeCall) -> Any:
    x, weight, past = call.tensor(0), call.tensor(1), call.optional(3)
    if x.rank != 3 or weight.rank != 3:
        raise ShapeError(f"operator {call.node.key} on an input of shape {show(x.shape)}")
    kept = weight.shape[-1] - 1
    whole = call.aten("constant_pad_nd", x, [kept, 0], 0) if past is None else call.aten("cat", [past, x], 2)
    made = call.aten("conv1d", whole, weight, call.optional(2), [1], [0], [1], weight.shape[0])
    if call.attribute("activation", "none") != "none":
        made = call.aten("silu", made)
    return made, call.aten("slice", whole, 2, whole.shape[2] - kept, whole.shape[2])


@onnx_operator("com.microsoft::MoE", "com.microsoft::QMoE")
def mixture(call: NodeCall) -> Any:
    """Mixture of experts: choices, then one launch of each product for all experts."""
    quantized = call.node.operator == "QMoE"
    x, choice = call.tensor(0), call.tensor(1)
    up, down, gate = (2, 5, 8) if quantized else (2, 4, 6)
    recorder, width, used = call.recorder, x.shape[-1], int(call.attribute("k", 1))
    tokens, experts = x.numel // max(width, 1), call.tensor(up).shape[0]
    if not 0 < used <= experts or choice.shape[-1] != experts:
        raise ShapeError(f"operator {call.node.key}: {used} of {experts} experts, of a choice of shape {show(choice.shape)}")
    rows, bits = tokens * used, int(call.attribute("expert_weight_bits", 4)) if quantized else 0
    name = call.attribute("activation_type", "relu")

    def product(given: Tensor, place: int) -> Tensor:
        packed, inner = call.tensor(place), given.shape[-1]
        elements = packed.numel * (8 // bits if quantized and bits else 1)
        columns, rest = divmod(elements, experts * inner)
        if rest or not columns:
            raise ShapeError(f"operator {call.node.key}: experts' weights of shape {show(packed.shape)} on rows of {inner}")
        read = min(experts, rows)
        parts = [call.optional(at) for at in range(place, place + (3 if quantized else 2))]
        weights = [recorder.tensor((part.numel * read // experts,), part.dtype) for part in parts if part is not None]
        own: dict[str, Any] = {"m": rows, "k": inner, "n": columns, "batch": 1, "bias": parts[-1] is not None, "experts": read}
        output = recorder.tensor((rows, columns), x.dtype)
        return recorder.launch("matmul", [given], output, own, weights, dtype=_BY_BITS.get(bits, ""))

    recorder.launch("softmax", [choice], recorder.tensor(choice.shape, choice.dtype), {"dim": choice.rank - 1})
    recorder.launch("topk", [choice], recorder.tensor((tokens, used), choice.dtype))
    picked = recorder.tensor((rows, width), x.dtype, of=x)
    hidden = product(picked, up)
    gated = [product(picked, gate)] if call.given(gate) else []
    packed_gate = name == "swiglu" and not gated and int(call.attribute("swiglu_fusion", 0)) != 0
    shape = (rows, hidden.shape[-1] // 2) if packed_gate else hidden.shape
    kind = {"swiglu": "silu", "identity": ""}.get(name, name)
    params: dict[str, Any] = {"kinds": f"{kind}+mul", "outputs": 1}
    if gated or packed_gate:
        halves = [recorder.tensor(shape, x.dtype, of=hidden)] * 2 if packed_gate else [hidden, *gated]
        hidden = recorder.launch("fused_pointwise", halves, recorder.tensor(shape, x.dtype), params, work=2 * numel(shape))
    elif kind:
        hidden = call.aten(kind, hidden)
    made = product(hidden, down)
    output = recorder.tensor(x.shape, x.dtype)
    return recorder.launch("fused_reduction", [made], output, {"kinds": "mul+sum", "outputs": 1}, work=2 * rows * width)


_BY_BITS = {2: "int2", 4: "int4", 8: "int8"}
