# SPDX-License-Identifier: Apache-2.0
"""One row per kernel kind, read by cost, features, fusion, host times and the ONNX front end.

External lists of launches may name any kind, with FLOPs and bytes; it counts as unmodelled. Convolutions and matrix products
count operations as ``torch.utils.flop_counter`` does (a multiply-add is two); other kinds follow their textbook definition.
Bytes are inputs, weights and outputs, each moved once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from .errors import UnsupportedOperator
from .network import ParamValue, Shape, numel

__all__ = ["KernelKind", "flops", "kind_of"]

Params: TypeAlias = Mapping[str, ParamValue]
FlopsRule: TypeAlias = Callable[[Sequence[Shape], Shape, Params], int]
"""Operations of one invocation, from the shapes of its inputs, the shape of its output and its parameters."""

WayRule: TypeAlias = Callable[[Params], str]
"""Library path of an invocation, from its parameters; empty: the common one."""

FeatureFamily: TypeAlias = Literal[
    "", "conv2d", "batch_norm", "matmul", "pointwise", "cat", "pool2d", "adaptive_pool2d", "mean", "conv_nd", "attention",
    "rows",
]  # fmt: skip

ELEMENTWISE = "elementwise"


class KernelKind(Struct, frozen=True):
    """One kind of kernel.

    Attributes:
        flops: None for fused kinds, whose members have them.
        features: feature family of its own model; empty if a profile cannot have one.
        served_by: kind or family whose model serves it if a profile has none of its own.
        fusible: PyTorch's tensor-expression fuser takes it into a pointwise group.
        members: kinds that cuDNN runs as this one, in order.
        gathers: the host prepares each of its inputs separately.
        way: library path of an invocation, if issue times differ between paths.
        operands: tensors or numbers that a pointwise operator combines.
        onnx: ONNX operators of this kind that take only these operands.
    """

    name: str
    flops: FlopsRule | None
    features: FeatureFamily = ""
    served_by: str = ""
    fusible: bool = False
    members: tuple[str, ...] = ()
    gathers: bool = False
    way: WayRule | None = None
    operands: int = 0
    onnx: tuple[str, ...] = ()

    @property
    def fused(self) -> bool:
        return self.flops is None

    @property
    def profiled(self) -> bool:
        return bool(self.features) and not self.fused


def kind_of(name: str) -> KernelKind:
    """A kind's row, or UnsupportedOperator.

    Examples:
        >>> kind_of("conv2d").fused
        False
    """
    row = KINDS.get(name)
    if row is None:
        import difflib  # the resident daemon loads this module and never gets here

        closest = difflib.get_close_matches(name[:64], KINDS, 3, 0.0)
        raise UnsupportedOperator(f"kernel kind {name!r:.66} is not known; the closest: {', '.join(closest)}")
    return row


def flops(kind: str, inputs: Sequence[Shape], output: Shape, params: Params) -> int:
    """Operations of one invocation that an operator launches; raises UnsupportedOperator.

    Examples:
        >>> flops("relu", [(1, 64, 56, 56)], (1, 64, 56, 56), {})
        200704
    """
    rule = kind_of(kind).flops
    if rule is None:
        raise UnsupportedOperator(f"kernel kind {kind!r} is made by fusion; its operations are those of its members")
    return rule(inputs, output, params)


def stand_in(kind: str) -> str:
    """Kind whose model and issue time stand in for a fused kernel's; else empty."""
    row = KINDS.get(kind)
    return row.served_by if row is not None and row.fused else ""


def served_by(model: str) -> frozenset[str]:
    return frozenset(row.name for row in KINDS.values() if row.served_by == model and not row.fused)


def fused_of(kind: str) -> tuple[KernelKind, ...]:
    return tuple(row for row in KINDS.values() if row.members[:1] == (kind,))


def is_fused(kind: str) -> bool:
    row = KINDS.get(kind)
    return row is not None and row.fused


def _sizes(value: ParamValue) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else ()


def _integer(value: ParamValue) -> int:
    return value if isinstance(value, int) else 0


