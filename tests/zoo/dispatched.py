# SPDX-License-Identifier: Apache-2.0
"""What PyTorch dispatches while it runs a file that it wrote, or the module the file was made of, on numbers.

The rules of naming are those of ``tests/support/models/oracle.py``. Here files are run as well, in which nothing can be wrapped
from Python: what the device runs whole (attention, recurrent layers) is told apart at the dispatcher, by kernels of its own for
the CPU that stand before ATen's composite ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from jetdvfs.kernels.kinds import KINDS
from jetdvfs.kernels.network import KernelInvocation
from jetdvfs.tests.support.models import oracle
from jetdvfs.tests.support.models.dispatching import device
from jetdvfs.tests.zoo.calls import NEUTRAL, all_tensors, is_neutral, looks_at_data, moved
from jetdvfs.tests.zoo.comparison import Dispatched

#: Calls that the device runs whole, and that PyTorch takes apart before the dispatcher is asked.
WHOLE = (
    "scaled_dot_product_attention",
    "lstm.input",
    "gru.input",
    "rnn_tanh.input",
    "rnn_relu.input",
    "lstm_cell",
    "gru_cell",
    "rnn_tanh_cell",
    "rnn_relu_cell",
    "rms_norm",
    "one_hot",
)
#: Pointwise calls that take a number of the host in place of a tensor.
_BESIDE = (*oracle.BINARY, "atan2", "fmod", "where", "masked_fill", "clamp", "clamp_min", "clamp_max")
_NUMBERS_BESIDE = frozenset(f"aten::{name}{ending}" for name in _BESIDE for ending in ("", "_"))
#: Those that take it from Python as it is (``should_allow_numbers_as_tensors``).
_ARITHMETIC = frozenset(f"aten::{name}{ending}" for name in ("add", "sub", "mul", "div") for ending in ("", "_"))
#: Calls that take a tensor for its shape alone.
_OF_A_SHAPE = tuple(f"aten::{name}" for name in ("new_", "zeros_like", "ones_like", "full_like", "empty_like"))
#: Views of one number in several places.
_WINDOWS = ("aten::as_strided", "aten::unfold")
_KEPT: list[Any] = []


def keep_whole() -> None:
    """From now on, in this process, calls of :data:`WHOLE` reach a dispatch mode as they are written."""
    if _KEPT:
        return
    library = torch.library.Library("aten", "IMPL")
    for name in WHOLE:
        library.impl(name, _overload(name).decompose, "CPU")
    _KEPT.append(library)


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


class FileRecorder(oracle.Recorder):
    """Writes down the calls of a module or a file."""

    def __init__(self, module: Any, inputs: Sequence[torch.Tensor], constants: Sequence[torch.Tensor] = ()) -> None:
        super().__init__(torch.nn.Module())
        tensors = [*module.parameters(), *module.buffers(), *constants]
        self._parameters = {tensor.untyped_storage()._cdata for tensor in tensors}
        self.looks: list[tuple[int, str]] = []
        self.flows: list[Flow] = []
        self.windows: list[int] = []
        self.trouble = ""
        self._seen: dict[Any, int] = {}
        self._values: dict[int, Any] = {}  # which call made what is in a memory, for as long as nobody writes into it
        self._call: Any = None
        self._sort = ""
        self._maker: dict[int, int] = {}  # which launch wrote last into a memory
        # What is made from the inputs, by its memory; all of it is kept, for an address that is free is given out again.
        self._varies = {tensor.untyped_storage()._cdata for tensor in inputs}
        numbers = {tensor.untyped_storage()._cdata for tensor in constants if not tensor.dim()}
        self._on_device = {tensor.untyped_storage()._cdata for tensor in (*tensors, *inputs)} - numbers
        self._alive: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return self._dispatch(func, types, args, kwargs)
        except Exception as error:  # TorchScript's interpreter does not say which
            self.trouble = self.trouble or f"{func}: {type(error).__name__}: {' '.join(str(error).split())[-200:]}"
            raise

    def _dispatch(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        outer = self._call, self._sort  # where this is what another call is made of
        try:
            return self._followed(func, types, args, kwargs)
        finally:
            self._call, self._sort = outer

    def _followed(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if _is_taken_apart(func):
            with self:
                return func.decompose(*args, **(kwargs or {}))
        given = [*oracle._tensors([args, list((kwargs or {}).values())])]
        if given and all(self._on_host(tensor) for tensor in given):
            return func(*args, **(kwargs or {}))
        if func._schema.name in _ARITHMETIC:  # TorchScript takes constants for numbers, which decides the element type
            args = tuple(arg.item() if isinstance(arg, torch.Tensor) and self._on_host(arg) else arg for arg in args)
        if looks_at_data(func, args):
            self.looks.append((len(self.flows), func._schema.name))
        self._sort = self._sort_of(func, args, kwargs)
        if func._schema.name == "aten::_convolution":  # in traced code; the numbers behind are cuDNN's
            func, args = torch.ops.aten.convolution.default, args[:9]
        whole = _RULES.get(func._schema.name.removeprefix("aten::"))
        if whole is None:
            out = super().__torch_dispatch__(func, types, args, kwargs)
        else:
            known = {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)} | (kwargs or {})
            out = whole(self, func, {a.name: known.get(a.name, a.default_value) for a in func._schema.arguments})
        made = list(oracle._tensors([out]))
        if func._schema.name in _WINDOWS:
            self.windows.append(out.numel())
        self._alive.append(made)
        memory = {tensor.untyped_storage()._cdata for tensor in made}
        self._number(func, _memory(given), made)
        if func._schema.name != "aten::scalar_tensor":  # a number beside tensors, as where takes it
            self._on_device |= memory
        if self._from_inputs(given) and not func._schema.name.startswith(_OF_A_SHAPE):
            self._varies |= memory
        return out

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if func._schema.name in _NUMBERS_BESIDE:
            args = tuple(0.0 if isinstance(arg, torch.Tensor) and self._on_host(arg) else arg for arg in args)
        super()._record(func, args, kwargs, out)

    def _on_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is none of the device's: numbers of the file's code, sizes, and what is computed of these."""
        return tensor.untyped_storage()._cdata not in self._on_device

    def _from_inputs(self, tensors: Iterable[torch.Tensor]) -> bool:
        return any(tensor.untyped_storage()._cdata in self._varies for tensor in tensors)

    def _sort_of(self, func: Any, args: Any, kwargs: Any) -> str:
        """Why an exporter that keeps its graph small would leave a call out; empty where it would not."""
        random = torch.Tag.nondeterministic_seeded in func.tags
        taken = args
        if func._schema.name.startswith(_OF_A_SHAPE):  # what is in the first one is not looked at
            shape = args[0].shape if func._schema.name.endswith("_like") else ()
            taken = (tuple(shape), args[0].dtype, *args[1:])
        self._call = None if random else self._identity((func, taken, sorted((kwargs or {}).items())))
        neutral = NEUTRAL.get(func._schema.name.rstrip("_"))
        if neutral is not None and len(args) == 2 and is_neutral(args[1], neutral):
            return "idle"
        if func._schema.name in ("aten::cat", "aten::stack") and sum(bool(tensor.numel()) for tensor in args[0]) == 1:
            return "idle"
        if self._call in self._seen:
            return "repeated"
        return moved(func, args, kwargs or {})

    def _number(self, func: Any, given: set[int], made: Sequence[torch.Tensor]) -> None:
        """Remember which call made what, or wrote into what; what the same calls made of the same is the same."""
        number = None if self._call is None else self._seen.setdefault(self._call, len(self._seen))
        for place, tensor in enumerate(made):
            memory = tensor.untyped_storage()._cdata
            if func._schema.is_mutable and number is None:
                self._values.pop(memory, None)
            elif number is not None and (func._schema.is_mutable or memory not in given):
                self._values[memory] = number, place

    def _identity(self, value: Any) -> Any:
        """What makes two calls the same: the same function, the same tensors unchanged, the same numbers."""
        if isinstance(value, torch.Tensor):
            memory = value.untyped_storage()._cdata
            place = self._values.get(memory, memory), value.storage_offset(), tuple(value.shape), value.stride()
            return (*place, value.dtype, value._version)
        if isinstance(value, (list, tuple)):
            return tuple(self._identity(item) for item in value)
        return value if isinstance(value, Hashable) else repr(value)

    def add(self, kind: str, inputs: Any, out: Any, params: Any, *, flops: int | None, read: Any) -> None:
        read, before = list(read), len(self.calls)
        flops = 0 if flops is None and kind not in KINDS else flops  # a kind that jetdvfs does not know
        super().add(kind, inputs, out, params, flops=flops, read=read)
        if len(self.calls) == before:
            return
        sort = self._sort if self._from_inputs(read) else "constant"
        source = next((self._maker.get(memory, -1) for tensor in inputs for memory in _memory([tensor])), -1)
        self._maker.update(dict.fromkeys(_memory(oracle._tensors([out])), len(self.flows)))
        self.flows.append(Flow(sort, _memory(oracle._tensors([inputs, read])), _memory(oracle._tensors([out])), source))

    def sorts(self, result: Any) -> tuple[str, ...]:
        """Of each launch why an exporter would leave it out, known what came out in the end."""
        returned, launches = _memory(all_tensors(result)), [c for c in self.calls if isinstance(c, KernelInvocation)]
        needed, sorts = set(returned), []
        readers: dict[int, list[int]] = {}
        for place, flow in reversed(list(enumerate(self.flows))):
            used = bool(flow.writes & needed)
            needed |= flow.reads if used else set()
            after = [reader for memory in flow.writes for reader in readers.get(memory, ())]
            joined = len(after) == 1 and not flow.writes & returned and _are_joined(launches[place], launches[after[0]])
            sorts.append(flow.sort or ("unused" if not used else "joined" if joined else ""))
            for memory in flow.reads:
                readers.setdefault(memory, []).append(place)
        return tuple(reversed(sorts))


