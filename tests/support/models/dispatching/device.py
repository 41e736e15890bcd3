# SPDX-License-Identifier: Apache-2.0
"""What a GPU does otherwise than the meta device: how its kernels read and lay out memory, and what it runs as one call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch._prims_common import suggest_memory_format

from jetdvfs.tests.support.models.dispatching.rules import ints


class Writer(Protocol):
    """What writes calls down; nothing while it is ``quiet``."""

    quiet: int

    def add(self, kind: str, inputs: Any, out: Any, params: Any, *, flops: int | None, read: Any) -> None: ...


#: Calls whose CUDA kernels read contiguous memory and copy what is not (layer_norm_kernel.cu, SoftMax.cu).
READ_CONTIGUOUS = frozenset(f"aten::{name}" for name in ("native_layer_norm", "_softmax", "_log_softmax", "_safe_softmax"))
#: Those that cuDNN computes, which reads memory without gaps (``_batch_norm_impl_index`` in Normalization.cpp).
_BATCH_NORMS = frozenset(f"aten::{name}" for name in ("native_batch_norm", "_native_batch_norm_legit_no_training"))


def layout_of_convolution(x: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """What cuDNN takes and makes: channels last if the input or the weight is so (``cudnn_conv_suggest_memory_format``)."""
    layouts = {suggest_memory_format(tensor) for tensor in map(_known, (x, weight))} - {torch.contiguous_format}
    plain = not layouts or x.dtype == torch.float64
    return torch.contiguous_format if plain else layouts.pop()


def as_cuda_reads(name: str, args: Any) -> Any:
    """A call's arguments as CUDA's kernel reads them; what it has to copy is copied."""
    if name in READ_CONTIGUOUS:
        return (_laid_out(args[0], torch.contiguous_format), *args[1:])
    if name in _BATCH_NORMS and args[0].dim() > 2 and None not in (args[1], args[3]) and args[0].dtype != torch.bfloat16:
        return (_laid_out(args[0], suggest_memory_format(_known(args[0]))), *args[1:])
    if name == "aten::convolution":
        layout = layout_of_convolution(*args[:2])
        return (*(_laid_out(tensor, layout) for tensor in args[:2]), *args[2:])
    return args


def _laid_out(tensor: torch.Tensor, layout: torch.memory_format) -> torch.Tensor:
    return tensor if _known(tensor).is_contiguous(memory_format=layout) else tensor.clone(memory_format=layout)


def _known(tensor: torch.Tensor) -> torch.Tensor:
    """A weight that is not there (:func:`jetdvfs.tests.support.models.oracle.without_weights`) as it would be by default."""
    return torch.empty(tensor.shape, device="meta") if 0 in tensor.stride() else tensor


def as_cuda_lays_it_out(out: torch.Tensor, query: Any, key: Any, value: Any, mask: Any, grouped: bool = False) -> torch.Tensor:
    """The output of attention with the strides that the GPU's kernel gives it, by PyTorch's own account of it.

    What broadcasts, no such kernel takes unless its heads are ``grouped`` (``check_batch_size_and_num_heads_dense``), nor a
    mask whose last dimension is expanded (``check_last_dim_stride_equals_1``).
    """
    if mask is not None and mask.dim() and mask.shape[-1] > 1 and mask.stride(-1) != 1:
        return out.contiguous()
    if not grouped and len({tensor.shape[:-2] for tensor in (query, key, value)}) > 1:
        return out.contiguous()
    shared = query.dim() == 4 and query.shape[1] != key.shape[1]
    if query.dim() != 4 or query.dtype == torch.float64 or (shared and (query.dtype == torch.float32 or mask is not None)):
        return out.contiguous()
    meta = [tensor.to("meta") for tensor in (query, key, value)]
    if query.dtype != torch.float32 and mask is None and query.shape == out.shape:
        made = torch.ops.aten._scaled_dot_product_flash_attention(*meta)[0]
    else:
        made = torch.ops.aten._scaled_dot_product_efficient_attention(*meta, None, False)[0]
    return torch.empty_strided(made.shape, made.stride(), dtype=out.dtype, device=out.device)


@contextlib.contextmanager
def whole(recorder: Writer) -> Iterator[None]:
    """Record as a GPU runs it what the meta device would split or do otherwise: attention, recurrent layers, some functions."""
    functional, fused = torch.nn.functional, torch._VF

    def quietly(original: Any, *args: Any, **more: Any) -> Any:
        recorder.quiet += 1
        try:
            return original(*args, **more)
        finally:
            recorder.quiet -= 1

    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, **more: Any
    ) -> Any:
        out = quietly(originals["attention"], query, key, value, attn_mask, dropout_p, is_causal, **more)
        out = quietly(as_cuda_lays_it_out, out, query, key, value, attn_mask, bool(more.get("enable_gqa")))
        read = [t for t in (query, key, value, attn_mask) if t is not None]
        params = {"mask": attn_mask is not None, "causal": bool(is_causal)}
        recorder.add("attention", [query, key, value], out, params, flops=None, read=read)
        return out

    def layer(name: str) -> Any:
        def run(
            x: Any, states: Any, weights: Any, bias: bool, layers: int, dropout: float, train: bool, both: bool, first: bool
        ) -> Any:
            out = quietly(originals[name], x, states, weights, bias, layers, dropout, train, both, first)
            starts = [states] if isinstance(states, torch.Tensor) else list(states)
            params = {"hidden": starts[-1].shape[-1], "layers": layers, "directions": 2 if both else 1, "bias": bool(bias)}
            if starts[0].shape[-1] != starts[-1].shape[-1]:
                params["projection"] = starts[0].shape[-1]
            kind = name.split("_")[0]
            recorder.add(kind, [x, *starts], out[0], params, flops=None, read=[x, *starts, *weights])
            return out

        return run

    def cell(name: str) -> Any:
        def run(x: Any, states: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
            state = states if isinstance(states, torch.Tensor) else states[0]
            gates = [functional.linear(x, w_ih, b_ih), functional.linear(state, w_hh, b_hh)]
            out = quietly(originals[name], x, states, w_ih, w_hh, b_ih, b_hh)
            kind = name.replace("_tanh", "").replace("_relu", "")
            recorder.add(kind, [*gates, state], state, {}, flops=None, read=[*gates, state])
            return out

        return run

    def norm(x: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
        out = quietly(originals["rms_norm"], x, normalized_shape, weight, eps)
        params = {"normalized_shape": ints(normalized_shape), "affine": weight is not None}
        recorder.add("rms_norm", [x], out, params, flops=None, read=[x] if weight is None else [x, weight])
        return out

    def one_hot(x: Any, num_classes: int) -> Any:
        return torch.zeros((*x.shape, num_classes), dtype=x.dtype, device=x.device).scatter_(-1, x.unsqueeze(-1), 1)

    layers = ("lstm", "gru", "rnn_tanh", "rnn_relu")
    cells = ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
    originals = {name: getattr(fused, name) for name in (*layers, *cells)}
    originals["attention"] = functional.scaled_dot_product_attention
    originals |= {name: getattr(functional, name) for name in ("rms_norm", "one_hot")}
    functional.scaled_dot_product_attention = attention
    functional.rms_norm, functional.one_hot = norm, one_hot
    for name in layers:
        setattr(fused, name, layer(name))
    for name in cells:
        setattr(fused, name, cell(name))
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = originals.pop("attention")
        functional.rms_norm, functional.one_hot = originals.pop("rms_norm"), originals.pop("one_hot")
        for name, original in originals.items():
            setattr(fused, name, original)
