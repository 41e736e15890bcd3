# SPDX-License-Identifier: Apache-2.0
"""Decomposition of a model's file, for given input shapes, into the kernel invocations of one forward pass.

Formats: TorchScript, ``torch.export``, ONNX, TensorRT's engine layers, and language models as GGUF or safetensors.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from msgspec.structs import replace

from .boundary import Boundary
from .budget import Account, Budget
from .declared_inputs import OpenSizes, resolved
from .engine.layers import is_engine
from .engine.program import read_engine
from .errors import BudgetExceeded, KernelsError, ModelError, ShapeError
from .exported_program import GRAPH_ENTRIES, ExportedProgram
from .foreign_formats import refuse_foreign, refuse_foreign_archive
from .language.folder import model_file, nonblocking
from .language.gguf import MAGIC, read_gguf
from .language.launches import network_of
from .language.model import of_gguf
from .language.safetensors import is_safetensors, of_safetensors
from .network import DTYPE_BYTES, Network, TensorSpec
from .onnx.program import OnnxProgram, is_onnx
from .operators.host.arrays import array
from .operators.recorder import DataDependent, Recorder
from .operators.unread import with_unread
from .operators.values import Number, ScriptObject, Storage, Tensor, tensors_in
from .optimizing import optimize
from .torchscript.archive import Archive
from .torchscript.arguments import arguments
from .torchscript.interpreter import Interpreter
from .torchscript.reach import mentioned
from .torchscript.source import NEWEST, SourceTree, parse_version
from .torchscript.unpickle import decode, unpickle
from .torchscript.watching import flow_of

__all__ = ["decompose"]

_TRACED = "traced_inputs.pkl"


def decompose(
    source: str | os.PathLike[str] | BinaryIO,
    inputs: Sequence[TensorSpec] = (),
    *,
    name: str | None = None,
    method: str = "forward",
    optimized: bool = False,
    by_node: bool = False,
    budget: Budget = Budget(),  # noqa: B008  (immutable)
) -> Network:
    """List the kernel invocations and host-only calls of one call of a model's method, without executing the file.

    Args:
        source: path or open file (seekable; it stays open): output of ``torch.jit.save``, ``torch.export.save``,
            ``torch.onnx.export`` or ``trtexec --exportLayerInfo``; GGUF; safetensors by path, next to ``config.json``.
        inputs: in order or by name (:mod:`.inputs`); by default as declared or traced; ``prefill=N:int`` or ``decode=N:int``
            for a language model (:mod:`.language.launches`).
        method: of a TorchScript model.
        optimized: list launches after the JIT's passes (:mod:`.optimizing`).
        by_node: scopes of an ONNX file are node names, as in runtimes, instead of modules.

    Raises:
        ModelError: the format is unknown, or the file damaged or with forbidden names.
        UnsupportedOperator: it calls an operator without a shape rule.
        ShapeError: it does not run on such inputs.
        BudgetExceeded: reading it would exceed the budget.

    Examples:
        >>> from jetdvfs.kernels.inputs import parse_input
        >>> network = decompose("model.pt", [parse_input("1x3x224x224")])
        >>> print(network.launches[0].kind, network.launches[0].output)
        conv2d (1, 64, 112, 112)
    """
    if isinstance(source, (str, os.PathLike)):
        path = model_file(Path(source))
        try:
            with open(path, "rb", opener=nonblocking) as stream, _explained(inputs):
                return _answered(stream, inputs, name or path.stem, method, optimized, budget, path, by_node=by_node)
        except OSError as error:
            raise ModelError(f"{path}: {error.strerror or error}") from error
        except KernelsError as error:
            raise type(error)(f"{path}: {error}") from error
    with _explained(inputs):
        return _answered(source, inputs, name or "network", method, optimized, budget, by_node=by_node)


def _answered(source: BinaryIO, inputs: Sequence[TensorSpec], *options: Any, by_node: bool) -> Network:
    try:
        return _decompose(source, inputs, *options, by_node=by_node)
    except OpenSizes as error:
        for specs in error.examples():
            try:
                _decompose(source, specs, *options, by_node=by_node)
            except ShapeError:
                continue
            except ModelError:
                pass  # another cause than the sizes
            shown = " ".join(f"--input {spec}" for spec in specs)
            raise ShapeError(f"{error}, for instance {shown}") from error
        raise ShapeError(str(error)) from error


@contextmanager
def _explained(inputs: Sequence[TensorSpec]) -> Iterator[None]:
    try:
        with _guarded():
            yield
    except ShapeError as error:
        if images := [spec for spec in inputs if _is_image(spec.shape)]:
            raise ShapeError(f"{error}; batch missing? 1x{images[0]}") from error
        raise


def says_its_inputs(path: Path) -> bool:
    """True of an engine's layers and a language model, which need no inputs; False of an unreadable file."""
    try:
        with open(path, "rb", opener=nonblocking) as stream:
            return stream.seekable() and (is_engine(stream) or _is_gguf(stream) or is_safetensors(stream))
    except OSError:
        return False


