# SPDX-License-Identifier: Apache-2.0
"""The node tests of the ``onnx`` package: shapes and element types as its evaluator makes them, or a refusal that names why."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import KernelsError
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.kernels.onnx.model import TYPES

np = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx", reason="its node tests are the oracle of shapes; it is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.backend.test.case import node as node_tests  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::Warning")

#: Element types that are followed as another of as many bits.
SAME = {"uint16": "int16", "uint32": "int32", "uint64": "int64", "quint8": "uint8", "qint8": "int8", "qint32": "int32"}
#: Operators that train or work on text; a refusal of any other counts.
APART = ("Loss", "Adagrad", "Adam", "Momentum", "TfIdf", "String", "training", "element type 'object'", "element type 8 ")
MOST_REFUSED = 40
#: Operators whose shapes their data decide: lists end there.
ENDS = {"onnx::NonMaxSuppression", "onnx::Unique", "onnx::ImageDecoder"}


@cache
def cases() -> Sequence[Any]:
    return [case for case in node_tests.collect_testcases(None) if case.model is not None and case.data_sets]


def _is_packed(value: Any) -> bool:
    return isinstance(value, TensorProto) or str(value.dtype).startswith(("float8", "float4", "int4", "uint4", "int2", "uint2"))


def shown(model: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bytes:
    """A model that also launches a negation of each output's shape and element type, the last of its launches."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, last = made.graph, []
    for item, value in zip(model.graph.input, inputs, strict=False):
        if _is_packed(value):  # no input of a network has such a type
            constant = onnx.TensorProto()
            constant.CopyFrom(value if isinstance(value, TensorProto) else numpy_helper.from_array(value))
            constant.name = item.name
            graph.initializer.append(constant)
    graph.input.append(helper.make_tensor_value_info("probe", TensorProto.FLOAT, []))
    names = [output.name for output in graph.output]
    del graph.output[:]
    for name, value in zip(names, outputs, strict=True):
        if isinstance(value, list):
            continue
        graph.node.append(helper.make_node("Shape", [name], [f"{name} shape"]))
        graph.node.append(helper.make_node("Expand", ["probe", f"{name} shape"], [f"{name} wide"]))
        graph.node.append(helper.make_node("CastLike", [f"{name} wide", name], [f"{name} like"]))
        last.append(helper.make_node("Neg", [f"{name} like"], [f"{name} shown"]))
        graph.output.append(helper.make_tensor_value_info(f"{name} shown", TensorProto.FLOAT, None))
    graph.node.extend(last)
    return bytes(made.SerializeToString())


def specs(model: Any, inputs: Sequence[Any], is_known: Callable[[int], bool]) -> Iterator[TensorSpec]:
    for place, (item, value) in enumerate(zip(model.graph.input, inputs, strict=False)):
        if not _is_packed(value):
            dtype = str(value.dtype)
            few = value.size <= 64 and (value.dtype.kind in "iufb" or dtype == "bfloat16") and is_known(place)
            numbers = tuple(float(x) if "float" in dtype else x.item() for x in value.ravel()) if few else None
            yield TensorSpec(value.shape, SAME.get(dtype, dtype), item.name, numbers)
    yield TensorSpec((), "float32", "probe")


def described(value: Any) -> tuple[tuple[int, ...], str]:
    if isinstance(value, TensorProto):
        return tuple(value.dims), TYPES[value.data_type]
    return value.shape, SAME.get(str(value.dtype), str(value.dtype))


#: Which inputs are given with their numbers: none, all but the first, all.
KNOWN: tuple[Callable[[int], bool], ...] = (lambda place: False, lambda place: place > 0, lambda place: True)


def listed(case: Any) -> tuple[bool, str]:
    """True if a case is listed with the shapes and types of its outputs; else the refusal, or the operator it ends at."""
    inputs, outputs = ([np.asarray(x) if isinstance(x, np.generic) else x for x in part] for part in case.data_sets[0])
    wanted = [described(value) for value in outputs if not isinstance(value, list)]
    model, refusal, right = shown(case.model, inputs, outputs), "", False
    for is_known in KNOWN:
        try:
            made = decompose(io.BytesIO(model), list(specs(case.model, inputs, is_known)))
        except KernelsError as error:
            refusal = str(error)
            continue
        if made.boundary is not None:
            refusal = str(made.boundary)
            continue
        last = made.launches[len(made.launches) - len(wanted) :]
        assert [(launch.output, SAME.get(launch.dtype, launch.dtype)) for launch in last] == wanted, case.name
        right = True
    return right, refusal


def can_be_given(case: Any) -> bool:
    """False for sequences and optional values, which no network is given."""
    return all(isinstance(value, (np.ndarray, np.generic, TensorProto)) for value in case.data_sets[0][0])


@pytest.mark.slow
def test_every_node_test_is_listed_as_it_runs_or_refused_by_name() -> None:
    refused: dict[str, str] = {}
    ends = set()
    for case in filter(can_be_given, cases()):
        right, refusal = listed(case)
        assert right or refusal
        if refusal.startswith("decomposed up to ") and not right:
            ends.add(refusal.split()[3])
        elif not right and not any(word in refusal for word in APART):
            refused[case.name] = refusal
    print(*(f"{name}: {why}" for name, why in refused.items()), sep="\n")
    assert len(refused) <= MOST_REFUSED
    assert ends == ENDS
