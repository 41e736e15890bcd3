# SPDX-License-Identifier: Apache-2.0
"""An engine's launch for fused work: its shapes, parameters, operations and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ..fusion import FusionUnit, LaunchGraph
from ..kinds import KINDS, flops
from ..network import KernelInvocation, Network, ParamValue, numel, tensor_bytes, written_type
from . import names
from .absorbing import EIGHT_BITS, ENDS, NORMS, PARALLEL, POOLED, SCALINGS
from .ported_layer import CONVOLUTIONS, own_kind

_POOLS = ("kernel_size", "stride", "padding")
_EIGHT, _HALF, _FULL = "int8", "float16", "float32"
_FOLLOWING = frozenset(["add", "add_relu", "cat", "clone", "copy"])


def launch(graph: LaunchGraph, unit: FusionUnit) -> tuple[KernelInvocation, list[int]]:
    kinds = [graph.launches[member].kind for member in unit.members]
    if unit.kind == PARALLEL:
        return _parallel(graph, unit.members)
    if not CONVOLUTIONS.isdisjoint(kinds):
        return _convolution(graph, unit.members, pooled=unit.kind == POOLED)
    if len(kinds) > 1 and unit.kind == "matmul":
        return _product(graph, unit.members)
    if len(kinds) > 1 and unit.kind == "quantize_per_tensor":
        return graph.launches[unit.members[0]], list(graph.reads[unit.members[0]])
    made, writers = graph.launch(unit)
    if unit.kind == "attention" and len(kinds) > 1:
        made = replace(made, params={})
    elif unit.kind in NORMS and len(kinds) > 1:
        made = replace(made, params={**graph.launches[unit.members[-1]].params, "prologue": "+".join(kinds[:-1])[:1000]})
    elif len(kinds) == 1:
        made = _pool(made)
    return made, writers


def _product(graph: LaunchGraph, members: Sequence[int]) -> tuple[KernelInvocation, list[int]]:
    first, behind = graph.launches[members[0]], [graph.launches[member] for member in members[1:]]
    ends = [ENDS.get(launch.kind, launch.kind) for launch in behind if launch.kind not in ("add", "add_scalar")]
    params = {**first.params, "bias": len(behind) > len(ends) or bool(first.params.get("bias"))}
    params |= {"epilogue": "+".join(ends)} if ends else {}
    read = [pair for member in members[1:] for pair in zip(graph.launches[member].inputs, graph.reads[member], strict=True)]
    added = [shape for shape, writer in read if writer < 0]
    moved = first.bytes + sum(tensor_bytes(numel(shape), first.dtype) for shape in added)
    work = first.flops + sum(launch.flops for launch in behind)
    return replace(first, params=params, flops=work, bytes=moved), list(graph.reads[members[0]])


def _parallel(graph: LaunchGraph, members: Sequence[int]) -> tuple[KernelInvocation, list[int]]:
    product = graph.launches[members[0]].kind == "matmul"
    made = [(_product if product else _convolution)(graph, branch) for branch in _branches(graph, members)]
    launches, writers = [launch for launch, _ in made], made[0][1]
    first, axis = launches[0], -1 if product else 1
    filters = sum(launch.output[axis] for launch in launches)
    inputs, output = list(first.inputs), list(first.output)
    output[axis] = filters
    params: dict[str, ParamValue] = {**first.params, "bias": any(launch.params.get("bias") for launch in launches)}
    if product:
        params["n"] = filters
        inputs[1:] = [(shape[0], filters) for shape in inputs[1:]]
    else:
        weight = first.params["weight"]
        params["weight"] = (filters, *(weight[1:] if isinstance(weight, tuple) else ()))
    once = tensor_bytes(numel(first.inputs[0]), first.dtype) * (len(launches) - 1)
    joined = replace(
        first,
        scope=" || ".join(launch.scope for launch in launches)[:1000],
        inputs=tuple(inputs),
        output=tuple(output),
        params=params,
        flops=sum(launch.flops for launch in launches),
        bytes=sum(launch.bytes for launch in launches) - once,
    )
    return joined, writers


def _branches(graph: LaunchGraph, members: Sequence[int]) -> Iterator[list[int]]:
    kind = graph.launches[members[0]].kind
    for head in (member for member in members if graph.launches[member].kind == kind):
        branch = [head]
        for member in members:
            if member > head and branch[-1] in graph.reads[member]:
                branch.append(member)
        yield branch


def _convolution(graph: LaunchGraph, members: Sequence[int], *, pooled: bool = False) -> tuple[KernelInvocation, list[int]]:
    number = next(member for member in members if graph.launches[member].kind in CONVOLUTIONS)
    first = graph.launches[number]
    inputs, writers, scopes = list(first.inputs), list(graph.reads[number]), [first.scope]
    params: dict[str, ParamValue] = dict(first.params)
    moved, dtype, output = first.bytes, written_type(first), first.output
    ends: list[str] = []
    for member in members:
        launch = graph.launches[member]
        other = next((writer for writer in graph.reads[member] if writer not in members), -1)
        if member == number or launch.kind == "dequantize":
            continue
        scopes.append(launch.scope)
        if launch.kind == "batch_norm" or (launch.kind in SCALINGS and launch.inputs.count(first.output) == 1):
            moved += 0 if params.get("bias") else tensor_bytes(output[1], first.dtype)
            params["bias"] = True
        elif launch.kind == "add":
            inside = [
                writer for writer in graph.reads[member] if writer in members and graph.launches[writer].kind == "dequantize"
            ]
            other = graph.reads[inside[0]][0] if inside else other
            ends.append("add")
            inputs.append(first.output)
            writers.append(other)
            moved += tensor_bytes(numel(first.output), written_type(graph.launches[other]) if other >= 0 else dtype)
        elif launch.kind == "quantize_per_tensor":
            moved += (
                tensor_bytes(numel(output), launch.dtype) - tensor_bytes(numel(output), dtype) if launch.dtype != dtype else 0
            )
            dtype = launch.dtype
        elif pooled and launch.kind == "max_pool2d":
            moved += tensor_bytes(numel(launch.output), dtype) - tensor_bytes(numel(output), dtype)
            params |= {"kernel_size": launch.params["kernel_size"], "pooled_from": output}
            output = launch.output
        else:
            ends.append(ENDS.get(launch.kind, launch.kind))
    work = flops(first.kind, [first.inputs[0]], first.output, params) + names.work_of(ends, numel(first.output))
    kind = "_".join((first.kind, *ends))
    if pooled:
        window = params["kernel_size"]
        work += numel(output) * numel(window if isinstance(window, tuple) else ())
        params["epilogue"], kind = "+".join((*ends, "pool2d")), POOLED
    elif ends and kind not in KINDS:
        params["epilogue"], kind = "+".join(ends), first.kind
    scope = " + ".join(dict.fromkeys(filter(None, scopes)))[:1000]
    own = first.dtype if first.dtype in EIGHT_BITS else dtype
    params = {**params, "output": dtype} if own != dtype else {name: params[name] for name in params if name != "output"}
    return KernelInvocation(kind, scope, tuple(inputs), output, own, params, work, moved), writers


def _pool(launch: KernelInvocation) -> KernelInvocation:
    image, out = launch.inputs[0] if launch.inputs else (), launch.output
    rank = len(image) - 2
    whole = rank in (2, 3) and numel(out) == numel(image[:2])
    dims = launch.params.get("dim")
    over = launch.kind == "mean" and dims in (tuple(range(2, rank + 2)), tuple(range(-rank, 0)))
    if whole and (over or launch.kind == f"adaptive_avg_pool{rank}d"):
        params: dict[str, ParamValue] = {"kernel_size": image[2:], "stride": (1,) * rank, "padding": (0,) * rank}
        return replace(launch, kind=f"avg_pool{rank}d", output=(*image[:2], *(1,) * rank), params=params)
    if launch.kind in ("max_pool2d", "avg_pool2d", "max_pool3d", "avg_pool3d"):
        kept = {name: launch.params[name] for name in _POOLS if name in launch.params}
        return replace(launch, params=kept, flops=_pooled(launch, kept))
    return launch


def _pooled(launch: KernelInvocation, params: dict[str, ParamValue]) -> int:
    try:
        return flops(launch.kind, launch.inputs, launch.output, params)
    except (KeyError, TypeError, ValueError):
        return launch.flops


def halved(network: Network) -> list[KernelInvocation]:
    """The launches with single precision replaced by half; inputs converted to 8 bits stay."""
    return [
        _half(launch, [written_type(network.launches[writer]) if writer >= 0 else "" for writer in writers])
        for launch, writers in zip(network.launches, network.reads, strict=True)
    ]


def _half(launch: KernelInvocation, read: Sequence[str]) -> KernelInvocation:
    narrow = launch.dtype in EIGHT_BITS
    if not narrow and launch.dtype != _FULL:
        return launch
    if narrow or EIGHT_BITS.intersection(read):
        shapes = [shape for shape, dtype in zip(launch.inputs, read, strict=True) if dtype == _FULL]
        floats = [*shapes, *([launch.output] if written_type(launch) == _FULL else [])]
        fewer = sum(map(numel, floats)) * 2
    else:
        fewer = launch.bytes - launch.bytes // 2
    params = {**launch.params, "output": _HALF} if launch.params.get("output") == _FULL else launch.params
    return replace(launch, dtype=launch.dtype if narrow else _HALF, params=params, bytes=launch.bytes - fewer)


def calibrated(launches: Sequence[KernelInvocation], reads: Sequence[Sequence[int]]) -> list[KernelInvocation]:
    """Half-precision launches in 8 bits as by TensorRT's calibration (``trtexec --int8 --fp16``).

    These are convolutions, products with weights, and pools, sums and copies of their results; norms, softmax and attention
    keep half precision.
    """
    made: list[KernelInvocation] = []
    for launch, writers in zip(launches, reads, strict=True):
        written = [writer for writer in writers if writer >= 0]
        weighed = own_kind(launch) in CONVOLUTIONS or (launch.kind == "matmul" and len(written) < 2)
        follows = launch.kind in _FOLLOWING or launch.kind.startswith(("max_pool", "avg_pool"))
        follows = follows and bool(written) and all(made[writer].dtype == _EIGHT for writer in written)
        narrow = launch.dtype == _HALF and (weighed or follows)
        made.append(replace(launch, dtype=_EIGHT, bytes=launch.bytes - launch.bytes // 2) if narrow else launch)
    return made
