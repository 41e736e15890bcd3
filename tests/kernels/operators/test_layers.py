# SPDX-License-Identifier: Apache-2.0
"""Recurrent, attention and image layers, control flow and containers, held against PyTorch's dispatcher."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import ShapeError
from jetdvfs.kernels.inputs import parse_input

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of decomposition; it is not installed")

from jetdvfs.tests.support.models import layers, oracle  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]

CASES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "lstm": (lambda: layers.Recurrent("LSTM"), ["3x7x64"]),
    "gru": (lambda: layers.Recurrent("GRU"), ["3x7x64"]),
    "rnn": (lambda: layers.Recurrent("RNN"), ["3x7x64"]),
    "language": (layers.Language, ["9x2:int64"]),
    "encoder": (layers.Encoder, ["2x10:int64"]),
    "encoder, norm first": (lambda: layers.Encoder(True, True, "gelu"), ["2x10:int64"]),
    "encoder, time first": (lambda: layers.Encoder(batch_first=False), ["10x2:int64"]),
    "transformer": (layers.Translator, ["2x10x64", "2x6x64"]),
    "cells": (layers.Cells, ["2x5x16"]),
    "copied weights": (layers.Copied, ["2x5x8"]),
    "images": (layers.Images, ["2x8x10x10"]),
}


def build(make: Callable[[], Any], *, trainable: bool = False) -> Any:
    module = make().eval()
    for parameter in module.parameters():
        parameter.requires_grad_(trainable)
    return module


# Tracing recurrent cells on a CPU writes down the steps that the CPU takes for one, which a GPU does not.
WAYS = [(name, how) for name in CASES for how in ("script", "trace") if (name, how) != ("cells", "trace")]


class Products(torch.nn.Module):  # type: ignore[name-defined]
    """A stack of matrices, as it lies and turned round, by weights on either side."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"left": (4, 6), "vector": (6,), "row": (8,), "layer": (5, 6)}
        for name, size in sizes.items():
            setattr(self, name, torch.nn.Parameter(torch.zeros(size)))

    def forward(self, x: Any) -> list[Any]:
        turned = x.transpose(1, 2).contiguous()
        other = turned.transpose(1, 2)
        products = [torch.matmul(self.left, x), torch.matmul(self.left, other), torch.matmul(self.vector, x)]
        products += [torch.matmul(self.vector, other), x @ self.row, other @ self.row, x.transpose(1, 2) @ self.vector]
        return [*products, *(torch.nn.functional.linear(y, self.layer) for y in (x.transpose(1, 2), turned))]


@pytest.mark.parametrize("trainable", [False, True])
def test_products_of_a_stack_of_matrices_are_one_product_where_their_rows_lie_so(trainable: bool) -> None:
    module, specs = build(Products, trainable=trainable), [parse_input("3x6x8")]
    traced = oracle.archive_of(module, "trace", [torch.zeros(3, 6, 8)])
    ours, theirs = decompose(traced, specs), oracle.network_of(module, specs)
    shown = [[msgspec.structs.replace(launch, scope="") for launch in network.launches] for network in (ours, theirs)]
    assert shown[0] == shown[1]


def test_rows_by_the_matrix_of_their_group_are_one_product() -> None:
    class Experts(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(3, 16, 8), requires_grad=False)

        def forward(self, x: Any, ends: Any) -> Any:
            return torch._grouped_mm(x, self.weight, offs=ends)

    module, example = Experts(), (torch.zeros(6, 16), torch.tensor([2, 2, 6], dtype=torch.int32))
    traced = oracle.archive_of(module, "trace", example)
    (product,) = decompose(traced, [parse_input("6x16"), parse_input("3:int32")]).launches
    assert product.params == {"m": 6, "k": 16, "n": 8, "batch": 1, "bias": False}
    assert (product.inputs, product.output, product.flops) == (((6, 16),), (6, 8), 2 * 6 * 16 * 8)