def refuse_other_kinds(path: Path) -> None:
    """Raise ModelError for a file that starts unlike any supported model; the text names its kind and the way out."""
    try:
        with open(path, "rb", opener=nonblocking) as stream:
            refuse_foreign(stream)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from error
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _decompose(
    source: BinaryIO,
    inputs: Sequence[TensorSpec],
    name: str,
    method: str,
    optimized: bool,
    budget: Budget,
    path: Path | None = None,
    *,
    by_node: bool = False,
) -> Network:
    account = Account(budget)
    refuse_foreign(source)
    if is_engine(source):
        _only_forward(method)
        return read_engine(source, account, inputs, name)
    if _is_gguf(source):
        _only_forward(method)
        return network_of(
            of_gguf(read_gguf(source, account, path and path.parent, path.name if path else "")), inputs, account, name
        )
    if is_safetensors(source):
        _only_forward(method)
        model = of_safetensors(source, path and path.parent, path.name if path else "", account)
        return network_of(model, inputs, account, name)
    if is_onnx(source):
        _only_forward(method)
        return _replay(OnnxProgram(source, account, by_node=by_node), account, inputs, name)
    archive = Archive(source, budget)
    if any(entry in archive for entry in GRAPH_ENTRIES):
        _only_forward(method)
        return _replay(ExportedProgram(archive, account), account, inputs, name)
    if "data.pkl" not in archive or not any(entry.startswith("code/") for entry in archive.names):
        small = "data.pkl" in archive and archive.size("data.pkl") <= budget.entry_bytes
        refuse_foreign_archive(archive.names, archive.read("data.pkl") if small else None)
    return _OpenArchive(archive, account).run(inputs, name, method, optimized)


def _is_gguf(stream: BinaryIO) -> bool:
    stream.seek(0)
    return stream.read(len(MAGIC)) == MAGIC


def _is_image(shape: Sequence[int]) -> bool:
    return len(shape) == 3 and shape[0] in (1, 3, 4) and max(shape[1:]) < 4 * min(shape[1:])


def _only_forward(method: str) -> None:
    if method != "forward":
        raise ModelError(f"the file holds one graph, without a method {method!r:.80}; valid: forward")


def _replay(program: ExportedProgram | OnnxProgram, account: Account, inputs: Sequence[TensorSpec], name: str) -> Network:
    recorder = Recorder(account)
    boundary = None
    inputs = resolved(inputs, program.declared())
    try:
        program.run(recorder, [(spec.name, _input(recorder, spec)) for spec in inputs])
    except DataDependent as error:
        boundary = _boundary(error, f"{program.position}, after {program.done:.0%} of the nodes")
    except ModelError as error:
        raise type(error)(_located(error, program.position, recorder.scope)) from error
    network = _recorded(recorder, name, inputs, boundary)
    return with_unread(network, recorder.weights, program.mentioned)


def _recorded(recorder: Recorder, name: str, inputs: Sequence[TensorSpec], boundary: Boundary | None) -> Network:
    return Network(
        name,
        tuple(inputs),
        tuple(recorder.calls),
        boundary,
        tuple(recorder.reads),
        operators=tuple(recorder.operators),
        views=tuple(recorder.views),
    )