def per_element(operations: int) -> FlopsRule:
    return lambda inputs, output, params: operations * numel(output)


def moves_only(inputs: Sequence[Shape], output: Shape, params: Params) -> int:
    return 0


def per_element_read(inputs: Sequence[Shape], output: Shape, params: Params) -> int:
    return numel(inputs[0]) if inputs else 0


def _convolution(inputs: Sequence[Shape], output: Shape, params: Params) -> int:
    return 2 * numel(output) * numel(_sizes(params["weight"])[1:])


def _transposed_convolution(inputs: Sequence[Shape], output: Shape, params: Params) -> int:
    return 2 * numel(inputs[0]) * numel(_sizes(params["weight"])[1:]) if inputs else 0


def _product(inputs: Sequence[Shape], output: Shape, params: Params) -> int:
    return 2 * _integer(params["m"]) * _integer(params["k"]) * _integer(params["n"]) * _integer(params["batch"])


def _way_of_a_convolution(params: Params) -> str:
    """Depthwise ones bypass the convolution library; without a window they are products, else possibly several launches."""
    weight = params.get("weight")
    if not isinstance(weight, tuple):
        return ""
    if params.get("groups", 1) != 1 and weight[1:2] == (1,):
        return "depthwise"
    return "" if any(side != 1 for side in weight[2:]) else "pointwise"


def _way_of_a_product(params: Params) -> str:
    """A product of one row is a matrix-vector product, which is one launch at any depth."""
    return "vector" if params.get("m") == 1 and params.get("batch", 1) == 1 else ""


def _way_of_attention(params: Params) -> str:
    """By products and a softmax it is a dozen launches."""
    return "math" if params.get("math") else ""


def _attention(inputs: Sequence[Shape], output: Shape, params: Params) -> int:
    query, key, value = inputs[:3]
    return 2 * numel(query) * key[-2] + 2 * numel(query[:-1]) * numel(value[-2:])


def _elimination(inputs: Sequence[Shape], output: Shape, params: Params) -> int:
    side = inputs[0][-1] if inputs[0] else 1
    return 2 * numel(inputs[0]) * side // 3 + 2 * numel(output) * side


def _window(inputs: Sequence[Shape], output: Shape, params: Params) -> int:
    return numel(output) * numel(_sizes(params["kernel_size"]))


GATES: Mapping[str, int] = {"lstm": 4, "gru": 3, "rnn": 1}


def _recurrent(gates: int) -> FlopsRule:
    def rule(inputs: Sequence[Shape], output: Shape, params: Params) -> int:
        sequence = inputs[0]
        hidden, layers, directions = (_integer(params[name]) for name in ("hidden", "layers", "directions"))
        state = _integer(params.get("projection", hidden))
        widths = [sequence[-1]] + [state * directions] * (layers - 1)
        projection = hidden * state if "projection" in params else 0
        steps = numel(sequence[:-1])
        return 2 * steps * directions * sum(gates * hidden * (width + state) + projection for width in widths)

    return rule


def _alike(names: str, flops: FlopsRule, served_by: str = "") -> Iterator[KernelKind]:
    return (KernelKind(name, flops, served_by=served_by) for name in names.split())


def _one(name: str, operations: int, *onnx: str, fusible: bool = True, served_by: str = "") -> KernelKind:
    return KernelKind(name, per_element(operations), served_by=served_by, fusible=fusible, operands=1, onnx=onnx)


def _two(name: str, *onnx: str, fusible: bool = True, served_by: str = "") -> KernelKind:
    return KernelKind(name, per_element(1), served_by=served_by, fusible=fusible, operands=2, onnx=onnx)


def _with_scalar(row: KernelKind) -> tuple[KernelKind, KernelKind]:
    return row, replace(row, name=f"{row.name}_scalar", features="", operands=1, onnx=())


