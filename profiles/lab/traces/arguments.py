# SPDX-License-Identifier: Apache-2.0
"""Argument counts of PyTorch's operators by schema; overloads of one name may differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

_BY_COUNT = {
    1: (
        "abs acos acosh all angle any asin asinh atan atanh bitwise_not block_diag ceil copy cos cosh deg2rad dequantize "
        "digamma erf erfc erfinv exp exp2 expm1 floor frac hardsigmoid hardswish i0 isinf isnan isneginf isposinf lgamma "
        "log log10 log1p log2 log_sigmoid logical_not max median min mish neg rad2deg reciprocal relu relu6 round rsqrt "
        "sgn sigmoid sign signbit silu sin sinc sinh sqrt tan tanh trace trunc where"
    ),
    2: (
        "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d "
        "adaptive_max_pool3d atan2 bernoulli bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor "
        "bmm cat celu channel_shuffle clamp_max clamp_min clone complex concat copy copysign count_nonzero cummax cummin "
        "div dot eq fill flip floor_divide fmax fmin fmod ge gelu glu gt hardshrink heaviside hypot index ldexp le "
        "leaky_relu linalg_inv_ex logaddexp logaddexp2 logcumsumexp logical_and logical_or logical_xor logit lt matmul "
        "max maximum mean min minimum mm mul mv ne nextafter norm pixel_shuffle pixel_unshuffle polar pow prelu prod "
        "reflection_pad1d reflection_pad2d reflection_pad3d remainder repeat replication_pad1d replication_pad2d "
        "replication_pad3d round softshrink sort stack std std_mean sum take tril triu var var_mean xlogy"
    ),
    3: (
        "_weight_norm_interface add affine_grid_generator all amax aminmax any argmax bernoulli clamp constant_pad_nd "
        "copy cumprod cumsum dist div exponential hardtanh index_select lerp linalg_cross linear log_softmax logsumexp "
        "masked_fill masked_scatter max max_unpool2d median min mode mse_loss norm normal roll rot90 rsub softmax "
        "softplus sort sub threshold to upsample_nearest1d upsample_nearest2d upsample_nearest3d where xlogy"
    ),
    4: (
        "_cdist_forward _fft_c2c _fft_c2r _fft_r2c _linalg_solve_ex addcdiv addcmul bucketize diag_embed diagonal_copy "
        "elu gather histc huber_loss index_copy index_fill index_put kthvalue linalg_inv_ex mean multinomial nan_to_num "
        "nansum norm normal prod quantize_per_tensor renorm rms_norm scatter scatter_add smooth_l1_loss sort std std_mean "
        "sum to uniform upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest2d upsample_trilinear3d "
        "var var_mean"
    ),
    5: (
        "addbmm addmm addmv addr baddbmm binary_cross_entropy_with_logits embedding "
        "fake_quantize_per_tensor_affine_cachemask grid_sampler_2d grid_sampler_3d im2col index_add max max_unpool3d "
        "median min mode norm quantize_per_channel scatter sort to topk unfold_backward upsample_bicubic2d "
        "upsample_bilinear2d upsample_nearest3d"
    ),
    6: (
        "col2im fake_quantize_per_channel_affine_cachemask group_norm gru_cell index_reduce kthvalue "
        "layer_norm lstm_cell max_pool2d max_pool3d rand_like randn_like rrelu_with_noise scatter_reduce searchsorted "
        "sort to upsample_trilinear3d"
    ),
    7: "_to_copy avg_pool2d avg_pool3d conv1d conv2d conv3d linspace rand_like randn_like topk",
    8: (
        "_linalg_solve_ex _trilinear conv_transpose1d conv_transpose2d conv_transpose3d embedding_bag logspace "
        "scaled_dot_product_attention"
    ),
    9: "batch_norm convolution embedding_bag gru lstm",
    13: "_convolution",
}


def _counts() -> Mapping[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = defaultdict(tuple)
    for count, names in _BY_COUNT.items():
        for name in names.split():
            found[name] += (count,)
    return dict(found)


#: The numbers of arguments of the overloads whose first is a tensor or a list of them; by the operator's name without the
#: underscore of in-place ones. Those of products into another element type are left out.
ARGUMENTS = _counts()