# Whether weights were saved as trainable decides how ATen folds products; tracing takes another way through them then.
@pytest.mark.parametrize(
    ("name", "how", "trainable"), [*((*way, False) for way in WAYS), *((name, "script", True) for name in CASES)]
)
def test_layers_are_what_pytorch_dispatches(name: str, how: str, trainable: bool) -> None:
    make, inputs = CASES[name]
    module, specs = build(make, trainable=trainable), [parse_input(text) for text in inputs]
    example = [torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in specs]
    network = decompose(oracle.archive_of(module, how, example), specs)
    as_run = copy.deepcopy(module)
    expected = oracle.network_of(as_run if how == "export" else oracle.with_short_cuts(as_run), specs)
    for ours, theirs in zip(network.launches, expected.launches, strict=True):
        if how == "script":
            assert ours == theirs
        else:
            assert msgspec.structs.replace(ours, scope="") == msgspec.structs.replace(theirs, scope="")


@pytest.fixture(scope="module")
def containers() -> io.BytesIO:
    return oracle.archive_of(build(layers.Containers), "script")


def test_a_list_parameter_takes_the_inputs_that_are_left(containers: io.BytesIO) -> None:
    for extra in range(3):
        network = decompose(containers, [parse_input("2x8x8")] * (1 + extra))
        assert network.kinds == {"matmul": 2, "mul_scalar": 2, "add": 1 + extra}


def test_a_while_loop_ends_with_its_early_return(containers: io.BytesIO) -> None:
    network = decompose(containers, [parse_input("2x8x8")])
    assert [launch.kind for launch in network.launches[-2:]] == ["mul_scalar", "mul_scalar"]
    assert {launch.scope for launch in network.launches if launch.kind == "matmul"} == {"named.a", "named.b"}


def test_another_method_is_followed_when_asked_for(containers: io.BytesIO) -> None:
    assert decompose(containers, [parse_input("4")], method="encode").kinds == {"relu": 1}


def test_inputs_that_do_not_go_round_are_refused_with_the_signature(containers: io.BytesIO) -> None:
    with pytest.raises(ShapeError, match=r"x: Tensor, more: List\[Tensor\]"):
        decompose(containers, [])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_element_types_halve_or_double_the_bytes(dtype: str) -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval().to(getattr(torch, dtype))
    network = decompose(oracle.archive_of(module, "script"), [parse_input(f"1x3x16x16:{dtype}")])
    assert list(network.launches) == list(oracle.network_of(module, network.inputs).launches)
    with pytest.raises(ShapeError, match=dtype):
        decompose(oracle.archive_of(module, "script"), [parse_input("1x3x16x16:float32")])


@pytest.mark.parametrize("half", [False, True], ids=["single", "half"])
@pytest.mark.parametrize("mask", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("heads", [4, 2, 1], ids=["own heads", "shared heads", "heads that broadcast"])
@pytest.mark.parametrize("copied", [False, True], ids=["turned", "copied"])
def test_what_follows_attention_is_copied_only_where_cudas_kernel_lays_it_out_otherwise(
    half: bool, mask: bool, heads: int, copied: bool
) -> None:
    class Attending(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            query = (x.half() if half else x).view(2, 16, 4, 8).transpose(1, 2)
            query = query.contiguous() if copied else query
            key = query[:, :heads]
            mask_ = torch.zeros(16, 16, dtype=query.dtype, device=x.device) if mask else None
            out = torch.nn.functional.scaled_dot_product_attention(query, key, key, attn_mask=mask_, enable_gqa=heads == 2)
            return out.transpose(1, 2).reshape(2, 16, 32)

    inputs = [parse_input("2x16x32")]
    ours = decompose(oracle.archive_of(Attending(), "trace", [torch.zeros(2, 16, 32)]), inputs)
    assert [launch.kind for launch in ours.launches] == [x.kind for x in oracle.network_of(Attending(), inputs).launches]
