# SPDX-License-Identifier: Apache-2.0
"""The formats in which people keep models, each written by PyTorch as its documentation says, with default options."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from jetdvfs.tests.zoo.table import Made


def _traced(made: Made, path: Path) -> None:
    torch.jit.save(torch.jit.trace(made.module, made.inputs, check_trace=False, strict=False), path)


def _scripted(made: Made, path: Path) -> None:
    torch.jit.save(torch.jit.script(made.module), path)


def _frozen(made: Made, path: Path) -> None:
    """Frozen as it is scripted, or where it cannot be, traced."""
    try:
        script = torch.jit.script(made.module)
    except Exception:
        script = torch.jit.trace(made.module, made.inputs, check_trace=False, strict=False)
    torch.jit.save(torch.jit.freeze(script), path)


def _exported(made: Made, path: Path) -> None:
    torch.export.save(torch.export.export(made.module, made.inputs), path)


def _onnx(made: Made, path: Path) -> None:
    torch.onnx.export(made.module, made.inputs, path, dynamo=False)


def _onnx_dynamo(made: Made, path: Path) -> None:
    torch.onnx.export(made.module, made.inputs, dynamo=True, verbose=False).save(path)


#: How each is written, in the order of the table.
FORMATS: dict[str, Callable[[Made, Path], None]] = {
    "traced": _traced,
    "scripted": _scripted,
    "frozen": _frozen,
    "exported": _exported,
    "onnx": _onnx,
    "onnx-dynamo": _onnx_dynamo,
}
_ENDINGS = {"exported": ".pt2", "onnx": ".onnx", "onnx-dynamo": ".onnx"}


def write(made: Made, how: str, folder: Path) -> Path:
    """The model's file in a format.

    Raises:
        Exception: whatever the exporter raises; it then has no file of that format.
    """
    path = folder / f"model{_ENDINGS.get(how, '.pt')}"
    with torch.no_grad(), silent():
        FORMATS[how](made, path)
    return path


def warm_up() -> None:
    """Write one layer in every format: exporters import and build tables as they work for the first time.

    The newer exporter of ONNX reads the sources of all its operators at each export, to make the same table: that is kept.
    """
    registry = torch.onnx._internal.exporter._registration.ONNXRegistry
    registry.from_torchlib = staticmethod(functools.cache(registry.from_torchlib))
    layer = torch.nn.Linear(4, 4).eval().requires_grad_(False)
    with tempfile.TemporaryDirectory(prefix="jetdvfs-zoo-") as folder:
        for how in FORMATS:
            write(Made(layer, (torch.rand(2, 4),)), how, Path(folder))


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Without what exporters say while they work."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), open(os.devnull, "w") as nowhere:
        kept = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextlib.contextmanager
def as_traced() -> Iterator[None]:
    """While modules that ask are told that they are traced, though they run."""
    asked, torch.jit.is_tracing = torch.jit.is_tracing, lambda: True
    try:
        yield
    finally:
        torch.jit.is_tracing = asked


@contextlib.contextmanager
def as_exported() -> Iterator[None]:
    """While modules that ask are told that ``torch.export`` follows them, though they run."""
    flags = ("_is_exporting_flag", "_is_compiling_flag")
    before = [getattr(torch.compiler, name) for name in flags]
    for name in flags:
        setattr(torch.compiler, name, True)
    try:
        yield
    finally:
        for name, value in zip(flags, before, strict=True):
            setattr(torch.compiler, name, value)


def opened(path: Path, how: str) -> tuple[Any, list[torch.Tensor]]:
    """A file of TorchScript or of ``torch.export`` as PyTorch opens it, and the tensors that stand in its code."""
    if how == "exported":
        program = torch.export.load(path)
        found = [program.constants[name] for name in program.graph_signature.lifted_tensor_constants]
        return program.module(), [item for item in found if isinstance(item, torch.Tensor)]
    module = torch.jit.load(path)
    constants: list[torch.Tensor] = []
    with torch.jit.optimized_execution(False):  # functions are kept as they are first inlined
        graph = module.inlined_graph  # its nodes live no longer
    for node in graph.findAllNodes("prim::Constant", recurse=True):
        if node.hasAttribute("value") and node.kindOf("value") == "t":
            constants.append(node.t("value"))
    return module, constants