def _are_joined(inner: KernelInvocation, outer: KernelInvocation) -> bool:
    """Whether one launch is a ``cat`` and the other one a ``cat`` of it along the same dimension."""
    return inner.kind == outer.kind == "cat" and inner.params == outer.params and inner.output in outer.inputs


@functools.cache
def _is_taken_apart(func: Any) -> bool:
    """Whether a call is made of others; from within rules such calls arrive as they are written."""
    apart: bool = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    return apart and func._schema.name.removeprefix("aten::") not in _RULES


class Flow(NamedTuple):
    """Which memory a launch reads and writes, of what sort it is, and which launch made its first operand (-1: none)."""

    sort: str
    reads: set[int]
    writes: set[int]
    source: int


def _memory(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {tensor.untyped_storage()._cdata for tensor in tensors}


def _attention(recorder: FileRecorder, func: Any, a: dict[str, Any]) -> Any:
    out = func(**a)
    query, key, value, mask = a["query"], a["key"], a["value"], a["attn_mask"]
    laid_out = device.as_cuda_lays_it_out(out, query, key, value, mask, bool(a.get("enable_gqa")))
    if laid_out is not out:
        laid_out = laid_out.copy_(out)
    read = [t for t in (query, key, value, mask) if t is not None]
    params = {"mask": mask is not None, "causal": bool(a["is_causal"])}
    recorder.add("attention", [query, key, value], laid_out, params, flops=None, read=read)
    return laid_out


def _layer(name: str) -> Callable[[FileRecorder, Any, dict[str, Any]], Any]:
    def rule(recorder: FileRecorder, func: Any, a: dict[str, Any]) -> Any:
        out = func(**a)
        starts = [a["hx"]] if isinstance(a["hx"], torch.Tensor) else list(a["hx"])
        params = {
            "hidden": starts[-1].shape[-1],
            "layers": a["num_layers"],
            "directions": 2 if a["bidirectional"] else 1,
            "bias": bool(a["has_biases"]),
        }
        if starts[0].shape[-1] != starts[-1].shape[-1]:
            params["projection"] = starts[0].shape[-1]
        recorder.add(name, [a["input"], *starts], out[0], params, flops=None, read=[a["input"], *starts, *a["params"]])
        return out

    return rule


def _cell(name: str) -> Callable[[FileRecorder, Any, dict[str, Any]], Any]:
    def rule(recorder: FileRecorder, func: Any, a: dict[str, Any]) -> Any:
        state = a["hx"] if isinstance(a["hx"], torch.Tensor) else a["hx"][0]
        linear = torch.nn.functional.linear
        with recorder:
            gates = [linear(a["input"], a["w_ih"], a["b_ih"]), linear(state, a["w_hh"], a["b_hh"])]
        out = func(**a)
        recorder.add(name, [*gates, state], out, {}, flops=None, read=[*gates, state])
        return out

    return rule


def _rms_norm(recorder: FileRecorder, func: Any, a: dict[str, Any]) -> Any:
    out, x, weight = func(**a), a["input"], a["weight"]
    params = {"normalized_shape": tuple(a["normalized_shape"]), "affine": weight is not None}
    recorder.add("rms_norm", [x], out, params, flops=None, read=[x] if weight is None else [x, weight])
    return out


def _one_hot(recorder: FileRecorder, func: Any, a: dict[str, Any]) -> Any:
    x = a["self"]
    with recorder:
        return torch.zeros((*x.shape, a["num_classes"]), dtype=x.dtype).scatter_(-1, x.unsqueeze(-1), 1)


def _group_norm(recorder: FileRecorder, func: Any, a: dict[str, Any]) -> Any:
    """On a GPU its input is made contiguous, whatever its layout (``group_norm.cpp``)."""
    if not a["input"].is_contiguous():
        with recorder:
            a["input"] = a["input"].clone(memory_format=torch.contiguous_format)
    out = func(**a)
    recorder._record(func, (), a, out)
    return out


def _grouped_product(recorder: FileRecorder, func: Any, a: dict[str, Any]) -> Any:
    """One launch for all groups, which the CPU takes one by one."""
    left, right, out = *list(a.values())[:2], func(**a)
    params = {"m": left.shape[0], "k": left.shape[1], "n": right.shape[2], "batch": 1, "bias": a.get("bias") is not None}
    read = [tensor for tensor in a.values() if isinstance(tensor, torch.Tensor)]
    recorder.add("matmul", [left], out, params, flops=None, read=read)
    return out


def _attend(x: torch.Tensor, a: dict[str, Any]) -> torch.Tensor:
    """``_native_multi_head_attention`` of a tensor with itself, as CUDA's fused kernels do it."""
    functional, (batch, length, width), heads = torch.nn.functional, x.shape, a["num_heads"]
    if width // heads % 8:
        raise NotImplementedError("an encoder whose heads have a width that is no multiple of 8")
    parts = functional.linear(x, a["qkv_weight"], a["qkv_bias"]).chunk(3, -1)
    query, key, value = (part.view(batch, length, heads, width // heads).transpose(1, 2) for part in parts)
    mixed = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(batch, length, width)
    return functional.linear(mixed, a["proj_weight"], a["proj_bias"])


def _encoder_layer(recorder: FileRecorder, func: Any, a: dict[str, Any]) -> Any:
    """``nn.TransformerEncoderLayer`` where inference takes a short cut: what CUDA runs then."""
    functional = torch.nn.functional

    def norm(x: torch.Tensor, place: int) -> torch.Tensor:
        return functional.layer_norm(x, [a["embed_dim"]], a[f"norm_weight_{place}"], a[f"norm_bias_{place}"], a["eps"])

    def feed(x: torch.Tensor) -> torch.Tensor:
        x = functional.linear(x, a["ffn_weight_1"], a["ffn_bias_1"])
        return functional.linear(functional.gelu(x) if a["use_gelu"] else x.relu(), a["ffn_weight_2"], a["ffn_bias_2"])

    if a["mask"] is not None:
        raise NotImplementedError("a masked layer of an encoder")
    x: torch.Tensor = a["src"]
    with recorder:
        if a["norm_first"]:
            x = _attend(norm(x, 1), a) + x
            return feed(norm(x, 2)) + x
        x = norm(_attend(x, a) + x, 1)
        return norm(feed(x) + x, 2)


_RULES: dict[str, Callable[[FileRecorder, Any, dict[str, Any]], Any]] = {
    "scaled_dot_product_attention": _attention,
    "rms_norm": _rms_norm,
    "_grouped_mm": _grouped_product,
    "transformers::grouped_mm_fallback": _grouped_product,
    "native_group_norm": _group_norm,
    "one_hot": _one_hot,
    "_transformer_encoder_layer_fwd": _encoder_layer,
    **{name: _layer(name.partition("_")[0]) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{name: _cell(f"{name.partition('_')[0]}_cell") for name in ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")},
}


def launches_of(
    run: Callable[..., Any], module: Any, inputs: Sequence[Any], constants: Sequence[torch.Tensor] = ()
) -> Dispatched:
    """What is dispatched while ``run`` runs on the inputs."""
    keep_whole()
    recorder = FileRecorder(module, inputs, constants)
    trouble, result = "", None
    try:
        with torch.no_grad(), torch.jit.optimized_execution(False), recorder:
            result = run(*inputs)
    except Exception as error:
        trouble = recorder.trouble or f"{type(error).__name__}: {' '.join(str(error).split())[-200:]}"
    launches = tuple(call for call in recorder.calls if isinstance(call, KernelInvocation))
    sources = tuple(flow.source for flow in recorder.flows)
    made = tuple(tuple(tensor.shape) for tensor in all_tensors(result))
    return Dispatched(launches, tuple(recorder.looks), recorder.sorts(result), trouble, sources, made, tuple(recorder.windows))
