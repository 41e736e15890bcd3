# SPDX-License-Identifier: Apache-2.0
"""Runs that were recorded on an NVIDIA H200 (PyTorch 2.11, CUDA 13, ``tests/fixtures/traces/h200``) have every listed launch.

Models have zeros for weights. ``.jit`` is a sixth run, with TorchScript's fusers at work.
"""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.kernels.budget import Account, Budget
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.fusion import POINTWISE_GROUP, fuse
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.profiles.lab.traces.comparing import compare
from jetdvfs.profiles.lab.traces.kineto import Kineto
from jetdvfs.profiles.lab.traces.reading import read_events
from jetdvfs.tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "fixtures" / "traces" / "h200"
INPUTS = {
    "hf_bert_cuda": "1x128:int64", "own_audio": "1x1x16000", "own_espcn": "1x3x96x96", "own_unet": "1x3x128x128",
    "own_unet_cl": "1x3x128x128",
}  # fmt: skip
UNLISTED = {  # arithmetic on sizes on the GPU
    "hf_bert_cuda": {"aten::add": 1, "Memcpy DtoH (Device -> Pinned)": 1},
    "tv_vit_b_16": {"aten::floor_divide": 2, "aten::mul": 1, "Memcpy DtoH (Device -> Pinned)": 1},
}


def kineto(data: bytes) -> Kineto:
    taken = Kineto()
    read_events(io.BytesIO(data), Account(Budget()), taken.take)
    return taken


@pytest.mark.parametrize("trace", sorted(FOLDER.glob("*.json.gz")), ids=lambda path: path.name)
def test_every_launch_is_in_the_recorded_run_and_every_kernels_time_counts_once(trace: Path) -> None:
    name, data = trace.name.partition(".")[0], gzip.decompress(trace.read_bytes())
    network = decompose(FOLDER / f"{name}.pt", [parse_input(INPUTS.get(name, "1x3x224x224"))])
    taken = kineto(data)
    found = compare(network, taken.calls(), taken.recorder)
    assert found.inferences == 1 and found.missing == ()
    assert {called: count for called, (count, _) in found.others.items()} == UNLISTED.get(name, {})
    on_gpu = ("kernel", "gpu_memcpy", "gpu_memset")
    kernels_us = [event["dur"] for event in json.loads(data)["traceEvents"] if event.get("cat") in on_gpu]
    matched_ms = sum(took for took in found.measured_ms if took is not None)
    assert matched_ms + sum(took for _, took in found.others.values()) == pytest.approx(sum(kernels_us) / 1e3)


@pytest.mark.parametrize("trace", sorted(FOLDER.glob("*.jit.json.gz")), ids=lambda path: path.name)
def test_the_fused_view_has_the_groups_that_torchscript_made(trace: Path) -> None:
    name = trace.name.partition(".")[0]
    network = decompose(FOLDER / f"{name}.pt", [parse_input("1x3x224x224")], optimized=True)
    groups = Counter(f"fused_{launch.params['kinds']}" for launch in fuse(network).launches if launch.kind == POINTWISE_GROUP)
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    made = Counter(event["name"] for event in events if event.get("cat") == "cpu_op" and event["name"].startswith("fused_"))
    assert Counter({group.replace("+", "_"): count for group, count in groups.items()}) == made
    assert sum(made.values()) == {"tv_mobilenet_v2": 10, "tv_resnet18": 0}[name]


def launch(kind: str, *inputs: tuple[int, ...], output: tuple[int, ...] = (1,)) -> KernelInvocation:
    return KernelInvocation(kind, "", inputs, output, "float32")


def operator(name: str, ts: float, dur: float, dims: list[Any], values: list[str] | None = None) -> dict[str, Any]:
    args = {"External id": int(ts), "Input Dims": dims, **({"Concrete Inputs": values} if values else {})}
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "args": args}


def compared(launches: list[KernelInvocation], *events: dict[str, Any]) -> tuple[tuple[float | None, ...], dict[str, Any]]:
    taken = kineto(json.dumps(list(events)).encode())
    found = compare(Network("made", (), tuple(launches)), taken.calls(), taken.recorder)
    return found.measured_ms, found.others


def test_a_copy_inside_of_a_call_is_the_listed_one_and_its_time_is_taken_off_the_calls() -> None:
    conv = operator("aten::conv2d", 0, 50, [[1, 3, 8, 8], [4, 3, 3, 3]])
    copy = operator("aten::clone", 10, 20, [[1, 3, 8, 8], []])
    measured, others = compared([launch("clone", (1, 3, 8, 8)), launch("conv2d", (1, 3, 8, 8))], conv, copy)
    assert list(measured) == pytest.approx([0.02, 0.03]) and not others


def test_a_copy_inside_that_is_not_listed_is_part_of_the_call() -> None:
    conv = operator("aten::conv2d", 0, 50, [[1, 3, 8, 8], [4, 3, 3, 3]])
    measured, others = compared([launch("conv2d", (1, 3, 8, 8))], conv, operator("aten::clone", 10, 20, [[1, 3, 8, 8], []]))
    assert list(measured) == pytest.approx([0.05]) and not others


def test_a_convolution_is_transposed_if_its_arguments_say_so() -> None:
    dims = [[1, 4, 8, 8], [4, 4, 2, 2], [4], *[[]] * 10]
    values = ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1", "False", "False", "True", "True"]
    made = operator("aten::_convolution", 0, 50, dims, values)
    assert compared([launch("conv_transpose2d", (1, 4, 8, 8))], made)[0] == (0.05,)
    values[6] = "False"
    assert compared([launch("conv2d", (1, 4, 8, 8))], made)[0] == (0.05,)


