# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's profiler and ONNX Runtime's recorded of real runs (``tests/fixtures/make_traces.py``) is what is listed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.kernels.budget import Account, Budget
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import BudgetExceeded, KernelsError, ModelError
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.profiles.lab.traces.arguments import FORMS
from jetdvfs.profiles.lab.traces.comparing import compare, compare_nodes, label
from jetdvfs.profiles.lab.traces.kineto import Kineto
from jetdvfs.profiles.lab.traces.onnxruntime import OnnxRuntime
from jetdvfs.profiles.lab.traces.reading import read_events
from jetdvfs.tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "fixtures" / "traces"
INPUT = [TensorSpec((1, 3, 16, 16))]


def kineto(data: bytes) -> Kineto:
    taken = Kineto()
    read_events(io.BytesIO(data), Account(Budget()), taken.take)
    return taken


def session(path: Path) -> OnnxRuntime:
    taken = OnnxRuntime()
    with path.open("rb") as stream:
        read_events(stream, Account(Budget()), taken.take)
    return taken


def test_every_launch_of_a_torchscript_file_is_in_a_run_of_pytorch_and_nothing_besides() -> None:
    network = decompose(FOLDER / "small.pt", INPUT)
    taken = kineto((FOLDER / "kineto.json").read_bytes())
    found = compare(network, taken.calls(), taken.recorder)
    assert (found.inferences, found.missing, found.others) == (2, (), {})
    assert all(took is not None and took > 0 for took in found.measured_ms)
    assert found.recorder == "PyTorch's profiler, operators on the CPU"


@pytest.mark.parametrize("name", ["extended", "blocked"])
def test_every_node_of_a_model_that_onnx_runtime_optimised_is_listed_and_timed(name: str) -> None:
    network = decompose(FOLDER / f"{name}.onnx", INPUT, by_node=True)
    taken = session(FOLDER / f"{name}.json")
    found = compare_nodes(network, taken.nodes, taken.recorder)
    assert (found.inferences, found.missing, list(found.others)) == (2, (), ["Flatten"])
    kinds = {label(network.launches, place, nodes=True) for place in range(len(network.launches))}
    assert {"conv2d+relu", "gelu", "layer_norm", "softmax"} <= kinds
    assert found.recorder == "ONNX Runtime, CPUExecutionProvider"


def on_gpu() -> dict[str, Any]:
    """A run on a GPU in Kineto's form: operators, and kernels that are joined to them by their External id."""

    def operator(name: str, ts: float, dur: float, link: int, *dims: list[int]) -> dict[str, Any]:
        args = {"External id": link, "Input Dims": [*dims, []]}
        return {"ph": "X", "cat": "cpu_op", "name": f"aten::{name}", "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}

    def kernel(name: str, ts: float, dur: float, link: int) -> dict[str, Any]:
        return {
            "ph": "X",
            "cat": "kernel",
            "name": name,
            "pid": 0,
            "tid": 7,
            "ts": ts,
            "dur": dur,
            "args": {"External id": link},
        }

    operators = [
        operator("conv2d", 0, 50, 1, [1, 3, 16, 16], [12, 3, 3, 3]),
        operator("convolution", 5, 40, 2, [1, 3, 16, 16]),
        operator("cudnn_convolution", 10, 20, 3, [1, 3, 16, 16]),
        operator("add_", 35, 5, 4, [1, 12, 16, 16], [1, 12, 1, 1]),
        operator("relu", 60, 10, 5, [1, 12, 16, 16]),
        operator("clamp_min", 62, 5, 6, [1, 12, 16, 16]),
        operator("add", 80, 10, 7, [1, 12, 16, 16], [1, 12, 16, 16]),
    ]
    kernels = [
        kernel("implicit_convolve_sgemm", 100, 300, 3),
        kernel("elementwise_kernel", 400, 20, 4),
        kernel("vectorized_elementwise_kernel", 430, 30, 6),
        kernel("somebody_elses", 500, 70, 99),
    ]
    return {"schemaVersion": 1, "traceEvents": [*kernels, *operators, {"ph": "i", "name": "mark", "ts": 1}]}


def test_kernels_of_a_gpu_count_for_the_operator_that_launched_them() -> None:
    calls = kineto(json.dumps(on_gpu()).encode()).calls()
    # The sum launched nothing.
    assert [(call.kind, call.name) for call in calls] == [
        ("conv2d", "aten::conv2d"),
        ("relu", "aten::relu"),
        ("", "somebody_elses"),
    ]
    assert [call.took_ms for call in calls] == pytest.approx([0.32, 0.03, 0.07])


def test_what_waits_on_the_stack_of_torchscripts_interpreter_is_not_an_operators_own() -> None:
    """Shapes as torch.profiler records them from a scripted model's second run on."""
    image, gate = [1, 16, 16, 16], [1, 4, 1, 1]
    dims = {
        "aten::_convolution": [image, gate, [16, 4, 1, 1], [16], *[[]] * 10],
        "aten::sigmoid": [image, [1, 16, 1, 1]],
        "aten::cat": [[1, 5], [1, 256, 8], [[1, 256, 16], [1, 256, 16]], []],
        "aten::mean": [image, gate, [], [], []],
        "aten::relu": [gate],
    }
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "ts": place, "dur": 0.5, "args": {"Input Dims": own}}
        for place, (name, own) in enumerate(dims.items())
    ]
    assert [(call.kind, call.shapes) for call in kineto(json.dumps(events).encode()).calls()] == [
        ("conv2d", ((1, 4, 1, 1), (16, 4, 1, 1), (16,))),
        ("sigmoid", ((1, 16, 1, 1),)),
        ("cat", ((1, 256, 16), (1, 256, 16))),
        ("mean", ((1, 4, 1, 1),)),
        ("relu", ((1, 4, 1, 1),)),
    ]


