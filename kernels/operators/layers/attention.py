# SPDX-License-Identifier: Apache-2.0
"""Attention: one launch for ``scaled_dot_product_attention``; fast paths of ``torch.nn`` split into their parts.

``_native_multi_head_attention`` and ``_transformer_encoder_layer_fwd`` replace the modules' own code in traces of inference,
listed as CUDA runs them (``aten/src/ATen/native/transformers/cuda/attention.cu``). Without a mask these are both projections
and one attention, batch first, without copies. With a mask, or a head width not a multiple of 8, they are the modules'
launches.
"""

from __future__ import annotations

from ...errors import ShapeError, UnsupportedOperator
from ...network import Shape
from ..elementwise import unary
from ..layout import broadcast, contiguous, preserved, show
from ..memory import views
from ..pointwise import add
from ..recorder import Recorder
from ..registry import operator
from ..values import Tensor
from .matrix import linear
from .normalization import layer_norm

_FUSED_WIDTH = 8  # fused kernels take heads of a multiple of it


def _laid_out(shape: Shape, query: Tensor, masked: bool, shared: bool) -> Shape | None:
    """Strides that CUDA's kernels give the output (``_meta_registrations.py``); ``None``: contiguous.

    FlashAttention (half precision, no mask) keeps the query's; the memory-efficient kernel puts heads after time. Neither takes
    (``sdp_utils.cpp``) inputs without a dimension of heads, double precision, shared heads in single precision or with a mask,
    and broadcasts.
    """
    fused = query.rank == 4 and query.dtype in ("float32", "float16", "bfloat16")
    if not fused or (shared and (masked or query.dtype == "float32")):
        return None
    if query.dtype != "float32" and not masked and query.shape == shape:
        return preserved(query)
    _, heads, time, width = shape
    return (time * heads * width, width, heads * width, 1)


def _is_expanded(mask: Tensor) -> bool:
    """True if a mask repeats a column: CUDA then takes products and a softmax (``check_last_dim_stride_equals_1``)."""
    return bool(mask.shape) and mask.shape[-1] > 1 and mask.strides[-1] != 1


@operator("scaled_dot_product_attention")
def attention(
    recorder: Recorder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if min(query.rank, key.rank, value.rank) < 2 or query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(f"attention of shapes {show(query.shape)}, {show(key.shape)} and {show(value.shape)}")
    lead = query.shape[:-2] if enable_gqa else broadcast([query.shape[:-2], key.shape[:-2], value.shape[:-2]])
    shape = (*lead, query.shape[-2], value.shape[-1])
    shared = enable_gqa and query.shape[-3] != key.shape[-3]
    broadcasts = not enable_gqa and any(x.shape[:-2] != lead for x in (query, key, value))
    expanded = attn_mask is not None and _is_expanded(attn_mask)
    strides = None if broadcasts or expanded else _laid_out(shape, query, attn_mask is not None, shared)
    output = recorder.tensor(shape, query.dtype, strides)
    params = {"mask": attn_mask is not None, "causal": bool(is_causal), **({"math": True} if expanded else {})}
    return recorder.launch("attention", [query, key, value], output, params, (attn_mask,))


@operator("_native_multi_head_attention")
def native_multi_head_attention(
    recorder: Recorder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor | None,
    proj_weight: Tensor,
    proj_bias: Tensor | None,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Self-attention, batch first: three launches in CUDA's fused kernels, else step by step."""
    if need_weights or query is not key or key is not value:
        raise UnsupportedOperator(
            "operator aten::_native_multi_head_attention: only self-attention without its weights has a shape rule"
        )
    if query.rank != 3 or num_head < 1 or embed_dim % num_head:
        raise ShapeError(f"attention in {num_head} heads of an input of shape {show(query.shape)}")
    batch, length, _ = query.shape
    width = embed_dim // num_head
    if mask is None and width % _FUSED_WIDTH == 0:
        return _short_cut(recorder, query, num_head, (qkv_weight, qkv_bias), (proj_weight, proj_bias)), None
    steps = views.transpose(recorder, query, 1, 0)
    projected = linear(recorder, steps, qkv_weight, qkv_bias)
    parts = views.unflatten(recorder, projected, -1, [3, embed_dim])
    parts = views.squeeze(recorder, views.transpose(recorder, views.unsqueeze(recorder, parts, 0), 0, -2), -2)
    parts = contiguous(recorder, parts)
    heads: list[Tensor] = []
    for place in range(3):
        part = views.view(recorder, views.select(recorder, parts, 0, place), [length, batch * num_head, width])
        part = views.transpose(recorder, part, 0, 1)
        heads.append(views.view(recorder, part, [batch, num_head, length, width]))
    mixed = views.permute(recorder, attention(recorder, heads[0], heads[1], heads[2], mask), [2, 0, 1, 3])
    flat = views.view(recorder, contiguous(recorder, mixed), [batch * length, embed_dim])
    output = views.view(recorder, linear(recorder, flat, proj_weight, proj_bias), [length, batch, embed_dim])
    return views.transpose(recorder, output, 1, 0), None


def _short_cut(
    recorder: Recorder,
    query: Tensor,
    num_head: int,
    together: tuple[Tensor, Tensor | None],
    projection: tuple[Tensor, Tensor | None],
) -> Tensor:
    batch, length, embed_dim = query.shape
    parts = views.chunk(recorder, linear(recorder, query, *together), 3, -1)
    sizes = [batch, length, num_head, embed_dim // num_head]
    heads = [views.transpose(recorder, views.view(recorder, part, sizes), 1, 2) for part in parts]
    mixed = views.transpose(recorder, attention(recorder, heads[0], heads[1], heads[2]), 1, 2)
    return linear(recorder, views.reshape_(recorder, mixed, [batch, length, embed_dim]), *projection)


@operator("_transformer_encoder_layer_fwd")
def encoder_layer(
    recorder: Recorder,
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor | None,
    proj_weight: Tensor,
    proj_bias: Tensor | None,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """``torch.nn.TransformerEncoderLayer``, with the paths of its children."""

    def attend(x: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        with recorder.within("self_attn"):
            return native_multi_head_attention(recorder, x, x, x, embed_dim, num_heads, *weights, mask, need_weights=False)[0]

    def feed(x: Tensor) -> Tensor:
        with recorder.within("linear1"):
            hidden = linear(recorder, x, ffn_weight_1, ffn_bias_1)
        hidden = unary(recorder, "gelu" if use_gelu else "relu", hidden)
        with recorder.within("linear2"):
            return linear(recorder, hidden, ffn_weight_2, ffn_bias_2)

    def first(x: Tensor) -> Tensor:
        with recorder.within("norm1"):
            return layer_norm(recorder, x, [embed_dim], norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        with recorder.within("norm2"):
            return layer_norm(recorder, x, [embed_dim], norm_weight_2, norm_bias_2, eps)

    if norm_first:
        total: Tensor = add(recorder, attend(first(src)), src)  # added in place, so in the layout of the first
        result: Tensor = add(recorder, feed(second(total)), total)
        return result
    total = first(add(recorder, attend(src), src))
    return second(add(recorder, feed(total), total))