def test_tensors_of_a_long_list_are_not_recorded_so_its_call_is_found_by_kind() -> None:
    cat = operator("aten::cat", 10, 5, [[], []])
    relu = operator("aten::relu", 0, 5, [[7]])
    assert None not in compared([launch("relu", (7,)), launch("cat", *[(1, 2)] * 31)], relu, cat)[0]


def test_an_embedding_reads_its_weight_first_and_a_range_reads_nothing() -> None:
    embedding = operator("aten::embedding", 0, 5, [[1, 9, 9], [30000, 64], [1, 12], [], [], []])
    made = operator("aten::arange", 10, 5, [[1, 12], [], [], [], [], []])
    assert None not in compared([launch("embedding", (1, 12)), launch("arange", output=(12,))], embedding, made)[0]


def test_indices_are_not_recorded_so_their_call_is_found_by_kind() -> None:
    index = operator("aten::index", 10, 5, [[], [3, 5], [169, 3], []])
    zeros = operator("aten::new_zeros", 20, 5, [[], [9, 49], [], [], [], [], []])
    launches = [launch("relu", (7,)), launch("index", (169, 3), (2401,)), launch("zeros", output=(21, 21))]
    assert None not in compared(launches, operator("aten::relu", 0, 5, [[7]]), index, zeros)[0]


def test_a_fused_kernel_is_all_that_its_name_says() -> None:
    fused = {"ph": "X", "cat": "cpu_op", "name": "fused_batch_norm_add", "ts": 10, "dur": 4, "args": {}}
    launches = [launch("relu", (7,)), launch("batch_norm", (1, 3, 8, 8)), launch("add", (1, 3, 8, 8), (1, 3, 8, 8))]
    assert compared(launches, operator("aten::relu", 0, 5, [[7]]), fused)[0] == (0.005, 0.004, 0.0)


def test_a_call_of_a_known_size_is_never_a_launch_of_another() -> None:
    small, large = operator("aten::relu", 0, 5, [[7]]), operator("aten::relu", 10, 5, [[8]])
    measured, others = compared([launch("relu", (7,)), launch("relu", (9,))], small, large)
    assert measured[1] is None and list(others) == ["aten::relu"]


def test_casts_within_an_operators_implementation_are_part_of_it() -> None:
    """Half-precision attention with a mask that fused kernels refuse; autocast's casts are direct."""
    shape = [1, 8, 16, 64]
    events = [
        operator("aten::scaled_dot_product_attention", 0, 50, [*[shape] * 3, *[[]] * 5]),
        operator("aten::_scaled_dot_product_attention_math", 5, 40, [*[shape] * 3, *[[]] * 6]),
        operator("aten::to", 10, 5, [shape, *[[]] * 4]),
        operator("aten::_to_copy", 11, 3, [shape, *[[]] * 6]),
    ]
    for event in events:
        event["args"]["Input type"] = ["c10::Half" if dims else "" for dims in event["args"]["Input Dims"]]
    network = [launch("attention", *[(1, 8, 16, 64)] * 3)]
    assert compared(network, *events)[1] == {}
    assert list(compared(network, events[0], *events[2:])[1]) == ["aten::_to_copy"]


def on_stack(name: str, ts: float, dims: list[Any], types: list[str]) -> dict[str, Any]:
    made = operator(name, ts, 5, dims)
    made["args"]["Input type"] = types
    return made


def test_an_operand_of_one_element_is_a_tensor_or_a_number() -> None:
    mask = on_stack("aten::bitwise_and", 0, [[], [1, 1, 8, 8]], ["bool", "bool"])
    assert None not in compared([launch("bitwise_and", (), (1, 1, 8, 8))], mask)[0]
    assert None not in compared([launch("bitwise_and_scalar", (1, 1, 8, 8))], mask)[0]


def test_a_number_may_be_an_operators_first_argument() -> None:
    power = on_stack("aten::pow", 0, [[1, 784, 64], [], [32]], ["float", "Scalar", "float"])
    assert None not in compared([launch("pow_scalar", (32,))], power)[0]


def test_an_overload_whose_last_argument_is_no_tensor_has_no_tensor_there() -> None:
    quotient = on_stack("aten::div", 0, [[1, 784, 64], [1, 28, 28, 1], [32]], ["float"] * 3)
    floor = on_stack("aten::div", 9, [[1, 784, 64], [32], [], []], ["float", "float", "long int", ""])
    launches = [launch("div", (1, 28, 28, 1), (32,)), launch("div_scalar", (32,))]
    assert None not in compared(launches, quotient, floor)[0]


def test_the_least_of_two_tensors_is_not_that_of_one() -> None:
    outer = on_stack("aten::min", 0, [[8, 8]] * 3, ["bool", "long int", "long int"])
    inner = on_stack("aten::minimum", 1, [[8, 8]] * 2, ["long int"] * 2) | {"dur": 3}
    assert None not in compared([launch("minimum", (8, 8), (8, 8))], outer, inner)[0]
    assert None not in compared([launch("min", (8, 8))], outer)[0]


def test_a_weight_may_be_the_first_operand() -> None:
    product = on_stack("aten::matmul", 0, [[], [1, 32, 1], [1, 1, 128]], ["", "float", "float"])
    assert None not in compared([launch("matmul", (1, 1, 128))], product)[0]
    assert None in compared([launch("matmul", (1, 1, 129)), launch("matmul", (1, 32, 1))], product)[0]
