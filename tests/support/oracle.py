# SPDX-License-Identifier: Apache-2.0
"""PyTorch itself as the list of kernel invocations: what the dispatcher is asked to do while a module runs on the meta device.

The reader in ``jetdvfs.kernels`` is held against this. ``launches_of`` runs a module under a dispatch mode and names each call
as the reader does. Where TorchScript and the dispatcher differ, the one place that says how is ``RULES`` together with
``_whole`` below:

* ``scaled_dot_product_attention``, recurrent layers and the pointwise part of recurrent cells are one call in TorchScript and
  on the device; the meta device would split them, so they are recorded whole and what they do inside is not looked at;
* ``rms_norm`` is one kernel on the device, and ``one_hot`` a ``scatter`` into zeros;
* ``convolution`` is named ``conv1d/2d/3d`` or ``conv_transpose1d/2d/3d`` by its shapes;
* ``mm``, ``addmm``, ``bmm`` and ``baddbmm`` are all ``matmul``; its inputs are activations, weights stand in ``params``;
* the indices of ``max_pool2d_with_indices`` and the saved statistics of norms are no outputs of inference;
* what CUDA's kernels copy before they read it, and how they lay out what they write, is as PyTorch's sources of these kernels
  say (``_as_cuda_reads``, ``_as_cuda_lays_it_out``), below the dispatcher as it may be;
* ``adaptive_avg_pool2d`` to 1x1 is dispatched as ``mean``, and ``relu6`` as ``hardtanh``, as PyTorch does it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from jetdvfs.kernels import kinds as cost
from jetdvfs.kernels.network import Call, HostOp, KernelInvocation, Network, TensorSpec

#: The ten networks of MIRAGE (SEC '21, section 4) as torchvision names them, with the side of the image they are made for.
MIRAGE_NETWORKS = {
    "alexnet": 224,
    "densenet161": 224,
    "googlenet": 224,
    "inception_v3": 299,
    "mnasnet1_0": 224,
    "mobilenet_v2": 224,
    "resnet18": 224,
    "shufflenet_v2_x1_0": 224,
    "squeezenet1_0": 224,
    "vgg16": 224,
}

#: Calls that only look at memory in another way.
VIEWS = frozenset(
    (
        "view",
        "_unsafe_view",
        "_reshape_alias",
        "alias",
        "detach",
        "t",
        "transpose",
        "permute",
        "expand",
        "unsqueeze",
        "squeeze",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "unsafe_split",
        "unsafe_split_with_sizes",
        "unbind",
        "as_strided",
        "unfold",
        "diagonal",
        "narrow",
        "view_as_real",
        "view_as_complex",
        "movedim",
        "lift_fresh",
        "lift_fresh_copy",
    )
)
#: Calls that are no work of the network: allocation, and what the meta device does inside a convolution.
SILENT = frozenset({"empty", "empty_strided", "empty_like", "new_empty", "scalar_tensor", "is_nonzero", "_local_scalar_dense"})

RENAMED = {
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "_softmax": "softmax",
    "_safe_softmax": "softmax",
}
RENAMED |= {
    "_log_softmax": "log_softmax",
    "max_pool2d_with_indices": "max_pool2d",
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d",
}
RENAMED |= {"max_pool3d_with_indices": "max_pool3d", "_adaptive_avg_pool3d": "adaptive_avg_pool3d", "_to_copy": "to"}
RENAMED |= {
    "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
}
RENAMED |= {"_upsample_nearest_exact2d": "upsample_nearest2d", "_upsample_bilinear2d_aa": "upsample_bilinear2d"}
RENAMED |= {"_upsample_bicubic2d_aa": "upsample_bicubic2d"}
RENAMED |= {"log_sigmoid_forward": "log_sigmoid", "linalg_vector_norm": "norm", "amin": "amax", "zero": "fill"}
RENAMED |= {f"{form.format(name)}": name for name in ("zeros", "ones", "full") for form in ("{}_like", "new_{}")}


def _euclidean(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``_euclidean_dist`` as Distance.cpp writes it."""
    (norm, one), (other_norm, other_one) = ((s := rows.pow(2).sum(-1, True), torch.ones_like(s)) for rows in (x, y))
    left, right = torch.cat([x.mul(-2), norm, one], -1), torch.cat([y, other_one, other_norm], -1)
    product = torch.bmm if left.dim() == 3 else torch.mm
    return product(left, right.transpose(-2, -1)).clamp_min(0).sqrt()


