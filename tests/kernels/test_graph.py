# SPDX-License-Identifier: Apache-2.0
"""Performance graphs: nodes, edges and memory of networks made by hand, of reference networks, and of every format alike."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import ModelError
from jetdvfs.kernels.graph import Edge, graph_of
from jetdvfs.kernels.network import KernelInvocation, Network, TensorSpec
from jetdvfs.profiles.reference import reference_network
from jetdvfs.tests.support.profiles.analytic import conv2d, network, relu

IMAGE = (2, 64, 8, 8)
SIZE = 4 * 2 * 64 * 8 * 8


def launch(kind: str, operands: int = 1, flops: int = 100) -> KernelInvocation:
    """A kernel that reads tensors of one shape, writes one, and has no weights."""
    return KernelInvocation(kind, "", (IMAGE,) * operands, IMAGE, "float32", {}, flops, SIZE * (operands + 1))


def residual() -> Network:
    """relu, whose result goes by sigmoid to a sum, and there by itself."""
    calls = (launch("relu"), launch("sigmoid", flops=400), launch("add", 2))
    return Network("residual", (TensorSpec(IMAGE),), calls, reads=((-1,), (0,), (1, 0)))


def test_an_edge_is_a_tensor_that_one_launch_writes_and_another_reads() -> None:
    graph = graph_of(residual())
    assert graph.edges == (Edge(0, 1, IMAGE, SIZE), Edge(1, 2, IMAGE, SIZE), Edge(0, 2, IMAGE, SIZE))
    assert [node.input_bytes for node in graph.nodes] == [SIZE, SIZE, 2 * SIZE]
    assert [node.weight_bytes for node in graph.nodes] == [0, 0, 0]


def test_global_features_are_those_of_a_count_by_hand() -> None:
    found = graph_of(residual()).globals
    assert (found["nodes"], found["edges"], found["density"], found["batch"]) == (3, 3, 3 / 6, 2)
    assert [found[f"flops_{name}"] for name in ("total", "mean", "median", "max")] == [600, 200, 100, 400]
    assert [found[f"access_bytes_{name}"] for name in ("total", "median", "max")] == [7 * SIZE, 2 * SIZE, 3 * SIZE]
    assert found["edge_bytes_mean"] == SIZE and found["intensity"] == 600 / (7 * SIZE)


def test_a_tensor_stays_in_memory_until_its_last_reader() -> None:
    memory = graph_of(residual()).memory
    assert (memory.weight_bytes, memory.input_bytes, memory.activation_bytes) == (0, SIZE, 3 * SIZE)
    chain = msgspec.structs.replace(residual(), calls=(launch("relu"),) * 4, reads=((-1,), (0,), (1,), (2,)))
    assert graph_of(chain).memory.activation_bytes == 2 * SIZE  # one is read while the next is written


def test_a_convolution_says_its_window_channels_and_weights() -> None:
    (node,) = graph_of(msgspec.structs.replace(network(conv2d()), reads=((-1,),))).nodes
    assert (node.kernel, node.stride, node.padding, node.dilation, node.groups) == ((3, 3), (1, 1), (1, 1), (1, 1), 1)
    assert (node.in_channels, node.out_channels, node.weight_bytes) == (64, 64, 4 * 64 * 64 * 9)
    assert node.intensity == conv2d().flops / conv2d().bytes


def test_shares_of_all_nodes_are_the_whole() -> None:
    data = graph_of(reference_network("mobilenet_v2")).to_json()
    for share in ("flops_share", "access_share", "weight_share"):
        assert sum(node[share] for node in data["nodes"]) == pytest.approx(1)


def test_resnet18_has_a_shortcut_beside_each_of_its_eight_blocks() -> None:
    graph = graph_of(reference_network("resnet18"))
    assert (len(graph.nodes), len(graph.edges)) == (68, 67 + 8)
    # 11,689,512 parameters in 32 bits, and the two running statistics of 4,800 channels.
    assert graph.memory.weight_bytes == 4 * (11_689_512 + 2 * 4_800)


def test_a_list_that_does_not_say_who_wrote_what_has_no_graph() -> None:
    with pytest.raises(ModelError, match="writers of its launches' inputs"):
        graph_of(network(conv2d(), relu()))


@pytest.mark.torch
def test_every_format_of_a_network_has_the_same_edges() -> None:
    torch = pytest.importorskip("torch", reason="writes the model files")
    pytest.importorskip("onnx", reason="torch.onnx.export needs it")

    class Block(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = (torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.one(x))
            return torch.cat([self.other(y) + x, y], 1)

    model, given, inputs = Block(), torch.zeros(1, 8, 16, 16), [TensorSpec((1, 8, 16, 16))]
    edges = []
    saves: tuple[Callable[[Any], object], ...] = (
        lambda file: torch.jit.save(torch.jit.trace(model, given), file),
        lambda file: torch.export.save(torch.export.export(model, (given,)), file),
        lambda file: torch.onnx.export(model, (given,), file, dynamo=False),
    )
    for save in saves:
        file = io.BytesIO()
        save(file)
        file.seek(0)
        edges.append(graph_of(decompose(file, inputs)).edges)
    assert edges[0] == edges[1] == edges[2]
    assert [(edge.source, edge.target) for edge in edges[0]] == [(0, 1), (1, 2), (2, 3), (3, 4), (1, 4)]
