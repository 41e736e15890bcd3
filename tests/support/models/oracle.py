# SPDX-License-Identifier: Apache-2.0
"""PyTorch itself as the list of kernel invocations: what the dispatcher is asked to do while a module runs on the meta device.

The reader in ``jetdvfs.kernels`` is held against this. ``launches_of`` runs a module under a dispatch mode and names each call
as the reader does. Where TorchScript and the dispatcher differ, the one place that says how is ``RULES`` in
:mod:`.dispatching.rules` together with :mod:`.dispatching.device`:

* ``scaled_dot_product_attention``, recurrent layers and the pointwise part of recurrent cells are one call in TorchScript and
  on the device; the meta device would split them, so they are recorded whole and what they do inside is not looked at;
* ``rms_norm`` is one kernel on the device, and ``one_hot`` a ``scatter`` into zeros;
* ``convolution`` is named ``conv1d/2d/3d`` or ``conv_transpose1d/2d/3d`` by its shapes;
* ``mm``, ``addmm``, ``bmm`` and ``baddbmm`` are all ``matmul``; its inputs are activations, weights stand in ``params``;
* the indices of ``max_pool2d_with_indices`` and the saved statistics of norms are no outputs of inference;
* what CUDA's kernels copy before they read it, and how they lay out what they write, is as PyTorch's sources of these kernels
  say (``as_cuda_reads``, ``as_cuda_lays_it_out``), below the dispatcher as it may be;
* ``adaptive_avg_pool2d`` to 1x1 is dispatched as ``mean``, and ``relu6`` as ``hardtanh``, as PyTorch does it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from jetdvfs.kernels import kinds as cost
from jetdvfs.kernels.network import Call, HostOp, KernelInvocation, Network, TensorSpec
from jetdvfs.tests.support.models.dispatching import device
from jetdvfs.tests.support.models.dispatching.rules import RULES

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
RENAMED |= {"_is_all_true": "all", "_is_any_true": "any"}
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
            args = device.as_cuda_reads(func._schema.name, args)
        out = func(*args, **kwargs)
        if func._schema.name == "aten::convolution":
            out = out.contiguous(memory_format=device.layout_of_convolution(*args[:2]))
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


def with_short_cuts(module: torch.nn.Module) -> torch.nn.Module:
    """The module with its self-attention and encoder layers as CUDA runs them in inference, where their own code asks for it.

    As in ``aten/src/ATen/native/transformers/transformer.cpp`` and ``cuda/attention.cu``.
    """
    for layer in module.modules():
        if isinstance(layer, torch.nn.MultiheadAttention) and layer.batch_first:
            layer.forward = functools.partial(_attention_or_short, layer)
        if isinstance(layer, torch.nn.TransformerEncoderLayer) and layer.self_attn.batch_first:
            layer.forward = functools.partial(_short_layer, layer)
    return module


def _attention_or_short(attention: torch.nn.MultiheadAttention, query: Any, key: Any, value: Any, **options: Any) -> Any:
    if query is key and key is value and options.get("attn_mask") is None:
        return _short_attention(attention, query), None
    return torch.nn.MultiheadAttention.forward(attention, query, key, value, **options)


def _short_attention(attention: torch.nn.MultiheadAttention, x: torch.Tensor) -> torch.Tensor:
    functional, (batch, length, width), heads = torch.nn.functional, x.shape, attention.num_heads
    parts = functional.linear(x, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
    query, key, value = (part.view(batch, length, heads, width // heads).transpose(1, 2) for part in parts)
    mixed = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(batch, length, width)
    return functional.linear(mixed, attention.out_proj.weight, attention.out_proj.bias)


def _short_layer(layer: torch.nn.TransformerEncoderLayer, src: torch.Tensor, **masks: Any) -> torch.Tensor:
    first, second = (layer.norm1, layer.norm2) if layer.norm_first else (torch.nn.Identity(),) * 2
    normed = first(src)
    x = layer.self_attn(normed, normed, normed)[0] + src
    x = x if layer.norm_first else layer.norm1(x)
    y: torch.Tensor = layer.linear2(layer.activation(layer.linear1(second(x)))) + x
    return y if layer.norm_first else layer.norm2(y)


def network_of(module: torch.nn.Module, inputs: Sequence[TensorSpec], name: str = "network") -> Network:
    """Run ``module`` on meta tensors of these shapes and list what PyTorch dispatched, host-only calls included."""
    on_meta = module.to("meta")
    tensors = [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta") for spec in inputs]
    recorder = Recorder(on_meta)
    with torch.no_grad(), _scopes(on_meta, recorder), device.whole(recorder), recorder:
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