_ROWS: tuple[KernelKind, ...] = (
    # Kinds with models in profiles, in this order.
    KernelKind("conv2d", _convolution, "conv2d", way=_way_of_a_convolution),
    KernelKind("batch_norm", per_element(2), "batch_norm", fusible=True),
    KernelKind("matmul", _product, "matmul", way=_way_of_a_product),
    KernelKind("relu", per_element(1), "pointwise", ELEMENTWISE, fusible=True, operands=1, onnx=("Relu",)),
    KernelKind("hardtanh", per_element(2), "pointwise", ELEMENTWISE, fusible=True, operands=1),
    KernelKind("cat", moves_only, "cat", fusible=True, gathers=True),
    KernelKind("max_pool2d", _window, "pool2d"),
    KernelKind("avg_pool2d", _window, "pool2d"),
    KernelKind("adaptive_avg_pool2d", per_element_read, "adaptive_pool2d"),
    KernelKind("mean", per_element_read, "mean"),
    *_with_scalar(KernelKind("add", per_element(1), "pointwise", ELEMENTWISE, fusible=True, operands=2, onnx=("Add",))),
    KernelKind("clone", moves_only, "pointwise", ELEMENTWISE),
    KernelKind("layer_norm", per_element(8), "rows"),
    KernelKind("group_norm", per_element(8), "rows"),
    KernelKind("softmax", per_element(5), "rows"),
    KernelKind("attention", _attention, "attention", way=_way_of_attention),
    KernelKind("conv1d", _convolution, "conv_nd"),
    KernelKind("conv3d", _convolution, "conv_nd"),
    KernelKind("conv_transpose2d", _transposed_convolution, "conv_nd"),
    # Fused kinds.
    KernelKind("conv2d_relu", None, "conv2d", "conv2d", members=("conv2d", "relu")),
    KernelKind("conv2d_add_relu", None, "conv2d", "conv2d", members=("conv2d", "add", "relu")),
    KernelKind("fused_pointwise", None, "pointwise", ELEMENTWISE),
    KernelKind("conv3d_relu", None, members=("conv3d", "relu")),
    KernelKind("conv3d_add_relu", None, members=("conv3d", "add", "relu")),
    # Convolutions, products, attention, recurrence.
    *_alike("deform_conv2d", _convolution),
    *_alike("conv_transpose1d conv_transpose3d", _transposed_convolution, "conv_transpose2d"),
    *(KernelKind(name, _recurrent(gates)) for name, gates in GATES.items()),
    *_alike("lstm_cell gru_cell rnn_cell", per_element(1)),  # the part after their two products
    *_alike("addbmm addmv addr linalg_cross _trilinear _cdist_forward dist trace renorm", per_element(1)),
    *_alike("_weight_norm_interface", per_element(1)),
    *_alike("linalg_inv_ex _linalg_solve_ex", _elimination),
    # Normalisation.
    *_alike("rms_norm", per_element(5), "layer_norm"),
    *_alike("log_softmax", per_element(5), "softmax"),
    # Pools and sampling.
    *_alike("max_pool3d avg_pool3d", _window),
    *_alike("adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d", per_element_read),
    *_alike("upsample_bilinear2d", per_element(11), ELEMENTWISE),
    *_alike("upsample_bicubic2d", per_element(60), ELEMENTWISE),
    *_alike("upsample_linear1d upsample_trilinear3d", per_element(1)),
    *_alike("max_unpool2d max_unpool3d grid_sampler_2d roi_align grid_sampler_3d affine_grid_generator", per_element(1)),
    # Pointwise, of one tensor.
    _one("sigmoid", 4, "Sigmoid", served_by=ELEMENTWISE),
    _one("silu", 5, "Swish", "aten::silu", served_by=ELEMENTWISE),
    _one("gelu", 8, "Gelu", "aten::gelu", served_by=ELEMENTWISE),
    _one("tanh", 6, "Tanh", served_by=ELEMENTWISE),
    _one("elu", 4, "Elu", served_by=ELEMENTWISE),
    _one("leaky_relu", 1, "LeakyRelu", served_by=ELEMENTWISE),
    _one("softplus", 6, "Softplus", served_by=ELEMENTWISE),
    _one("hardswish", 4, "HardSwish", "aten::hardswish", served_by=ELEMENTWISE),
    _one("hardsigmoid", 3, "HardSigmoid", served_by=ELEMENTWISE),
    _one("mish", 10, "Mish", "aten::mish", served_by=ELEMENTWISE),
    _one("hardshrink", 1),
    _one("threshold", 1),
    _one("celu", 1, "Celu", fusible=False),
    _one("log_sigmoid", 1, "aten::log_sigmoid", fusible=False),
    _one("exp", 4, "Exp", served_by=ELEMENTWISE),
    _one("log", 4, "Log", served_by=ELEMENTWISE),
    _one("sqrt", 1, "Sqrt", served_by=ELEMENTWISE),
    _one("rsqrt", 2, served_by=ELEMENTWISE),
    _one("reciprocal", 1, "Reciprocal", served_by=ELEMENTWISE),
    _one("abs", 1, "Abs", served_by=ELEMENTWISE),
    _one("neg", 1, "Neg", served_by=ELEMENTWISE),
    _one("clamp", 1, served_by=ELEMENTWISE),
    _one("sign", 1, "Sign", fusible=False, served_by=ELEMENTWISE),
    _one("floor", 1, "Floor", served_by=ELEMENTWISE),
    _one("ceil", 1, "Ceil", served_by=ELEMENTWISE),
    _one("round", 1, "Round", served_by=ELEMENTWISE),
    _one("trunc", 1, served_by=ELEMENTWISE),
    _one("erf", 1, "Erf", served_by=ELEMENTWISE),
    _one("sin", 1, "Sin", served_by=ELEMENTWISE),
    _one("cos", 1, "Cos", served_by=ELEMENTWISE),
    _one("tan", 1, "Tan", served_by=ELEMENTWISE),
    _one("asin", 1, "Asin"),
    _one("acos", 1, "Acos"),
    _one("atan", 1, "Atan"),
    _one("sinh", 1, "Sinh"),
    _one("cosh", 1, "Cosh"),
    _one("log1p", 1),
    _one("log2", 1),
    _one("expm1", 1),
    _one("logical_not", 1, "Not", fusible=False, served_by=ELEMENTWISE),
    _one("isnan", 1, "IsNaN", fusible=False),
    KernelKind("to", moves_only, served_by=ELEMENTWISE, fusible=True),
    *_alike("acosh angle asinh atanh deg2rad digamma erfc erfinv exp2 frac i0", per_element(1)),
    *_alike("bitwise_not clamp_max clamp_min prelu", per_element(1), ELEMENTWISE),
    *_alike("isinf isneginf isposinf lgamma log10 logit nan_to_num rad2deg rrelu_with_noise sgn", per_element(1)),
    *_alike("signbit sinc softshrink", per_element(1)),
    # Pointwise, of two tensors or of a tensor and a number.
    *_with_scalar(_two("sub", "Sub", served_by=ELEMENTWISE)),
    *_with_scalar(_two("mul", "Mul", served_by=ELEMENTWISE)),
    *_with_scalar(_two("div", served_by=ELEMENTWISE)),
    KernelKind("pow", per_element(4), served_by=ELEMENTWISE, operands=2),
    _one("pow_scalar", 1, served_by=ELEMENTWISE),
    *_with_scalar(_two("remainder")),
    *_with_scalar(_two("rsub", fusible=False, served_by=ELEMENTWISE)),
    *_with_scalar(_two("floor_divide", fusible=False)),
    *_with_scalar(_two("eq", "Equal", served_by=ELEMENTWISE)),
    *_with_scalar(_two("ne", "aten::ne", served_by=ELEMENTWISE)),
    *_with_scalar(_two("lt", "Less", served_by=ELEMENTWISE)),
    *_with_scalar(_two("le", "LessOrEqual", served_by=ELEMENTWISE)),
    *_with_scalar(_two("gt", "Greater", served_by=ELEMENTWISE)),
    *_with_scalar(_two("ge", "GreaterOrEqual", served_by=ELEMENTWISE)),
    *_with_scalar(_two("bitwise_and", "BitwiseAnd", served_by=ELEMENTWISE)),
    *_with_scalar(_two("bitwise_or", "BitwiseOr", served_by=ELEMENTWISE)),
    *_with_scalar(_two("bitwise_xor", "BitwiseXor")),
    *_with_scalar(_two("bitwise_left_shift", fusible=False)),
    *_with_scalar(_two("bitwise_right_shift", fusible=False)),
    *_with_scalar(_two("logical_and", "And", fusible=False, served_by=ELEMENTWISE)),
    *_with_scalar(_two("logical_or", "Or", fusible=False, served_by=ELEMENTWISE)),
    *_with_scalar(_two("logical_xor", fusible=False)),
    *(_two(name, served_by=ELEMENTWISE) for name in ("maximum", "minimum")),
    _two("atan2"),
    *_alike("maximum_scalar minimum_scalar atan2_scalar", per_element(1)),
    *_alike("copysign fmax fmin fmod heaviside hypot ldexp logaddexp logaddexp2 nextafter polar xlogy", per_element(1)),
    *_alike("copysign_scalar fmax_scalar fmin_scalar fmod_scalar heaviside_scalar hypot_scalar ldexp_scalar", per_element(1)),
    *_alike("logaddexp_scalar logaddexp2_scalar nextafter_scalar polar_scalar xlogy_scalar", per_element(1)),
    *_alike("complex addcdiv", per_element(1)),
    *_alike("glu", per_element(1), ELEMENTWISE),
    *(KernelKind(name, per_element(3), served_by=ELEMENTWISE, fusible=True) for name in ("addcmul", "lerp")),
    KernelKind("where", moves_only, served_by=ELEMENTWISE, fusible=True),
    *_alike("mse_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits", per_element(1)),
    # Quantisation and its inverse.
    *_alike("quantize_per_tensor quantize_per_channel", per_element(4)),
    *_alike("dequantize", per_element(2)),
    *_alike("fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask", per_element(6)),
    # Along dimensions.
    *_alike("sum prod amax max min argmax norm var std any all logsumexp", per_element_read, "mean"),
    *_alike("cumsum", per_element_read),
    *_alike("nansum count_nonzero var_mean std_mean aminmax median kthvalue mode", per_element(1)),
    *_alike("cumprod logcumsumexp cummax cummin", per_element(1)),
    *_alike("_fft_r2c _fft_c2r _fft_c2c", per_element(1)),
    *_alike("searchsorted bucketize", per_element(1)),
    *_alike("histc multinomial unfold_backward", per_element_read),
    # Moving and creating data.
    KernelKind("stack", moves_only, served_by="clone", gathers=True),
    *_alike("masked_fill", moves_only, ELEMENTWISE),
    *_alike("copy fill zeros ones full arange repeat roll flip tril triu", moves_only, "clone"),
    *_alike("gather index index_select index_put scatter embedding im2col col2im", moves_only, "clone"),
    *_alike(
        "constant_pad_nd reflection_pad2d replication_pad2d pixel_shuffle pixel_unshuffle channel_shuffle", moves_only, "clone"
    ),
    *_alike("upsample_nearest1d upsample_nearest2d upsample_nearest3d", moves_only, "clone"),
    *_alike("sort topk", moves_only),
    *_alike("reflection_pad1d reflection_pad3d replication_pad1d replication_pad3d", per_element(1)),
    *_alike(
        "scatter_add scatter_reduce index_add index_copy index_fill masked_scatter index_reduce take embedding_bag",
        per_element(1),
    ),
    *_alike("rot90 diag_embed diagonal_copy block_diag", per_element(1)),
    *_alike("linspace logspace eye tril_indices triu_indices", per_element(1)),
    *_alike("rand randn rand_like randn_like randint normal uniform exponential bernoulli", per_element(1)),
)


def _by_name(rows: Sequence[KernelKind]) -> dict[str, KernelKind]:
    table: dict[str, KernelKind] = {}
    for row in rows:
        if row.name in table:
            raise ValueError(f"kernel kind {row.name} has two rows")
        table[row.name] = row
    return table


KINDS: dict[str, KernelKind] = _by_name(_ROWS)
"""Every kind, by name; extensions add their rows here."""
