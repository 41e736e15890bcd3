# SPDX-License-Identifier: Apache-2.0
"""What an ONNX file has, and what ONNX's own reference makes of it; PyTorch is not needed for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing

Array = numpy.typing.NDArray[Any]
#: ``Clip`` by a lower bound that lets nothing below zero through.
RECTIFIES = "Clip from zero"


def nodes(path: Path) -> dict[str, int]:
    """How many nodes a file has of each operator, that convert to each element type (NumPy's names), and :data:`RECTIFIES`."""
    import onnx

    found: Counter[str] = Counter()
    graph = onnx.load(path, load_external_data=False).graph
    bounds = {weight.name: weight for weight in graph.initializer if not weight.dims}
    for node in graph.node:
        found[node.op_type] += 1
        if node.op_type == "Clip" and len(node.input) > 1 and node.input[1] in bounds:
            found[RECTIFIES] += bool(onnx.numpy_helper.to_array(bounds[node.input[1]]) >= 0)
        if node.op_type == "Cast":
            code = next(item.i for item in node.attribute if item.name == "to")
            found[str(onnx.helper.tensor_dtype_to_np_dtype(code))] += 1
    return dict(found)


def fails_at(path: Path, inputs: Sequence[Array], name: str) -> str:
    """The error with which ONNX's own reference ends at a node of a file that exporters wrote wrongly; empty if it does not.

    It may end at a node before, since jetdvfs names the last one of those that it puts together.
    """
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(path)
    node = next((node for node in model.graph.node if node.name == name), None)
    if node is None:
        return ""
    given = {value.name: array for value, array in zip(model.graph.input, inputs, strict=False)}
    weights = {weight.name for weight in model.graph.initializer}
    before, after = ([wanted for wanted in names if wanted and wanted not in weights] for names in (node.input, node.output))
    for names in (before, after):
        try:
            ReferenceEvaluator(_until(model, names)).run(None, given)
        except (TypeError, ValueError) as error:
            return " ".join(str(error).split())[:200]
    return ""


def made_by(path: Path, inputs: Sequence[Array]) -> list[tuple[int, ...]]:
    """The shapes of what ONNX's own reference makes of a file."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(path)
    given = {value.name: array for value, array in zip(model.graph.input, inputs, strict=False)}
    results: Any = ReferenceEvaluator(model).run(None, given)
    return [tuple(made.shape) for made in results]


def _until(model: Any, names: Sequence[str]) -> Any:
    """A model that ends with what these names stand for."""
    import onnx

    cut, needed, kept = onnx.ModelProto(), set(names), []
    cut.CopyFrom(model)
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    del cut.graph.output[:], cut.graph.node[:]
    cut.graph.node.extend(reversed(kept))
    cut.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return cut
