# SPDX-License-Identifier: Apache-2.0
"""The fused view: what it makes of networks made by hand, and that it fuses what PyTorch's own passes fuse."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetdvfs.kernels.cost.board import STAND_IN_SIGMA
from jetdvfs.kernels.cost.features import MODELLED_KINDS
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import ModelError
from jetdvfs.kernels.fusion import fuse
from jetdvfs.kernels.kinds import ELEMENTWISE
from jetdvfs.kernels.network import HostOp, KernelInvocation, Network, TensorSpec
from jetdvfs.profiles.reference import reference_network
from jetdvfs.tests.support.profiles.analytic import GRID, board, conv2d, matmul, network, relu

SHAPE = (1, 64, 56, 56)
BYTES = 4 * 64 * 56 * 56


def pointwise(kind: str, operands: int = 1, *, scope: str = "") -> KernelInvocation:
    """A pointwise kernel over tensors of one shape, that of the convolution made by hand."""
    return KernelInvocation(kind, scope, (SHAPE,) * operands, SHAPE, "float32", {}, BYTES // 4, BYTES * (operands + 1))


def wired(*launches: tuple[KernelInvocation, tuple[int, ...]]) -> Network:
    """A network of launches, each with the launches that wrote what it reads."""
    return msgspec.structs.replace(network(*(launch for launch, _ in launches)), reads=tuple(reads for _, reads in launches))


def kinds(fused: Network) -> list[Any]:
    return [launch.params.get("kinds", launch.kind) for launch in fused.launches]


def test_a_convolution_takes_in_the_relu_that_alone_reads_it() -> None:
    (launch,) = fuse(wired((conv2d(scope="a.conv"), (-1,)), (pointwise("relu"), (0,)))).launches
    assert (launch.kind, launch.scope, launch.params) == ("conv2d_relu", "a.conv", conv2d().params)
    assert launch.flops == conv2d().flops + BYTES // 4
    assert launch.bytes == conv2d().bytes  # what passed between them moves no more


def test_a_convolution_read_twice_stays_alone() -> None:
    assert kinds(fuse(wired((conv2d(), (-1,)), (pointwise("relu"), (0,)), (matmul(10), (0,))))) == ["conv2d", "relu", "matmul"]


def test_a_residual_sum_belongs_to_the_convolution_that_is_its_first_operand() -> None:
    block = ((conv2d(), (-1,)), (conv2d(scope="downsample"), (-1,)), (pointwise("add", 2), (0, 1)), (pointwise("relu"), (2,)))
    shortcut, fused = fuse(wired(*block)).launches
    assert (shortcut.kind, shortcut.scope) == ("conv2d", "downsample")
    assert (fused.kind, fused.scope) == ("conv2d_add_relu", "conv")
    assert fused.inputs == (SHAPE, SHAPE)
    assert fused.bytes == conv2d().bytes + BYTES  # the other operand


def test_a_sum_whose_first_operand_is_no_convolution_is_a_pointwise_group() -> None:
    block = ((conv2d(), (-1,)), (pointwise("add", 2), (-1, 0)), (pointwise("relu"), (1,)))
    assert kinds(fuse(wired(*block))) == ["conv2d", "add+relu"]


def test_a_group_moves_its_inputs_and_what_others_read() -> None:
    block = ((pointwise("batch_norm"), (-1,)), (pointwise("sigmoid"), (0,)), (pointwise("mul", 2), (0, 1)))
    (launch,) = fuse(wired(*block)).launches
    assert launch.params == {"kinds": "batch_norm+sigmoid+mul", "outputs": 1}
    assert launch.bytes == 2 * BYTES
    group, _ = fuse(wired(*block, (matmul(10), (0,)))).launches
    assert group.params["outputs"] == 2
    assert group.bytes == 3 * BYTES


def test_a_group_does_not_span_what_runs_in_its_middle() -> None:
    """The gate of a squeeze-and-excitation block needs the activation it gates."""
    block = (
        (pointwise("batch_norm"), (-1,)), (pointwise("silu"), (0,)), (pointwise("mean"), (1,)), (pointwise("sigmoid"), (2,)),
        (pointwise("mul", 2), (3, 1)),
    )  # fmt: skip
    assert kinds(fuse(wired(*block))) == ["batch_norm+silu", "mean", "sigmoid+mul"]


def test_a_view_ends_a_group() -> None:
    flat = relu(64 * 56 * 56)
    assert kinds(fuse(wired((pointwise("relu"), (-1,)), (flat, (0,)), (pointwise("exp"), (-1,))))) == ["relu", "relu", "exp"]


def test_groups_that_do_not_depend_on_each_other_become_one() -> None:
    branch = ((pointwise("batch_norm"), (-1,)), (pointwise("relu"), (0,)))
    other = ((matmul(10), (-1,)), (pointwise("batch_norm"), (-1,)), (pointwise("relu"), (3,)), (matmul(20), (1,)))
    assert kinds(fuse(wired(*branch, *other))) == ["matmul", "batch_norm+relu+batch_norm+relu", "matmul"]


def test_bytes_and_quantised_tensors_are_left_alone() -> None:
    block = [msgspec.structs.replace(pointwise(kind), dtype="uint8") for kind in ("relu", "relu")]
    assert kinds(fuse(wired((block[0], (-1,)), (block[1], (0,))))) == ["relu", "relu"]


def test_host_only_calls_stay_before_what_they_preceded() -> None:
    calls = (HostOp("a", ""), pointwise("batch_norm"), HostOp("b", ""), pointwise("relu"), HostOp("c", ""), matmul(10))
    fused = fuse(msgspec.structs.replace(network(*calls), reads=((-1,), (0,), (-1,))))
    assert [call.name if isinstance(call, HostOp) else call.kind for call in fused.calls] == [
        "a", "b", "fused_pointwise", "c", "matmul",
    ]  # fmt: skip


def test_a_network_that_does_not_say_what_reads_what_is_refused() -> None:
    with pytest.raises(ModelError, match="decompose the model's file again"):
        fuse(network(conv2d(), relu()))
    assert fuse(network()).calls == ()


def test_a_list_of_launches_that_was_changed_no_longer_says_what_reads_what() -> None:
    data = wired((conv2d(), (-1,)), (pointwise("relu"), (0,))).to_json()
    assert Network.from_json(data).reads == ((-1,), (0,))
    for changed in (
        {"launches": data["launches"][:1]},
        {"launches": data["launches"][::-1], "reads": [[-1], [1]]},
        {"reads": [[-1], [0, 0]]},
    ):
        network = Network.from_json({**data, **changed})
        assert network.launches and network.reads == ()
    for wrong in (7, [7], [["a"], [0]], [[-1], [0.0]]):
        with pytest.raises(ModelError, match="network: expected"):
            Network.from_json({**data, "reads": wrong})


@settings(deadline=None)
@given(st.data())
def test_any_network_keeps_its_work_and_its_order(data: st.DataObject) -> None:
    launches = []
    for number in range(data.draw(st.integers(1, 14))):
        kind = data.draw(st.sampled_from(["conv2d", "relu", "add", "mean"]))
        launch = conv2d() if kind == "conv2d" else pointwise(kind, 2 if kind == "add" else 1)
        launches.append((launch, tuple(data.draw(st.integers(-1, number - 1)) for _ in launch.inputs)))
    before = wired(*launches)
    after = fuse(before)
    assert sum(launch.flops for launch in after.launches) == sum(launch.flops for launch in before.launches)
    assert sum(launch.bytes for launch in after.launches) <= sum(launch.bytes for launch in before.launches)
    assert Network.from_json(after.to_json()) == after  # which checks that nothing is read before it is written
    members = Counter("+".join(map(str, kinds(after))).replace("_relu", "+relu").replace("_add", "+add").split("+"))
    assert members == Counter(launch.kind for launch in before.launches)


def test_a_fused_kernel_without_a_model_is_costed_by_its_convolutions_less_certainly() -> None:
    before = wired((conv2d(), (-1,)), (pointwise("relu"), (0,)))
    own = surface(fuse(before), board(kinds=("conv2d_relu",), sigma=0.1)).at(GRID.top)
    stand_in = surface(fuse(before), board(kinds=("conv2d",), sigma=0.1)).at(GRID.top)
    assert stand_in.latency_ms == own.latency_ms
    assert own.latency_sigma == pytest.approx(0.1, rel=0.05)
    assert stand_in.latency_sigma == pytest.approx((0.1**2 + STAND_IN_SIGMA**2) ** 0.5, rel=0.05)


def test_a_pointwise_group_is_costed_by_the_elementwise_model_or_the_roofline() -> None:
    fused = fuse(wired((pointwise("batch_norm"), (-1,)), (pointwise("relu"), (0,))))
    assert not surface(fused, board(kinds=(ELEMENTWISE,))).unmodelled
    (kind,) = surface(fused, board(kinds=MODELLED_KINDS)).unmodelled
    assert (kind.kind, kind.bytes_share) == ("fused_pointwise", 1.0)


def test_the_fused_view_of_a_network_is_predicted_faster() -> None:
    mobilenet, cost = reference_network("mobilenet_v2"), board(kinds=(*MODELLED_KINDS, ELEMENTWISE))
    assert (surface(fuse(mobilenet), cost).latency_ms < surface(mobilenet, cost).latency_ms).all()


def called(network: Network, *operators: str, views: tuple[tuple[int, ...], ...] = ()) -> Network:
    """A network whose launches were made by these operators."""
    direct = tuple((0,) * len(launch.inputs) for launch in network.launches)
    return msgspec.structs.replace(network, operators=operators, views=views or direct)


def test_operators_in_place_join_no_group() -> None:
    block = wired((pointwise("batch_norm"), (-1,)), (pointwise("relu"), (0,)), (pointwise("add", 2), (1, 1)))
    assert kinds(fuse(called(block, "batch_norm", "relu", "add"))) == ["batch_norm+relu+add"]
    assert kinds(fuse(called(block, "batch_norm", "relu_", "add"))) == ["batch_norm", "relu", "add"]
    assert kinds(fuse(called(block, "batch_norm", "relu", "add_"))) == ["batch_norm+relu", "add"]


def test_no_reader_moves_behind_the_operator_that_overwrites_its_input() -> None:
    block = wired(
        (matmul(10), (-1,)), (pointwise("exp"), (0,)), (pointwise("relu"), (0,)), (pointwise("mul", 2), (1, 2)),
    )  # fmt: skip
    assert kinds(fuse(called(block, "mm", "exp", "relu", "mul"))) == ["matmul", "exp+relu+mul"]
    assert kinds(fuse(called(block, "mm", "exp", "relu_", "mul"))) == ["matmul", "exp", "relu", "mul"]


def test_launches_of_an_operator_that_consists_of_others_join_no_group() -> None:
    block = wired((pointwise("sub", 2), (-1, -1)), (pointwise("ne_scalar"), (0,)))
    assert kinds(fuse(called(block, "sub", "ne"))) == ["sub+ne_scalar"]
    assert kinds(fuse(called(block, "diff", "ne"))) == ["sub", "ne_scalar"]


def test_a_cast_that_launches_nothing_belongs_to_a_group_and_a_view_ends_one() -> None:
    block = wired((pointwise("add", 2), (-1, -1)), (pointwise("exp"), (0,)))
    for view, made in ((0, ["add+exp"]), (1, ["add+exp"]), (2, ["add", "exp"]), (3, ["add", "exp"])):
        assert kinds(fuse(called(block, "add", "exp", views=((0, 0), (view,))))) == made


def test_convolutions_are_fused_if_the_file_calls_cudnns() -> None:
    block = wired((conv2d(), (-1,)), (pointwise("relu"), (0,)))
    assert kinds(fuse(called(block, "conv2d", "relu"))) == ["conv2d", "relu"]
    assert kinds(fuse(called(block, *["cudnn_convolution_relu"] * 2))) == ["conv2d_relu"]


def test_operators_and_views_are_kept_with_the_list_unless_it_was_changed() -> None:
    network = called(wired((conv2d(), (-1,)), (pointwise("relu"), (0,))), "conv2d", "relu_")
    data = network.to_json()
    assert Network.from_json(data) == network
    changed = Network.from_json({**data, "launches": data["launches"][:1]})
    assert not changed.operators and not changed.views


SMALL = ("resnet18", "googlenet", "shufflenet_v2_x1_0")
LARGER = (
    "efficientnet_b0",
    "densenet121",
    "mnasnet1_0",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "convnext_tiny",
    "squeezenet1_0",
    "vgg11",
)
SIDE = 64


@pytest.fixture(scope="module")
def torch() -> Iterator[Any]:
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle of fusion; it is not installed")
    if find_spec("torchvision") is None:
        pytest.skip("the models are torchvision's; it is not installed")
    variable, kept = "PYTORCH_TENSOREXPR_DONT_FUSE", os.environ.get("PYTORCH_TENSOREXPR_DONT_FUSE")
    # On a CPU the fuser also takes in small convolutions and products; on CUDA, the device in question, it does not.
    os.environ[variable] = "conv2d:_convolution:matmul"
    before = torch._C._jit_can_fuse_on_cpu(), torch._C._jit_get_te_must_use_llvm_cpu(), torch._C._jit_texpr_fallback_allowed()
    torch._C._jit_override_can_fuse_on_cpu(True)
    torch._C._jit_set_te_must_use_llvm_cpu(True)  # groups are formed, compiling them fails, and ATen runs instead
    torch._C._jit_texpr_set_fallback_allowed(True)
    yield torch
    torch._C._jit_override_can_fuse_on_cpu(before[0])
    torch._C._jit_set_te_must_use_llvm_cpu(before[1])
    torch._C._jit_texpr_set_fallback_allowed(before[2])
    os.environ.pop(variable)
    if kept is not None:
        os.environ[variable] = kept


def traced(torch: Any, name: str, *, folded: bool, mutation: bool = False) -> tuple[Any, Network]:
    """A frozen torchvision network with or without mutation, its batch norms folded or not, and its decomposition."""
    from jetdvfs.tests.support.models import oracle

    image = torch.zeros(1, 3, SIDE, SIDE)
    with torch.no_grad():
        model = oracle.build(name).to_empty(device="cpu")
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.random_(1, 100)  # equal weights would make equal branches, which PyTorch computes once
        frozen = torch.jit.freeze(torch.jit.trace(model, image, check_trace=False), optimize_numerics=folded)
    archive = io.BytesIO()
    torch.jit.save(frozen, archive)
    torch._C._jit_pass_inline(frozen.graph)
    network = decompose(archive, [TensorSpec((1, 3, SIDE, SIDE))], name=name)
    if not mutation:
        torch._C._jit_pass_remove_mutation(frozen.graph)
        network = msgspec.structs.replace(network, operators=(), views=())
    return frozen, network


def tensor_expression_groups(block: Any) -> Iterator[str]:
    for node in block.nodes():
        if node.kind() == "prim::TensorExprGroup":
            inner = (part.kind().split("::")[1] for part in node.g("Subgraph").nodes() if part.kind().startswith("aten::"))
            yield "+".join(sorted(inner))
        for child in node.blocks():
            yield from tensor_expression_groups(child)


def names() -> tuple[str, ...]:
    return SMALL + LARGER if os.environ.get("JETDVFS_ALL_MODELS") else SMALL


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("mutation", [True, False], ids=["as_saved", "without_mutation"])
@pytest.mark.parametrize("name", names())
def test_the_pointwise_groups_are_those_of_pytorch(torch: Any, name: str, mutation: bool) -> None:
    model, decomposed = traced(torch, name, folded=False, mutation=mutation)
    image = torch.zeros(1, 3, SIDE, SIDE)
    with torch.no_grad():
        model(image), model(image)
    theirs = Counter(tensor_expression_groups(torch.jit.last_executed_optimized_graph()))
    # As matrix products, convolutions leave nothing for cuDNN's pass, which this executor does not run.
    others = [
        launch if launch.kind != "conv2d" else msgspec.structs.replace(launch, kind="matmul") for launch in decomposed.launches
    ]
    fused = fuse(msgspec.structs.replace(decomposed, calls=tuple(others)))
    ours = Counter(
        "+".join(sorted(str(launch.params["kinds"]).split("+"))) for launch in fused.launches if "kinds" in launch.params
    )
    assert ours == theirs


CONVOLUTION = "%x = aten::conv2d(%input, %weight, %bias, %stride, %padding, %dilation, %groups)"
PATTERNS = {
    "conv2d_relu": ("", f"{CONVOLUTION}\n %res = aten::relu(%x)"),
    "conv2d_add_relu": ("%z, %alpha, ", f"{CONVOLUTION}\n %y = aten::add(%x, %z, %alpha)\n %res = aten::relu(%y)"),
}


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("name", names())
def test_the_convolutions_are_fused_as_pytorchs_rewriter_fuses_them(torch: Any, name: str) -> None:
    """cuDNN's pass itself is not part of a CPU build; its two patterns run here through the same rewriter."""
    model, decomposed = traced(torch, name, folded=True)
    graph = model.graph
    arguments = "%i, %w, %b, %stride, %pad, %dil, %transposed, %out, %groups, %bench, %det, %cudnn, %tf32"
    rewrite = torch._C._jit_pass_custom_pattern_based_rewrite_graph
    rewrite(
        f"graph({arguments}):\n %r = aten::_convolution({arguments})\n return (%r)",
        f"graph({arguments}):\n %r = aten::conv2d(%i, %w, %b, %stride, %pad, %dil, %groups)\n return (%r)",
        graph,
    )
    for kind, (extra, body) in PATTERNS.items():
        inputs = f"%input, %weight, %bias, {extra}%stride:int[], %padding:int[], %dilation:int[], %groups:int"
        made = f"%res = fused::{kind}(%input, %weight)"
        rewrite(f"graph({inputs}):\n {body}\n return (%res)", f"graph({inputs}):\n {made}\n return (%res)", graph)
    theirs = Counter(node.kind().split("::")[1] for node in graph.nodes() if node.kind().startswith("fused::"))
    ours = Counter(launch.kind for launch in fuse(decomposed).launches if launch.kind in PATTERNS)
    assert ours == theirs


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::Warning")
def test_scripted_and_exported_networks_tell_the_same_flow(torch: Any) -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(8, 8, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a, b = torch.relu(self.norm(self.conv(x)) + x).chunk(2, 1)
            return torch.cat([a.flatten(1), torch.sigmoid(b).flatten(1)], 1)

    image = torch.zeros(1, 8, 16, 16)
    scripted, exported = io.BytesIO(), io.BytesIO()
    with torch.no_grad():
        torch.jit.save(torch.jit.script(Block().eval()), scripted)
        torch.export.save(torch.export.export(Block().eval(), (image,)), exported)
    first, second = (decompose(file, [TensorSpec((1, 8, 16, 16))], name="block") for file in (scripted, exported))
    assert first.reads == second.reads == ((-1,), (0,), (1, -1), (2,), (3,), (3, 4))
    assert kinds(fuse(first)) == ["conv2d", "batch_norm+add+relu", "sigmoid", "cat"]