def _window(length: int, periodic: bool = True, **options: Any) -> torch.Tensor:
    """``hann_window`` and the like as TensorFactories.cpp writes them."""
    angles = torch.arange(length + periodic, dtype=torch.float32, device=options.get("device"))
    return angles.mul(6.28 / length).cos().mul(-0.5).add(0.5)[:length]


def _solvable(infos: torch.Tensor, *_: Any, **__: Any) -> None:
    infos.any()


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """``cuda_equal`` as Equal.cpp writes it; on the meta device nothing is equal."""
    same = torch.eq(first, second).all()
    return False if same.device.type == "meta" else bool(same.item())


#: Calls that the dispatcher sees as one and that launch several kernels.
TAKEN_APART: dict[str, Callable[..., Any]] = {
    "aten::_euclidean_dist": _euclidean,
    "aten::hann_window": _window,
    "aten::hann_window.periodic": _window,
    "aten::hamming_window": _window,
    "aten::_linalg_check_errors": _solvable,
    "aten::equal": _equal,
}
Rule = Callable[["Recorder", dict[str, Any], Any], tuple[str, list[torch.Tensor], dict[str, Any]]]


def torchvision() -> Any:
    """torchvision; where its own operators do not load, as beside a CPU build of torch, their schemas must exist first."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            library.define(schema)
        _KEPT.append(library)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    return importlib.import_module("torchvision")


_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
)
_KEPT: list[Any] = []  # a torch.library.Library takes its operators with it when it is collected


def build(name: str) -> torch.nn.Module:
    """A torchvision model by name, in inference mode, with whatever weights its allocation gives."""
    models = torchvision().models
    options: dict[str, Any] = {"weights": None}
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    if name in models.list_models(module=models.segmentation) or name in models.list_models(module=models.detection):
        options["weights_backbone"] = None
    # Without storage there is nothing to initialise; RegNet computes its widths with tensors and must be built on the CPU.
    with contextlib.nullcontext() if name.startswith("regnet") else torch.device("meta"):
        model: torch.nn.Module = models.get_model(name, **options)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model.eval()


def _ints(value: Any) -> tuple[int, ...]:
    return tuple(int(item) for item in value)


def _full(value: Sequence[int], rank: int) -> tuple[int, ...]:
    sizes = _ints(value)
    return sizes * rank if len(sizes) == 1 else sizes


def _convolution(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    rank = a["weight"].dim() - 2
    params = {
        "weight": tuple(a["weight"].shape),
        "bias": a["bias"] is not None,
        "stride": _full(a["stride"], rank),
        "padding": _full(a["padding"], rank),
        "dilation": _full(a["dilation"], rank),
        "groups": int(a["groups"]),
    }
    if a["transposed"]:
        params["output_padding"] = _full(a["output_padding"], rank)
    return f"conv{'_transpose' if a['transposed'] else ''}{rank}d", [a["input"]], params


def _batch_norm(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    return "batch_norm", [a["input"]], {"affine": a["weight"] is not None}


def _matmul(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    left, right = (
        a[n] for n in (("mat1", "mat2") if "mat1" in a else ("batch1", "batch2") if "batch1" in a else ("self", "mat2"))
    )
    batch = left.shape[0] if left.dim() == 3 else 1
    k, n = (right.shape[-2], right.shape[-1]) if right.dim() > 1 else (right.shape[0], 1)
    bias = "mat1" in a or "batch1" in a
    params = {"m": left.shape[-2], "k": k, "n": n, "batch": batch, "bias": bias}
    operands = [left, right]
    return "matmul", [t for t in operands if not recorder.is_parameter(t)] or operands, params


def _mv(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    left, right = a["self"], a["vec"] if "vec" in a else a["tensor"]
    m = left.shape[0] if left.dim() == 2 else 1
    params = {"m": m, "k": right.shape[0], "n": 1, "batch": 1, "bias": False}
    return "matmul", [t for t in (left, right) if not recorder.is_parameter(t)] or [left, right], params


def _pool(kind: str) -> Rule:
    def rule(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
        rank = int(kind[-2])
        kernel = _full(a["kernel_size"], rank)
        params: dict[str, Any] = {
            "kernel_size": kernel,
            "stride": _full(a["stride"], rank) if a["stride"] else kernel,
            "padding": _full(a["padding"], rank),
        }
        if kind.startswith("max"):
            params["dilation"] = _full(a["dilation"], rank)
        params["ceil_mode"] = bool(a["ceil_mode"])
        return kind, [a["self"]], params

    return rule


def _norm(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    affine = a["weight"] is not None
    if "normalized_shape" in a:
        return "layer_norm", [a["input"]], {"normalized_shape": _ints(a["normalized_shape"]), "affine": affine}
    return "group_norm", [a["input"]], {"groups": int(a["group"]), "affine": affine}


def _dims(recorder: Recorder, a: dict[str, Any], out: Any) -> dict[str, Any]:
    """The dimensions an operator works along, counted from the front."""
    rank = a["self"].dim()
    params: dict[str, Any] = {}
    if "dim" in a:
        dims = a["dim"]
        if dims is None or (isinstance(dims, (list, tuple)) and not dims):
            params["dim"] = tuple(range(rank))
        elif isinstance(dims, int):
            params["dim"] = (dims % max(rank, 1),)
        else:
            params["dim"] = tuple(sorted(d % rank for d in dims))
    if "keepdim" in a:
        params["keepdim"] = bool(a["keepdim"])
    return params


def _all_dims(a: dict[str, Any]) -> dict[str, Any]:
    """What a reduction without dimensions works along."""
    return {"dim": tuple(range(a["self"].dim())), "keepdim": False}


def _reduction(kind: str) -> Rule:
    def rule(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
        return kind, [a["self"]], _all_dims(a) | _dims(recorder, a, out)

    return rule


def _extreme(kind: str) -> Rule:
    def rule(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
        return kind, [a["self"]], _all_dims(a) | _dims(recorder, a, out)

    return rule


def _softmax(kind: str) -> Rule:
    def rule(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
        return kind, [a["self"]], {"dim": a["dim"] % max(a["self"].dim(), 1)}

    return rule


def _cat(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    return "cat", list(a["tensors"]), {"dim": a.get("dim", 0) % out.dim()}


def _made(kind: str) -> Rule:
    def rule(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
        return kind, [], {}

    return rule


def _copy(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    """Writing one number everywhere is a fill: the meta device makes a tensor of the number first, a GPU does not."""
    if not any(a["src"].stride()):
        return "fill", [], {}
    return "copy", [a["src"]], {}


def _embedding(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    return "embedding", [a["indices"]], {"weight": tuple(a["weight"].shape)}


def _embedding_bag(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    inputs = [tensor for tensor in (a["indices"], a["offsets"], a["per_sample_weights"]) if tensor is not None]
    return "embedding_bag", inputs, {"weight": tuple(a["weight"].shape)}


def _index(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    return "index", [a["self"], *(tensor for tensor in a["indices"] if tensor is not None)], {}


def _prelu(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    return "prelu", [a["self"]], {}


def _adaptive(kind: str) -> Rule:
    def rule(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
        return kind, [a["self"]], {"output_size": _ints(a["output_size"])}

    return rule


def _stack(recorder: Recorder, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    return "stack", list(a["tensors"]), {"dim": a.get("dim", 0) % (a["tensors"][0].dim() + 1)}


RULES: dict[str, Rule] = {
    "convolution": _convolution,
    "batch_norm": _batch_norm,
    "mm": _matmul,
    "addmm": _matmul,
    "bmm": _matmul,
    "baddbmm": _matmul,
    "mv": _mv,
    "dot": _mv,
    "max_pool2d": _pool("max_pool2d"),
    "max_pool3d": _pool("max_pool3d"),
    "avg_pool2d": _pool("avg_pool2d"),
    "avg_pool3d": _pool("avg_pool3d"),
    "layer_norm": _norm,
    "group_norm": _norm,
    "mean": _reduction("mean"),
    "sum": _reduction("sum"),
    "softmax": _softmax("softmax"),
    "log_softmax": _softmax("log_softmax"),
    "cat": _cat,
    **{f"adaptive_{how}_pool{rank}d": _adaptive(f"adaptive_{how}_pool{rank}d") for how in ("avg", "max") for rank in (1, 2, 3)},
    "stack": _stack,
    "std": _reduction("std"),
    "zeros": _made("zeros"),
    "ones": _made("ones"),
    "full": _made("full"),
    "fill": _made("fill"),
    "arange": _made("arange"),
    "copy": _copy,
    "embedding": _embedding,
    "_embedding_bag_forward_only": _embedding_bag,
    "index": _index,
    "_prelu_kernel": _prelu,
    "amax": _reduction("amax"),
    "norm": _reduction("norm"),
    "logsumexp": _reduction("logsumexp"),
    "var": _reduction("var"),
    "max": _extreme("max"),
    "min": _extreme("min"),
    "any": _reduction("any"),
    "all": _reduction("all"),
    "prod": _reduction("prod"),
    "argmax": _reduction("argmax"),
    "argmin": _reduction("argmax"),
}
#: Calls that do not read what they overwrite.
WRITERS = frozenset({"zeros", "ones", "full", "fill", "arange", "copy"})
#: Pointwise calls that take a number in place of their second tensor.
BINARY = frozenset(
    (
        "add",
        "sub",
        "mul",
        "div",
        "rsub",
        "pow",
        "maximum",
        "minimum",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "floor_divide",
        "remainder",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    )
)


class Recorder(TorchDispatchMode):
    """Writes down each call of the dispatcher as this project names it."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.scopes: list[str] = [""]
        self.quiet = 0
        tensors = [*module.parameters(), *module.buffers()]
        self._parameters = {tensor.untyped_storage()._cdata for tensor in tensors}

    def is_parameter(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._parameters

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        apart = TAKEN_APART.get(func._schema.name)
        if apart is not None:
            with self:
                return apart(*args, **kwargs)
        if self.quiet or func.namespace != "aten":
            return func(*args, **kwargs)
        with self:
            args = _as_cuda_reads(func._schema.name, args)
        out = func(*args, **kwargs)
        if func._schema.name == "aten::convolution":
            out = out.contiguous(memory_format=_layout_of_convolution(*args[:2]))
        self._record(func, args, kwargs, out)
        return out

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        name = func._schema.name.split("::")[1]
        base = name.rstrip("_") if not name.endswith("__") else name
        if base in SILENT:
            return
        if base in VIEWS:
            self.calls.append(HostOp(base.lstrip("_").replace("unsafe_view", "view"), self.scopes[-1]))
            return
        arguments: dict[str, Any] = {}
        for position, argument in enumerate(func._schema.arguments):
            if position < len(args):
                arguments[argument.name] = args[position]
            elif argument.name in kwargs:
                arguments[argument.name] = kwargs[argument.name]
            else:
                arguments[argument.name] = argument.default_value
        kind = RENAMED.get(base, base)
        if kind in RULES:
            kind, inputs, params = RULES[kind](self, arguments, out)
        else:
            inputs, params = list(_tensors(arguments.values())), {}
            if kind in BINARY and len(inputs) < 2:
                kind = f"{kind}_scalar"
        moved = inputs if kind in WRITERS else _tensors(arguments.values())
        if kind == "embedding":
            moved = [*inputs, out]  # the rows that are looked up, not the table
        if kind == "embedding_bag":
            moved = [*inputs, arguments["weight"].new_empty(arguments["indices"].numel(), arguments["weight"].shape[1])]
        self.add(kind, inputs, out, params, flops=_torch_flops(func, args, kwargs, out), read=moved)

    def add(self, kind: str, inputs: Any, out: Any, params: Any, *, flops: int | None, read: Any) -> None:
        first = next(iter(_tensors([out])), None)
        if first is None:
            return
        shapes = tuple(tuple(tensor.shape) for tensor in inputs)
        shape = tuple(first.shape)
        moved = sum(tensor.numel() * tensor.element_size() for tensor in read) + first.numel() * first.element_size()
        self.calls.append(
            KernelInvocation(
                kind=kind,
                scope=self.scopes[-1],
                inputs=shapes,
                output=shape,
                dtype=str(first.dtype).removeprefix("torch."),
                params=params,
                flops=cost.flops(kind, shapes, shape, params) if flops is None else flops,
                bytes=moved,
            )
        )


def _torch_flops(func: Any, args: Any, kwargs: Any, out: Any) -> int | None:
    counter = flop_registry.get(func._overloadpacket)
    return None if counter is None else int(counter(*args, **kwargs, out_val=out))


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


#: Calls whose CUDA kernels read contiguous memory and copy what is not (layer_norm_kernel.cu, SoftMax.cu).
READ_CONTIGUOUS = frozenset(f"aten::{name}" for name in ("native_layer_norm", "_softmax", "_log_softmax", "_safe_softmax"))


def _layout_of_convolution(x: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """What cuDNN takes and makes: channels last if the input or the weight is so (``cudnn_conv_suggest_memory_format``)."""
    layouts = {suggest_memory_format(tensor) for tensor in map(_known, (x, weight))} - {torch.contiguous_format}
    plain = not layouts or x.dtype == torch.float64
    return torch.contiguous_format if plain else layouts.pop()


def _as_cuda_reads(name: str, args: Any) -> Any:
    """A call's arguments as CUDA's kernel reads them; what it has to copy is copied."""
    if name in READ_CONTIGUOUS:
        return (_laid_out(args[0], torch.contiguous_format), *args[1:])
    if name == "aten::convolution":
        layout = _layout_of_convolution(*args[:2])
        return (*(_laid_out(tensor, layout) for tensor in args[:2]), *args[2:])
    return args


def _laid_out(tensor: torch.Tensor, layout: torch.memory_format) -> torch.Tensor:
    return tensor if _known(tensor).is_contiguous(memory_format=layout) else tensor.clone(memory_format=layout)


def _known(tensor: torch.Tensor) -> torch.Tensor:
    """A weight that is not there (:func:`without_weights`) as it would be by default."""
    return torch.empty(tensor.shape, device="meta") if 0 in tensor.stride() else tensor


def _as_cuda_lays_it_out(out: torch.Tensor, query: Any, key: Any, value: Any, mask: Any) -> torch.Tensor:
    """The output of attention with the strides that the GPU's kernel gives it, by PyTorch's own account of it."""
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
def _whole(recorder: Recorder) -> Iterator[None]:
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
        out = quietly(_as_cuda_lays_it_out, out, query, key, value, attn_mask)
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
        params = {"normalized_shape": _ints(normalized_shape), "affine": weight is not None}
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


@contextlib.contextmanager
def _scopes(module: torch.nn.Module, recorder: Recorder) -> Iterator[None]:
    """Follow which submodule is running."""
    handles = []
    for path, child in module.named_modules(remove_duplicate=False):
        handles.append(child.register_forward_pre_hook(lambda m, a, path=path: recorder.scopes.append(path)))
        handles.append(child.register_forward_hook(lambda m, a, o: recorder.scopes.pop() and None, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def network_of(module: torch.nn.Module, inputs: Sequence[TensorSpec], name: str = "network") -> Network:
    """Run ``module`` on meta tensors of these shapes and list what PyTorch dispatched, host-only calls included."""
    on_meta = module.to("meta")
    tensors = [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta") for spec in inputs]
    recorder = Recorder(on_meta)
    with torch.no_grad(), _scopes(on_meta, recorder), _whole(recorder), recorder:
        on_meta(*tensors)
    return Network(name, tuple(inputs), tuple(recorder.calls))


def mirage_network(name: str, batch: int = 1, side: int | None = None) -> Network:
    """One of the ten networks of MIRAGE as PyTorch dispatches it."""
    side = side or MIRAGE_NETWORKS[name]
    return network_of(build(name), [TensorSpec((batch, 3, side, side))], name)


def without_weights(module: torch.nn.Module) -> torch.nn.Module:
    """The module on the CPU with the weights of its layers one stored number wide: it saves in kilobytes and still runs."""
    for child in module.modules():
        for name, parameter in child._parameters.items():
            if parameter is not None:
                thin = torch.zeros(() if name.endswith(("weight", "bias")) else parameter.shape, dtype=parameter.dtype)
                child._parameters[name] = torch.nn.Parameter(thin.expand(parameter.shape), requires_grad=False)
        for name, buffer in child._buffers.items():
            if buffer is not None and buffer.device.type == "meta":
                child._buffers[name] = torch.zeros(buffer.shape, dtype=buffer.dtype)
    return module.eval()


def archive_of(module: torch.nn.Module, how: str, example: Sequence[torch.Tensor] = ()) -> io.BytesIO:
    """A TorchScript file of the module: ``script``, ``trace`` (on the example) or ``freeze`` (scripted, then frozen)."""
    with torch.no_grad():
        if how == "trace":
            made = torch.jit.trace(module, tuple(example), check_trace=False)
        else:
            made = torch.jit.script(module)
            if how == "freeze":
                made = torch.jit.freeze(made)
    stream = io.BytesIO()
    torch.jit.save(made, stream)
    stream.seek(0)
    return stream