def test_operators_take_the_arguments_that_pytorch_says() -> None:
    torch = pytest.importorskip("torch", reason="its schemas are what the table is held against; it is not installed")
    schemas: dict[str, set[str]] = {}
    letters = {"Tensor": "T", "number": "n"}
    for schema in torch._C._jit_get_all_schemas():
        types = [(str(argument.type), argument.is_out) for argument in schema.arguments]
        form = "".join("O" if out else next((letters[name] for name in letters if name in of), "-") for of, out in types)
        schemas.setdefault(schema.name.removeprefix("aten::").rstrip("_"), set()).add(form)

    def is_one(form: str, schema: str) -> bool:
        """True if a form fits a schema; a number may take the place of a possible tensor."""
        fits = {"T": "T", "t": "Tn-", "-": "n-", "O": "O"}
        return len(form) == len(schema) and all(given in fits[told] for told, given in zip(form, schema, strict=True))

    asked = ("_convolution", "conv2d", "linear", "addmm", "bmm", "cat", "add", "batch_norm", "layer_norm", "relu", "lstm")
    wrong = {
        (name, form)
        for name, forms in FORMS.items()
        if name in schemas or name in asked
        for form in forms
        if not any(is_one(form, schema) for schema in schemas[name])
    }
    assert wrong == set() and len(FORMS) > 250


def test_a_trace_that_ends_early_or_is_none_is_refused_in_one_line_wherever_that_is() -> None:
    whole = (FOLDER / "kineto.json").read_bytes()
    for end in range(0, len(whole) - 2, 1009):
        with pytest.raises(KernelsError) as refused:
            kineto(whole[:end])
        assert str(refused.value).count("\n") == 0 and len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"traceEvents": 3}',
        b'{"traceEvents": [{"ph": "X", "name": "a", "ts": "now", "dur": 1}]}',
        b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": -1}]}',
        b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": Infinity}]}',
        b'{"traceEvents": [{"ph": "X", "name": 4, "ts": 1, "dur": 1}]}',
        b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "args": 4}]}',
        b'{"traceEvents": [{"ph": "X", "name": "a", "cat": ["kernel"], "ts": 1, "dur": 1}]}',
        b"[" * 100_000,
        b'{"traceEvents": ' + b"[" * 100_000,
        b"\xff\xfe{}",
    ],
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(ModelError):
        kineto(data)


def test_shapes_that_are_none_are_refused() -> None:
    made = on_gpu()
    for dims in (3, ["x"], [[-1]], [[[1, "y"]]], [[True, 2.5]]):
        made["traceEvents"][4]["args"]["Input Dims"] = dims
        with pytest.raises(ModelError, match="Input Dims"):
            kineto(json.dumps(made).encode()).calls()


def test_a_trace_of_too_many_events_is_refused() -> None:
    with pytest.raises(BudgetExceeded, match="record fewer inferences"):
        read_events(io.BytesIO(b"[" + b"{}," * 1000 + b"{}]"), Account(Budget(calls=999)), lambda event: None)
