# SPDX-License-Identifier: Apache-2.0
"""Runs that were recorded on an NVIDIA H200 (PyTorch 2.11, CUDA 13, ``tests/fixtures/traces/h200``) have every listed launch.

Models have zeros for weights. ``.jit`` is a sixth run, with TorchScript's fusers at work.
"""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.kernels.budget import Account, Budget
from jetdvfs.kernels.decompose import decompose
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
UNLISTED = {  # arithmetic on sizes on the GPU, and copies of an attention with a mask
    "hf_bert_cuda": {"aten::add": 1, "Memcpy DtoH (Device -> Pinned)": 1, "aten::clone": 4},
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