@contextmanager
def _guarded() -> Iterator[None]:
    """Turn the interpreter's own limits into errors of the budget.

    The cyclic collector pauses meanwhile: it doubles the time and finds nothing.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    except RecursionError as error:
        raise BudgetExceeded("the model's code is nested too deeply to be followed") from error
    except MemoryError as error:
        raise BudgetExceeded("the model needs more memory than the reader has") from error
    finally:
        if paused:
            gc.enable()


class _OpenArchive:
    def __init__(self, archive: Archive, account: Account) -> None:
        self._archive = archive
        self._account = account
        if "data.pkl" not in archive:
            raise ModelError("not a TorchScript file: the archive has no data.pkl; expected a file of torch.jit.save")
        entry = next((name for name in (".data/version", "version") if name in archive), None)
        self._version = NEWEST if entry is None else parse_version(archive.read(entry))
        self._big_endian = "byteorder" in archive and archive.read("byteorder").strip() == b"big"
        self._root = self._pickle("data.pkl", "data")
        constants = self._pickle("constants.pkl", "constants") if "constants.pkl" in archive else ()
        if not isinstance(self._root, ScriptObject):
            raise ModelError("not a TorchScript file: data.pkl holds no module")
        self._constants: Sequence[Any] = constants if isinstance(constants, (tuple, list)) else ()
        self._name_modules()

    def _pickle(self, entry: str, folder: str) -> Any:
        def load(key: str, dtype: str, offset: int, count: int) -> list[Number]:
            path = f"{folder}/{key}"
            if path not in self._archive or self._archive.size(path) > 1 << 16:
                raise DataDependent("the contents of a large tensor steer the model")
            size = DTYPE_BYTES[dtype]
            data = self._archive.read(path)[offset * size : (offset + count) * size]
            return decode(data, dtype, self._big_endian)

        return unpickle(self._archive.read(entry), entry, self._account, load)

    def _name_modules(self) -> None:
        self._root.path = ""
        self._weights = {f"CONSTANTS.c{i}": value for i, value in enumerate(self._constants) if isinstance(value, Tensor)}
        waiting = [self._root]
        seen = 1
        for module in waiting:
            for attribute, value in module.attributes.items():
                if type(value) is Tensor:
                    self._weights[f"{module.path}.{attribute}" if module.path else attribute] = value
                elif isinstance(value, ScriptObject) and value.path is None:
                    value.path = f"{module.path}.{attribute}" if module.path else attribute
                    if len(value.path) > 1024:
                        raise BudgetExceeded("modules are nested too deeply")
                    seen += 1
                    if seen > self._account.budget.tree_objects:
                        raise BudgetExceeded(f"the model has more than {self._account.budget.tree_objects} modules")
                    waiting.append(value)

    def _as_traced(self, inputs: Sequence[TensorSpec], method: str) -> Sequence[TensorSpec]:
        """The inputs, or the traced ones; only the traced floating-point types, if no type was given."""
        try:
            kept = self._pickle(_TRACED, "") if _TRACED in self._archive else None
        except ModelError:
            kept = None
        values = kept.get(method) if isinstance(kept, dict) else None
        traced = [TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors_in(values)]
        types = [spec.dtype if "float" in spec.dtype else "float32" for spec in traced]
        if len(types) != len(inputs) or any(spec.name for spec in inputs):
            types = ["float32"] * len(inputs)
        given = [spec if spec.typed else replace(spec, dtype=own, typed=True) for spec, own in zip(inputs, types, strict=True)]
        return given or traced

    def run(self, inputs: Sequence[TensorSpec], name: str, method: str, optimized: bool) -> Network:
        recorder = Recorder(self._account)
        recorder.tracking.comparing = optimized
        if not inputs or not all(spec.typed for spec in inputs):
            inputs = self._as_traced(inputs, method)
        sources = SourceTree(self._archive, self._account)
        interpreter = Interpreter(sources, self._constants, recorder, self._version)
        boundary = None
        result: Any = None
        try:
            values = [(spec.name, _input(recorder, spec)) for spec in inputs]
            method = interpreter.overload(self._root, method)
            given = arguments(method, interpreter.signature(self._root, method), values)
            result = interpreter.call_method(self._root, method, (), given)
        except DataDependent as error:
            boundary = _boundary(error, interpreter.failed_at)
        except ModelError as error:
            raise type(error)(_located(error, interpreter.failed_at, recorder.scope)) from error
        network = _recorded(recorder, name, inputs, boundary)
        if optimized:
            network = optimize(network, flow_of(recorder.tracking, result))
        return with_unread(network, self._weights, lambda: mentioned(self._root, method, sources))


def _input(recorder: Recorder, spec: TensorSpec) -> Any:
    if spec.is_plain:
        return spec.value[0] if spec.value else None
    if spec.dtype not in DTYPE_BYTES:
        raise ShapeError(f"input of element type {spec.dtype!r:.40}; valid: {', '.join(DTYPE_BYTES)}")
    if spec.value is not None:
        if not all(isinstance(item, (bool, int, float)) for item in spec.value):
            raise ShapeError(f"input {spec}: a tensor holds numbers")
        return array(spec.shape, spec.dtype, [item for item in spec.value if not isinstance(item, str)])
    return recorder.tensor(spec.shape, spec.dtype, of=Tensor((), memory=Storage(outside=True)))


def _boundary(error: DataDependent, place: str) -> Boundary:
    # Outside operators, only constants of the code need values.
    where = _one_line(place)[:600] or "the start of the model"
    return Boundary(error.operator or "prim::Constant", where, _one_line(str(error)))


def _located(error: ModelError, where: str, scope: str) -> str:
    text = _one_line(str(error))[:600]
    if not where:
        return text
    return f"{text} (at {_one_line(where)}{f', in {_one_line(scope)}' if scope else ''})"


def _one_line(text: str) -> str:
    return " ".join(text.split())
