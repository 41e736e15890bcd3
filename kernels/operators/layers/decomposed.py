# SPDX-License-Identifier: Apache-2.0
"""Operators as spelled in decomposed graphs: ``torch.export`` up to PyTorch 2.3, ``run_decompositions`` since.

Each is an operator of another family, with additional results for training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import UnsupportedOperator
from ..elementwise import unary
from ..layout import preserved
from ..memory import indexing, views
from ..pointwise import add
from ..recorder import Recorder
from ..registry import answered, operator
from ..values import Tensor
from . import attention, normalization
from .convolution import convolve


@operator("cudnn_convolution_relu")
def convolution_relu(
    recorder: Recorder, self: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    """One kernel in cuDNN; recorded as its parts."""
    return unary(recorder, "relu", convolve(recorder, self, weight, bias, stride, padding, dilation, groups))


@operator("cudnn_convolution_add_relu")
def convolution_add_relu(
    recorder: Recorder,
    self: Tensor,
    weight: Tensor,
    z: Tensor,
    alpha: Any,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    out = convolve(recorder, self, weight, bias, stride, padding, dilation, groups)
    return unary(recorder, "relu", add(recorder, out, z))


def _elsewhere(why: str, *names: str) -> None:
    for name in names:

        @operator(name)
        def rule(recorder: Recorder, *_: Any, name: str = name, **__: Any) -> None:
            raise UnsupportedOperator(f"operator {name if '::' in name else f'aten::{name}'} {why}")


_elsewhere(
    "comes from optimize_for_inference on an x86 CPU: save the frozen model, or optimise it on the board",
    "to_mkldnn",
    "mkldnn_convolution",
    "_mkldnn_reshape",
    "prim::ConvertToMKLDNN",
)


@operator("_native_batch_norm_legit_no_training")
def batch_norm(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, None, None]:
    return normalization.batch_norm(recorder, input, weight, bias, running_mean, running_var, False, momentum, eps), None, None


@operator("native_layer_norm")
def layer_norm(
    recorder: Recorder, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, None, None]:
    return normalization.layer_norm(recorder, input, normalized_shape, weight, bias, eps), None, None


@operator("native_group_norm")
def group_norm(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Tensor, None, None]:
    return normalization.group_norm(recorder, input, group, weight, bias, eps), None, None


def _attention(*names: str, mask_first: bool) -> None:
    @operator(*names)
    def rule(recorder: Recorder, query: Tensor, key: Tensor, value: Tensor, *more: Any, **options: Any) -> tuple[Tensor, None]:
        mask = options.get("attn_bias", options.get("attn_mask", more[0] if mask_first and more else None))
        causal = options.get("is_causal") is True or True in (item for item in more if isinstance(item, bool))
        return attention.attention(recorder, query, key, value, mask, is_causal=causal), None


_attention("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu", mask_first=False)
_attention("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention", mask_first=True)


operator("_unsafe_index")(indexing.index)


@operator("fill")
def fill(recorder: Recorder, self: Tensor, value: Any) -> Tensor:
    return recorder.launch("fill", [], recorder.tensor(self.shape, self.dtype, preserved(self)))


@operator("select_scatter")
def select_scatter(recorder: Recorder, self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    return _scattered(recorder, self, src, views.select(recorder, self, dim, index))


@operator("slice_scatter")
def slice_scatter(
    recorder: Recorder, self: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    return _scattered(recorder, self, src, views.slice_(recorder, self, dim, start, end, step))


def _scattered(recorder: Recorder, self: Tensor, src: Tensor, place: Tensor) -> Tensor:
    out = recorder.launch("clone", [self], recorder.tensor(self.shape, self.dtype, preserved(self)))
    recorder.launch("copy", [src], recorder.tensor(place.shape, self.dtype))
    return out


answered(lambda *_, **__: None, "_assert_tensor_metadata")
