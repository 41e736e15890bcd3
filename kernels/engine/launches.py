# SPDX-License-Identifier: Apache-2.0
"""Launches of an engine's layers: one rule per layer family.

FLOPs and bytes count as everywhere (:mod:`jetdvfs.kernels.kinds`): a fused layer has the operations of all its members, and
moves its inputs, weights and outputs once. A launch's element type is its weights', if any, else its output's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import permutations

from msgspec.structs import replace

from ..errors import ModelError, UnsupportedOperator
from ..kinds import KINDS, flops
from ..network import KernelInvocation, Shape, numel, tensor_bytes
from . import names
from .layers import EngineLayer
from .ported_layer import OpaqueLayer, Params, PortedLayer, epilogue, operations, with_weights


def convolution(port: PortedLayer) -> KernelInvocation:
    layer, image = port.layer, port.first()
    transposed = "deconv" in layer.type.lower()
    window, groups, filters = layer.sizes("Kernel"), layer.number("Groups", 1), layer.number("OutMaps")
    rank = len(image.shape) - 2
    if rank not in (1, 2, 3) or groups < 1 or filters < 1 or image.shape[1] % groups or filters % groups:
        raise ModelError(f"{filters} filters in {groups} groups do not fit an input of shape {list(image.shape)}")
    channels, written = image.shape[1], [tensor for tensor in layer.outputs if len(tensor.shape) == len(image.shape)]
    if sum(tensor.shape[1] for tensor in written) < filters or len(window) < rank or written[0].shape[0] != image.shape[0]:
        raise ModelError(f"{filters} filters of {list(window)} do not make {list(port.output.shape)} of {list(image.shape)}")
    out = (image.shape[0], filters, *written[0].shape[2:])
    kernel = window[-rank:]
    weight = (channels, filters // groups, *kernel) if transposed else (filters, channels // groups, *kernel)
    params: Params = {"weight": weight, "bias": bool(layer.number("HasBias") or layer.weights("Bias")[0])}
    for name, member in (("stride", "Stride"), ("padding", "PrePadding"), ("dilation", "Dilation")):
        params[name] = layer.sizes(member)[-rank:]
    params["groups"] = groups
    residual = any(tensor.shape == out for tensor in port.inputs[1:])
    ends = _expression(port) or epilogue(layer, layer.text("Activation").upper(), residual)
    kind = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    work = flops(kind, [image.shape], out, params) + names.work_of(ends, numel(out))
    fused = "_".join((kind, *ends))
    if ends and fused not in KINDS:
        params["epilogue"] = "+".join(ends)
        fused = kind
    made = with_weights(port, fused, params, work)
    elsewhere = sum(tensor.nbytes for tensor in layer.outputs) - tensor_bytes(numel(out), port.output.dtype)
    return replace(made, output=out, bytes=made.bytes - elsewhere)


def _expression(port: PortedLayer) -> tuple[str, ...]:
    """Epilogue of a kernel compiled for it; a product with its sigmoid is silu."""
    listed = "+".join(operations(port.layer, "PointWiseExpressionOperations")).replace("sigmoid+mul", "silu")
    return tuple(listed.split("+")) if listed else ()


def convolution_and_pool(port: PortedLayer) -> KernelInvocation:
    layer, image, out = port.layer, port.first(), port.output.shape
    kernel, window = layer.sizes("ConvKernel"), layer.sizes("PoolingWindowSize")
    steps, pads = layer.sizes("ConvStride"), layer.sizes("ConvPrePadding")
    groups, filters = layer.number("ConvGroups", 1), layer.number("ConvOutMaps")
    if len(image.shape) != 4 or not len(kernel) == len(steps) == len(pads) == 2 or groups < 1 or 0 in steps:
        raise ModelError(f"a convolution of {list(kernel)} with a pool does not fit an input of shape {list(image.shape)}")
    per_group = image.shape[1] // groups
    sides = [
        (size + 2 * pad - of) // step + 1 for size, pad, of, step in zip(image.shape[2:], pads, kernel, steps, strict=True)
    ]
    full = (image.shape[0], filters, *(max(side, 0) for side in sides))
    params: Params = {"weight": (filters, per_group, *kernel), "stride": steps, "padding": pads, "groups": groups}
    ends = epilogue(layer, layer.text("ConvActivation").upper(), residual=False)
    work = flops("conv2d", [image.shape], full, params) + names.work_of(ends, numel(full)) + numel(out) * numel(window)
    params |= {"epilogue": "+".join((*ends, "pool2d")), "kernel_size": window, "pooled_from": full}
    return with_weights(port, "conv2d_pool2d", params, work, "Conv")


def launch_of(layer: EngineLayer, made: Collection[str]) -> KernelInvocation | None:
    """Launch of a layer; None if it launches nothing.

    Tensors not in ``made``, the names that layers or the application write, are weights.

    Raises:
        Opaque: the file does not describe its work.
        UnsupportedOperator: its type is unknown.
        ModelError: its description is inconsistent.
    """
    name = names.family(layer.type)
    if name in names.NOTHING or name.startswith(("shape", "trainstation", "devicetoshape", "dummyshape")):
        return None
    if name in names.OPAQUE:
        raise OpaqueLayer(names.OPAQUE[name])
    said = names.family(layer.text("ParameterType"))
    rule, moves = _RULES.get(name) or _RULES.get(said), names.MOVES.get(name) or names.MOVES.get(said)
    if rule is None and moves is None:
        raise UnsupportedOperator(
            f"a layer of type {layer.type!r:.60} has no rule; give the ONNX file that the engine was built from"
        )
    ported = PortedLayer(layer, made)
    return rule(ported) if rule else _moved(ported, str(moves))


def _pool(port: PortedLayer) -> KernelInvocation:
    layer = port.layer
    how, rank = layer.text("PoolingType").upper(), len(port.first().shape) - 2
    if ("AVERAGE" not in how and how != "MAX") or rank not in (2, 3):
        raise ModelError(
            f"a pool of type {how!r:.40} over an input of {rank + 2} dimensions; expected MAX or AVERAGE of 4 or 5"
        )
    steps, pads = layer.sizes("Stride")[-rank:], layer.sizes("PrePadding")[-rank:]
    params: Params = {"kernel_size": layer.sizes("WindowSize")[-rank:], "stride": steps, "padding": pads}
    return port.plain(f"{'max' if how == 'MAX' else 'avg'}_pool{rank}d", params)


def _fully_connected(port: PortedLayer) -> KernelInvocation:
    count, _ = port.layer.weights("Weights")
    n = port.layer.number("OutMaps") or port.layer.number("NbOutputChannels") or (*port.output.shape, 0, 0)[1]
    if n < 1 or count % n:
        raise ModelError(f"{count} weights do not make {n} outputs")
    m = max(numel(port.output.shape) // n, 1)
    ends = epilogue(port.layer, port.layer.text("Activation").upper(), residual=False)
    bias = port.layer.weights("Bias")[0] > 0
    params: Params = {"m": m, "k": count // n, "n": n, "batch": 1, "bias": bias}
    work = flops("matmul", [port.first().shape], port.output.shape, params) + names.work_of(ends, m * n)
    return with_weights(port, "matmul", params | ({"epilogue": "+".join(ends)} if ends else {}), work)


def _product(port: PortedLayer) -> KernelInvocation:
    out = port.output.shape
    operands = [tensor for tensor in port.layer.inputs if numel(tensor.shape) > 1]
    for one, other in permutations(operands[:6], 2):
        sizes = _sizes(one.shape, other.shape, out)
        if sizes is None:
            continue
        m, k, n, batch = sizes
        params: Params = {"m": m, "k": k, "n": n, "batch": batch}
        rest = [tensor for tensor in operands if tensor is not one and tensor is not other]
        residual = any(tensor.shape == out and tensor in port.inputs for tensor in rest)
        params["bias"] = (
            any(numel(tensor.shape) in (n, m) and tensor not in port.inputs for tensor in rest) or "Bias" in port.layer.said
        )
        ends = epilogue(port.layer, port.layer.text("Activation").upper(), residual)
        if ends:
            params["epilogue"] = "+".join(ends)
        pair = [tensor.shape for tensor in (one, other) if tensor in port.inputs]
        more = [tensor.shape for tensor in rest if tensor in port.inputs]
        dtype = other.dtype if other not in port.inputs else one.dtype
        work = 2 * m * k * n * batch + names.work_of(ends, numel(out))
        return port.launch("matmul", params, work, dtype=dtype, inputs=[*pair, *more])
    raise ModelError(
        f"no two of its inputs {[list(tensor.shape) for tensor in operands[:4]]} make a product of shape {list(out)}"
    )


def _sizes(one: Shape, other: Shape, out: Shape) -> tuple[int, int, int, int] | None:
    """(m, k, n, batch) of a product of two tensors; the second may be shared by the batch. None if they do not fit."""
    if len(out) < 1 or not numel(out):
        return None
    n = out[-1]
    rows = numel(out) // n
    if len(other) == 2 and numel(one) % rows == 0 and (k := numel(one) // rows) * n == numel(other) and k in one[-2:]:
        return rows, k, n, 1
    if len(out) < 2:
        return None
    m, batch = out[-2], numel(out[:-2])
    k, left = divmod(numel(one), m * batch)
    if not left and k in one[-2:] and n in other[-2:] and k in other[-2:] and numel(other) in (batch * k * n, k * n):
        return m, k, n, batch
    return None


def _fused(port: PortedLayer) -> KernelInvocation:
    """A kernel that Myelin generated: its name lists the operations; up to the last reduction they work on all input."""
    layer = port.layer
    text = f"{layer.name} {layer.text('TacticName')}"
    if "mha" in text.lower():
        return _attention(port)
    listed = names.myelin_operations(text)
    if not listed:
        raise OpaqueLayer("its name does not list the operations that it fuses")
    last = max((at for at, name in enumerate(listed) if name in ("sum", "mean", "redu", "prod")), default=-1)
    shapes = [tensor.shape for tensor in (*layer.inputs, *layer.outputs)]
    written = names.largest([tensor.shape for tensor in layer.outputs])
    if last < 0 and names.largest(shapes) > written and any(name in ("max", "min") for name in listed):
        last = max(at for at, name in enumerate(listed) if name in ("max", "min"))
    work = 0
    for at, name in enumerate(listed):
        if not names.moves_only(name):
            whole = at <= last or written < 1
            work += names.operations_of(names.OPERATIONS.get(name, name), names.largest(shapes) if whole else written)
    kinds = [names.REDUCTIONS.get(name, name) if at <= last else name for at, name in enumerate(listed)]
    kinds = [names.OPERATIONS.get(name, name) if name not in names.REDUCTIONS.values() else name for name in kinds]
    if all(map(names.moves_only, listed)) and len(port.inputs) == len(layer.outputs) == 1:
        return port.plain("clone")
    params: Params = {"kinds": "+".join(kinds)[:1000], "outputs": len(layer.outputs)}
    return port.launch("fused_reduction" if last >= 0 else "fused_pointwise", params, work)


def _attention(port: PortedLayer) -> KernelInvocation:
    """Heads of queries, keys and values: (batch, heads, length, size), the keys perhaps transposed."""
    if len(port.inputs) >= 3:
        query, key, value = (tensor.shape for tensor in port.inputs[:3])
        if len(query) == len(key) == len(value) == 4 and query[:1] == key[:1] == value[:1]:
            if key[-1] != query[-1] or key[-2] != value[-2]:
                key = (*key[:2], key[3], key[2])
            if key[-1] == query[-1] and key[-2] == value[-2]:
                shapes = (query, key, value)
                return port.launch("attention", {}, flops("attention", shapes, port.output.shape, {}), inputs=shapes)
    raise OpaqueLayer("the shapes it reads do not say which are queries, keys and values")


def _pointwise(port: PortedLayer) -> KernelInvocation:
    kinds = operations(port.layer, "Operations")
    if not kinds:
        raise OpaqueLayer("it does not list its operations")
    params: Params = {"kinds": "+".join(kinds)[:1000], "outputs": len(port.layer.outputs)}
    return port.launch("fused_pointwise", params, names.work_of(kinds, numel(port.output.shape)))


def _named(member: str, fallback: str) -> Callable[[PortedLayer], KernelInvocation]:
    def rule(port: PortedLayer) -> KernelInvocation:
        said = (port.layer.text(member) or port.layer.text("ParameterSubType") or port.layer.text("Operation")).upper()
        name = said.removeprefix("K")
        kind = names.ACTIVATIONS.get(name) or names.OPERATIONS.get(name.lower(), "")
        if kind not in KINDS:
            raise ModelError(f"its operation {said!r:.40} is not known as {fallback}")
        return port.plain(kind)

    return rule


def _reduction(port: PortedLayer) -> KernelInvocation:
    said = (port.layer.text("ReduceOperation") or port.layer.text("Operation") or port.layer.text("ParameterSubType")).lower()
    kind, image, out = names.REDUCTIONS.get(said.removeprefix("k"), ""), port.first().shape, port.output.shape
    if not kind:
        raise ModelError(f"its reduction {said!r:.40} is not known; expected one of {', '.join(names.REDUCTIONS)}")
    kept = list(out)
    dims = []
    for place, size in enumerate(image):
        if len(out) == len(image):
            dims += [place] if out[place] != size else []
        elif kept[:1] == [size]:
            kept.pop(0)
        else:
            dims.append(place)
    return port.plain(kind, {"dim": tuple(dims) or tuple(range(len(image))), "keepdim": len(out) == len(image)})


def _reformat(port: PortedLayer) -> KernelInvocation:
    before, after = port.first().dtype if port.inputs else port.output.dtype, port.output.dtype
    if before == after:
        return port.plain("clone")
    narrow = ("int8", "uint8", "int4", "float8_e4m3fn", "float4_e2m1")
    kind = "quantize_per_tensor" if after in narrow else "dequantize" if before in narrow else "to"
    return port.plain(kind)


def _resized(port: PortedLayer) -> KernelInvocation:
    how = (port.layer.text("InterpolationMode") or port.layer.text("ResizeMode") or port.layer.text("Mode")).lower()
    kinds = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}
    found = next((kind for name, kind in kinds.items() if name in how), "")
    if not found or len(port.first().shape) != 4:
        raise ModelError(f"a resize in mode {how!r:.40} of {len(port.first().shape)} dimensions has no rule")
    return port.plain(f"upsample_{found}2d")


def _scale(port: PortedLayer) -> KernelInvocation:
    kinds = ["mul", "add"]
    return with_weights(port, "fused_pointwise", {"kinds": "+".join(kinds), "outputs": 1}, 2 * numel(port.output.shape))


def _row(kind: str) -> Callable[[PortedLayer], KernelInvocation]:
    return lambda port: port.plain(kind)


def _moved(port: PortedLayer, kind: str) -> KernelInvocation:
    if kind != "cat":
        return port.plain(kind)
    if not port.inputs:
        raise ModelError("it joins nothing")
    out, first = port.output.shape, port.inputs[0].shape
    dims = [place for place, sizes in enumerate(zip(out, first, strict=False)) if len(set(sizes)) > 1]
    return port.plain("cat", {"dim": dims[0] if dims else 0})


_CONVOLUTIONS = (
    "convolution", "gemmconvolution", "depthwiseconvolution", "groupconvolution", "winogradconvolution", "jitconv", "conv",
)  # fmt: skip
_RULES: Mapping[str, Callable[[PortedLayer], KernelInvocation]] = {
    **dict.fromkeys((*_CONVOLUTIONS, "deconvolution", "gemmdeconvolution", "deconv", "fusedconvolution"), convolution),
    "convactpool": convolution_and_pool,
    **dict.fromkeys(("pooling", "pool"), _pool),
    **dict.fromkeys(("fullyconnected", "gemmfullyconnected"), _fully_connected),
    **dict.fromkeys(("matrixmultiply", "gemmmatrixmultiply", "gemm", "matmul", "fusedmatmul"), _product),
    **dict.fromkeys(("kgen", "fusion"), _fused),
    **dict.fromkeys(("mha", "fmha", "attention"), _attention),
    "pointwise": _pointwise,
    "elementwise": _named("ElementWiseOperation", "elementwise"),
    "unary": _named("UnaryOperation", "unary"),
    "activation": _named("Activation", "an activation"),
    "reduce": _reduction,
    "resize": _resized,
    "scale": _scale,
    "softmax": _row("softmax"),
    "normalization": _row("layer_norm"),
    "gridsample": _row("grid_sampler_2d"),
    **dict.fromkeys(("reformat", "quantize", "dequantize", "quantizelinear", "dequantizelinear"), _reformat),
}
