# SPDX-License-Identifier: Apache-2.0
"""Arguments of PyTorch's operators by schema; overloads of one name may differ."""

from __future__ import annotations

from collections.abc import Mapping

_BY_COUNT = {
    1: (
        "abs acos acosh angle asin asinh atan atanh bitwise_not block_diag ceil cos cosh deg2rad dequantize digamma erf "
        "erfc erfinv exp exp2 expm1 floor frac hardsigmoid hardswish i0 isinf isnan isneginf isposinf lgamma log log10 "
        "log1p log2 log_sigmoid logical_not mish neg rad2deg reciprocal relu relu6 rsqrt sgn sigmoid sign signbit silu "
        "sin sinc sinh sqrt tan tanh trace trunc"
    ),
    2: (
        "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d "
        "adaptive_max_pool3d atan2 bmm cat celu channel_shuffle clamp_max clamp_min clone complex concat copysign "
        "count_nonzero cummax cummin dot eq fill flip floor_divide fmax fmin fmod ge gelu glu gt hardshrink heaviside "
        "hypot index ldexp le leaky_relu logaddexp logaddexp2 logcumsumexp logical_and logical_or logical_xor logit lt "
        "matmul maximum minimum mm mul mv ne nextafter pixel_shuffle pixel_unshuffle polar prelu reflection_pad1d "
        "reflection_pad2d reflection_pad3d repeat replication_pad1d replication_pad2d replication_pad3d softshrink stack "
        "take tril triu"
    ),
    3: (
        "_weight_norm_interface add affine_grid_generator amax aminmax argmax clamp constant_pad_nd cumprod cumsum dist "
        "exponential hardtanh index_select lerp linalg_cross linear log_softmax logsumexp masked_fill masked_scatter "
        "max_unpool2d mse_loss roll rot90 rsub softmax softplus sub threshold upsample_nearest1d"
    ),
    4: (
        "_cdist_forward _fft_c2c _fft_c2r _fft_r2c addcdiv addcmul bucketize diag_embed diagonal_copy elu gather histc "
        "huber_loss index_copy index_fill index_put multinomial nan_to_num nansum quantize_per_tensor renorm rms_norm "
        "scatter_add smooth_l1_loss uniform upsample_linear1d"
    ),
    5: (
        "addbmm addmm addmv addr baddbmm binary_cross_entropy_with_logits embedding "
        "fake_quantize_per_tensor_affine_cachemask grid_sampler_2d grid_sampler_3d im2col index_add max_unpool3d "
        "quantize_per_channel unfold_backward"
    ),
    6: (
        "col2im fake_quantize_per_channel_affine_cachemask group_norm gru_cell index_reduce layer_norm lstm_cell "
        "max_pool2d max_pool3d rrelu_with_noise scatter_reduce searchsorted"
    ),
    7: "_to_copy avg_pool2d avg_pool3d conv1d conv2d conv3d linspace",
    8: "_trilinear conv_transpose1d conv_transpose2d conv_transpose3d logspace scaled_dot_product_attention",
    9: "batch_norm convolution gru lstm",
    13: "_convolution",
}

#: Forms of operators that have several, by argument: ``T`` a tensor, ``t`` perhaps one, ``-`` none, ``O`` a given output.
#: ``min`` and ``max`` of two tensors call ``minimum`` and ``maximum``.
_FORMS = {
    "_linalg_solve_ex": "TT-- TT--OOOO", "all": "T T--", "any": "T T--", "bernoulli": "T- T-- T-O TT-", "copy": "T T- TT TT-",
    "div": "Tt Tt- TtO", "embedding_bag": "TTT---t- TTT---t--", "kthvalue": "T--- T---OO", "linalg_inv_ex": "T- T-OO",
    "max": "T T-- T--OO", "mean": "T- T---", "median": "T T-- T--OO", "min": "T T-- T--OO", "mode": "T-- T--OO",
    "norm": "T- T-- T--- T----", "normal": "T-- T--- TT- TT-O -T- -T-O", "prod": "T- T---", "rand_like": "T----- T------",
    "randn_like": "T----- T------", "round": "T T- TO", "scatter": "T-Tt T-Tt- T-TtO", "sort": "T- T-- T--- T--OO T---OO",
    "std": "T- T---", "std_mean": "T- T---", "sum": "T- T---", "to": "T-- T--- T---- T----- TT---", "topk": "T---- T----OO",
    "upsample_bicubic2d": "T--- T----", "upsample_bilinear2d": "T--- T----", "upsample_nearest2d": "T-- T---",
    "upsample_nearest3d": "T-- T----", "upsample_trilinear3d": "T--- T-----", "var": "T- T---", "var_mean": "T- T---",
    "where": "T Ttt", "xlogy": "Tt -T TtO",
    **dict.fromkeys(("pow", "remainder", "bitwise_and", "bitwise_or", "bitwise_xor"), "Tt -T"),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), "Tt -T"),
}  # fmt: skip


def _forms() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {name: tuple(forms.split()) for name, forms in _FORMS.items()}
    for count, names in _BY_COUNT.items():
        for name in names.split():
            found[name] = (*found.get(name, ()), "T" + "t" * (count - 1))
    return found


#: Forms of the operators that take a tensor or a list of them, by name without the underscore of in-place ones. Those of
#: products into another element type are left out.
FORMS = _forms()
