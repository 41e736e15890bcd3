# SPDX-License-Identifier: Apache-2.0
"""The optimised view: held against what PyTorch's JIT runs once its passes have run, program by program and on networks."""

from __future__ import annotations

import importlib.util
import io
import itertools
import random
import textwrap
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import Network, TensorSpec
from jetdvfs.tests.support.models.handmade import archive, forward

torch = pytest.importorskip("torch", reason="PyTorch's JIT is the oracle of its passes; it is not installed")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from jetdvfs.tests.support.models import oracle  # noqa: E402
from jetdvfs.tests.support.models.dispatching import device  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]

INPUTS = ("2x4", "2x4")
#: Bodies of ``forward(self, x, y)``; ``self.state`` is a buffer of the same shape.
# fmt: off
PROGRAMS = {
    "a head that nobody uses": "z = torch.sigmoid(x)\nunused = torch.tanh(z)\nreturn z",
    "adding nothing": "return torch.relu(x + 0) * 1",
    "adding nothing to an input": "return x + 0",
    "adding nothing to a view of an input": "return x.view(-1) + 0",
    "adding nothing twice": "z = x.view(-1) + 0\nreturn z / 1",
    "adding nothing to integers": "z = (x > y).long() * 1.0\nreturn z + 1",
    "adding a number that is computed": "return torch.relu(x) * x.dim() - 2",
    "the same twice": "return torch.relu(x * y) + torch.relu(x * y)",
    "the same twice, both handed out": "return torch.relu(x), torch.relu(x)",
    "the same in a row of calls": "a = (x * 2).exp()\nb = (x * 2).exp()\nreturn (a + b).view(-1), torch.tanh(b)",
    "the same but for a number": "return (x * 2) + (x * 3)",
    "the same before and after writing": "a = x * 2\na.add_(1)\nb = x * 2\nreturn a + b",
    "read before and after writing": "z = x * 2\na = torch.relu(z)\nz.add_(1)\nreturn a + torch.relu(z)",
    "written into and used": "z = torch.zeros_like(x)\nz[:, 0] = y[:, 0]\nz[:, 1].add_(1)\nreturn z + 1",
    "written into and dropped": "z = x * 2\nz.add_(1)\nz[0] = 1\nreturn y + 1",
    "written into through a view": "z = x * 2\nv = z.view(-1)\nv.mul_(y.view(-1))\nreturn z + 1",
    "written into an input": "x.add_(1)\nreturn y + 1",
    "written into a buffer": "self.state.copy_(x * 2)\nunused = x * 3\nreturn y + 1",
    "a buffer set anew": "self.state = x * 2\nunused = x * 3\nreturn y + 1",
    "random numbers": "return torch.rand_like(x) + torch.rand_like(x)",
    "random numbers that nobody uses": "z = torch.rand_like(x)\nreturn x + y",
    "nested cat": "return torch.cat([torch.cat([x, y], 1), torch.cat([y, x], 1)], 1)",
    "nested cat of three": "z = torch.cat([x, y], 1)\nz = torch.cat([z, y], 1)\nz = torch.cat([z, x], 1)\nreturn torch.relu(z)",
    "nested cat used twice": "z = torch.cat([x, y], 1)\nreturn torch.cat([z, y], 1) + 1, torch.relu(z)",
    "nested cat handed out": "z = torch.cat([x, y], 1)\nreturn torch.cat([z, y], 1), z",
    "nested cat along another dimension": "return torch.cat([torch.cat([x, y], 1), torch.cat([x, y], 1)], 0)",
    "a loop": "z = x\nfor i in range(x.size(0)):\n    unused = y * 3\n    z = z + torch.relu(y)\nreturn z",
    "a branch": "z = torch.relu(x)\nif x.size(0) > 1:\n    z = z + torch.relu(x)\nelse:\n    z = torch.tanh(z)\nreturn z",
    "a list": "made = [x * 2, x * 3]\nmade.append(y * 2)\nreturn made[0] + made[2]",
    "indices of which nobody knows": "values, places = torch.max(x * 2, 1)\nreturn places + 1",
    "values of which nobody knows": "values, places = torch.topk(x * 2, 2)\nreturn values + 1",
    "pieces": "a, b = (x * 2).chunk(2, 1)\nreturn torch.relu(a), torch.relu((x * 2).chunk(2, 1)[0])",
    "a loop whose number stands in the code": "z = x\nfor i in range(3):\n    z = z + torch.relu(y)\nreturn z",
    "a loop of eleven": "z = x\nfor i in range(x.size(1) + 7):\n    z = z + torch.relu(y)\nreturn z",
    "a loop's last value that nobody uses": (
        "z = x\nout = x\nfor i in range(x.size(0)):\n    out = torch.relu(z)\n    z = z * 2\nreturn out"
    ),
    "a loop's value that only the loop uses": (
        "z = x\nw = x\nfor i in range(x.size(0)):\n    z = z + 1\n    w = w * 2\nreturn z"
    ),
    "a loop while": "i = 0\nz = x\nw = y\nwhile i < x.size(0):\n    z = z + y * 2\n    w = w + 1\n    i += 1\nreturn z",
    "a list that a loop fills": "made = [x]\nfor i in range(x.size(0)):\n    made.append(y * 2 + i)\nreturn made[0] + 1",
    "a list that a loop fills from itself": (
        "made = [x]\nfor i in range(x.size(0)):\n    made.append(made[-1] * 2)\nreturn made[-2] + 1"
    ),
    "a list that nobody reads": "made = [x]\nfor i in range(x.size(0)):\n    made.append(y * 2 + i)\nreturn x + 1",
    "a list that is stacked": (
        "made: List[Tensor] = []\nfor i in range(x.size(0)):\n    made.append(x[i] * 2)\n"
        "return torch.stack(made)"
    ),
    "a list that a branch changes": "made = [x * 2, x * 3]\nif x.size(0) > 1:\n    made.append(x * 4)\nreturn made[0] + 1",
    "a list that is set": "made = [x * 2, x * 3]\nmade[1] = y * 4\nreturn made[0] + 1",
    "a list's end": "made = [x * 2, x * 3]\nz = made.pop()\nreturn made[0] + 1",
    "a list that grows": "made = [x * 2]\nmade.extend([x * 3, x * 4])\nreturn made[0] + 1",
    "a part of a list": "made = [x * 2, x * 3, x * 4]\nreturn torch.cat(made[:2], 1)",
    "a dictionary": "made = {'a': x * 2, 'b': x * 3}\nreturn made['a'] + 1",
    "a dictionary that changes": "made = {'a': x * 2}\nmade['b'] = x * 3\nreturn made['a'] + 1",
    "a dictionary that nobody reads": "made = {'a': x * 2}\nmade['b'] = x * 3\nreturn x + 1",
    "a branch that is not taken": "w = x * 3\nz = y * 2\nif x.size(0) > 5:\n    z = w\nreturn z",
    "a branch that is never taken": "w = x * 3\nz = y * 2\nif False:\n    z = w\nreturn z",
    "a result handed back early": "w = x * 3\nif x.size(0) > 1:\n    return y * 2\nreturn w",
    "a value that may be the result": "z = torch.relu(x)\nif x.size(0) > 1:\n    z = z * 1\nreturn z, x",
    "no value yet": (
        "z: Optional[Tensor] = None\nif x.size(0) > 5:\n    z = x * 2\nif z is not None:\n    return z\n"
        "return y * 2"
    ),
    "a size": "z = x * 2\nreturn y[:, :z.size(1)] + 1",
    "a size that is printed": "z = x * 2\nprint(z.size(0))\nreturn x + 1",
    "ones like what nobody uses": "return torch.ones_like(x * 2) + y",
    "numbers of one size from two tensors": "return x + torch.zeros([x.size(0), 4]) + torch.zeros([y.size(0), 4])",
    "numbers that stand in the code": "return x + torch.arange(4).float() * 2 + torch.zeros([2, 4])",
    "numbers that are written into": "z = torch.zeros([2, 4])\nz.add_(x)\nreturn z + 1",
    "numbers in a loop": "z = x\nfor i in range(x.size(0)):\n    z = z + torch.arange(4)\nreturn z",
    "numbers by chance": "return x + torch.rand([2, 4])",
    "a constant": "return x + torch.tensor([1.0, 2.0, 3.0, 4.0]) * 2",
    "adding another zero": "return torch.add(x.relu(), 0, alpha=2) + torch.add(y, 0.0) * 1.0",
    "dividing by one": "return torch.relu(x) / 1",
    "a product with a bias": "return torch.addmm(y, x, x.t().mm(y))",
    "a product with a scaled bias": "return torch.addmm(y, x, x.t().mm(y), beta=2)",
    "nested cat along a dimension counted from the end": "return torch.cat([torch.cat([x, y], -1), y], 1)",
    "nested cat in a loop": "z = x\nfor i in range(x.size(0)):\n    z = torch.cat([z, y], 1)\nreturn z",
    "nested cat in a loop whose number stands in the code": "z = x\nfor i in range(3):\n    z = torch.cat([z, y], 1)\nreturn z",
    "nested cat across a branch": "z = torch.cat([x, y], 1)\nif x.size(0) > 1:\n    z = torch.cat([z, y], 1)\nreturn z",
    "nested cat of a list that grows": (
        "made = [x]\nmade.append(y)\nz = torch.cat(made, 1)\nmade.append(z)\nreturn torch.cat(made, 1)"
    ),
    "a bias that is written into": "b = self.state[0].clone()\nb[1:2].zero_()\nreturn torch.nn.functional.linear(x, y, b[:2])",
    "a task": "task = torch.jit.fork(self.work, x, 1)\nreturn torch.jit.wait(task) + torch.tanh(y)",
    "a task repeats others": "z = torch.exp(x)\ntask = torch.jit.fork(self.work, x, 1)\nreturn torch.jit.wait(task) + z",
    "what a task has done": "task = torch.jit.fork(self.work, x, 1)\nreturn torch.jit.wait(task) + torch.exp(x)",
    "two tasks alike": (
        "a = torch.jit.fork(self.work, x, 1)\nb = torch.jit.fork(self.work, x, 1)\n"
        "return torch.jit.wait(a) + torch.jit.wait(b)"
    ),
    "a task that nobody waits for": "task = torch.jit.fork(self.work, x, 1)\nreturn y + 1",
    "a task that is done in part": "task = torch.jit.fork(self.pair, x)\nreturn torch.jit.wait(task)[0] + 1",
    "tasks in a loop": (
        "made: List[torch.jit.Future[Tensor]] = []\nfor i in range(x.size(0)):\n"
        "    made.append(torch.jit.fork(self.work, y * 2, 2))\n"
        "return torch.jit.wait(made[0]) + torch.jit.wait(made[1])"
    ),
    "a task that starts tasks": "task = torch.jit.fork(self.tasks, x)\nreturn torch.jit.wait(task) + 1",
    "a task that writes": "z = x * 2\ntask = torch.jit.fork(self.write, z)\nw = torch.jit.wait(task)\nreturn z + w",
    "a copy": "z = x.clone()\nw = x.clone()\nz.add_(1)\nreturn z + w",
}
# fmt: on
#: Further methods of the programs' modules.
TASKS = """
    def work(self, x: Tensor, times: int) -> Tensor:
        for i in range(times):
            x = torch.exp(x)
        return x
    def pair(self, x: Tensor):
        return torch.exp(x), torch.tanh(x)
    def write(self, x: Tensor):
        x.add_(1)
        return x.relu()
    def tasks(self, x: Tensor):
        inner = torch.jit.fork(self.work, x, 2)
        return torch.jit.wait(inner) + torch.exp(x)
"""


class Dispatched(TorchDispatchMode):
    """The names of what the dispatcher is asked to launch."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with self:
            args = device.as_cuda_reads(func._schema.name, args)
        name = func._schema.name.split("::")[1].rstrip("_")
        if name == "copy" and not any(args[1].stride()):
            name = "fill"
        if name not in oracle.VIEWS | oracle.SILENT and not (name == "_to_copy" and not args[0].dim()):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def without_fused_groups() -> Iterator[None]:
    """The passes as they are by default, of which the fuser finds nothing that it may fuse on a CPU."""
    before = torch._C._jit_texpr_fuser_enabled(), torch._C._jit_can_fuse_on_cpu()
    torch._C._jit_set_texpr_fuser_enabled(True)
    torch._C._jit_override_can_fuse_on_cpu(False)
    yield
    torch._C._jit_set_texpr_fuser_enabled(before[0])
    torch._C._jit_override_can_fuse_on_cpu(before[1])


def run_by_the_jit(stream: io.BytesIO, inputs: list[Any]) -> list[str]:
    """What a network launches from its third time on, by the reader's names where theirs are others."""
    stream.seek(0)
    module = torch.jit.load(stream)
    for _ in range(3):
        dispatched, given = Dispatched(), [x.clone() for x in inputs]
        with torch.no_grad(), torch.jit.optimized_execution(True), dispatched:
            module(*given)
    return dispatched.names


def counted(names: list[str]) -> Counter[str]:
    products = dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), "matmul") | dict.fromkeys(
        ("convolution", "_convolution"), "conv2d"
    )
    plain = (oracle.RENAMED.get(name, name).removesuffix("_scalar") for name in names)
    return Counter(products.get(name, name) for name in plain)


def kinds(network: Network) -> list[str]:
    return [launch.kind for launch in network.launches]


def scripted(programs: dict[str, str], folder: Path) -> list[io.BytesIO]:
    """Each program as a TorchScript file."""
    text = "import torch\nfrom typing import Optional, List, Dict\nfrom torch import Tensor\n"
    for place, body in enumerate(programs.values()):
        text += f"class P{place}(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        text += "        self.register_buffer('state', torch.zeros(2, 4))\n"
        text += textwrap.indent(textwrap.dedent(TASKS), "    ")
        text += f"    def forward(self, x: Tensor, y: Tensor):\n{textwrap.indent(body, ' ' * 8)}\n"
    path = folder / "programs.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"programs_{folder.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    streams = []
    for place in range(len(programs)):
        streams.append(io.BytesIO())
        torch.jit.save(torch.jit.script(getattr(module, f"P{place}")()), streams[-1])
    return streams


def differing(programs: dict[str, str], folder: Path) -> list[Any]:
    inputs = [torch.rand(2, 4), torch.rand(2, 4)]
    found = []
    for (name, body), stream in zip(programs.items(), scripted(programs, folder), strict=True):
        theirs = run_by_the_jit(stream, inputs)
        stream.seek(0)
        ours = kinds(decompose(stream, [parse_input(text) for text in INPUTS], optimized=True))
        if counted(ours) != counted(theirs):
            found.append((name, body, ours, theirs))
    return found


def test_what_is_left_is_what_the_jit_runs(tmp_path: Path) -> None:
    assert differing(PROGRAMS, tmp_path) == []


def expression(chance: random.Random, names: list[str]) -> str:
    one, other = chance.choice(names), chance.choice(names)
    return chance.choice(
        (
            f"{one} + {other}", f"{one} * 2", f"torch.relu({one})", f"{one} + 0", f"{one} * 1", f"{one} * 1.0", f"{one} / 1",
            f"{one} * {other}", f"torch.relu({one} * {other})", f"torch.cat([{one}, {other}], 1)[:, :4]", f"{one}.clone()",
            f"{one} + torch.ones([2, 4])", f"{one} * torch.arange(4).float()", f"{one} + torch.ones_like({other})",
            f"{one} + torch.zeros([{other}.size(0), 4])", f"{one}[:, :{other}.size(1)] * 2",
            f"torch.max({one}, 1)[0].view(2, 1) + {other}",
            f"torch.addmm({one}, {other}, {other}.t().mm({one}))",
        )
    )  # fmt: skip


#: Deep enough for neither loops nor branches.
STRAIGHT = 2


def statements(chance: random.Random, names: list[str], places: Iterator[int], depth: int = 0) -> list[str]:
    """A few lines that use names and add some, with loops and branches that set what is there before."""
    lines: list[str] = []
    for _ in range(chance.randint(2, 3 if depth == 1 else 6)):
        kind, own = chance.random(), names[2:]
        if kind < 0.1 and own:
            lines.append(f"{chance.choice(own)}.add_({chance.choice(names)})")
        elif kind < 0.2 and own:
            lines.append(f"{chance.choice(own)} = {expression(chance, names)}")
        elif kind < 0.3 and own and depth < STRAIGHT:
            lines.append(f"for i in range({chance.choice(('3', '2', 'x.size(0)', 'x.size(1) + 5'))}):")
            lines += [f"    {line}" for line in statements(chance, list(names), places, depth + 1)]
            lines.append(f"    {chance.choice(own)} = {expression(chance, names)}")
        elif kind < 0.4 and own and depth < STRAIGHT:
            lines.append(f"if x.size(0) > {chance.choice((1, 5))}:")
            lines += [f"    {line}" for line in statements(chance, list(names), places, depth + 1)]
            lines.append(f"    {chance.choice(own)} = {expression(chance, names)}")
        elif kind < 0.5:
            made, joined = f"made{next(places)}", f"z{next(places)}"
            lines.append(f"{made} = [{expression(chance, names)}, {expression(chance, names)}]")
            lines.append(
                chance.choice(("pass", f"{made}.append({chance.choice(names)})", f"{made}[1] = {chance.choice(names)} * 3"))
            )
            lines.append(f"{joined} = torch.cat({made}, 1)[:, 2:6]" if chance.random() < 0.5 else f"{joined} = {made}[0] + 1")
            names.append(joined)
        else:
            name = f"z{next(places)}"
            lines.append(f"{name} = {expression(chance, names)}")
            names.append(name)
    return lines


def programs_by_chance(count: int, seed: int, depth: int = 0) -> dict[str, str]:
    """Programs in which calls repeat, results are dropped, memory is written into, and blocks may not run or run again."""
    chance = random.Random(seed)
    made = {}
    for number in range(count):
        names = ["x", "y"]
        lines = statements(chance, names, itertools.count(), depth)
        results = chance.sample(names, min(len(names), chance.randint(1, 2)))
        made[str(number)] = "\n".join([*lines, f"return {', '.join(results)}"])
    return made


@pytest.mark.parametrize(("seed", "depth"), [*itertools.product(range(2), (0, STRAIGHT))])
def test_programs_by_chance_are_left_as_the_jit_leaves_them(seed: int, depth: int, tmp_path: Path) -> None:
    """Nearly all exactly; where they differ, more is listed than runs, but for code that nobody writes: loops without a use."""
    count = 80
    found = differing(programs_by_chance(count, seed, depth), tmp_path)
    short = [each for each in found if counted(each[3]) - counted(each[2])]
    assert len(found) <= count * (0.15 if depth == 0 else 0.08) and len(short) <= (count * 0.03 if depth == 0 else 0), found


def small_network(name: str) -> Any:
    """Networks with what the passes take away, or must not: Inception splits its input up twice, Swin writes into a bias."""
    models = oracle.torchvision().models
    if name == "inception_v3":
        return models.inception_v3(weights=None, init_weights=False)
    if name == "mobilenet_v3_small":
        return models.mobilenet_v3_small(weights=None)
    block = models.swin_transformer.SwinTransformerBlockV2
    options = {"patch_size": [4, 4], "window_size": [4, 4], "embed_dim": 24, "num_heads": [3], "depths": [2]}
    return models.SwinTransformer(**options, block=block, downsample_layer=models.swin_transformer.PatchMergingV2)


@pytest.mark.skipif(find_spec("torchvision") is None, reason="the networks are torchvision's; it is not installed")
@pytest.mark.parametrize(
    ("name", "how", "side"),
    [
        pytest.param("inception_v3", "script", 75, marks=pytest.mark.slow),
        pytest.param("inception_v3", "trace", 75, marks=pytest.mark.slow),
        ("mobilenet_v3_small", "script", 64),
        ("swin", "script", 32),
        ("swin", "freeze", 32),
    ],
)
def test_a_network_is_left_as_the_jit_leaves_it(name: str, how: str, side: int) -> None:
    module = small_network(name).eval().requires_grad_(False)
    picture = torch.rand(1, 3, side, side)
    stream = oracle.archive_of(module, how, [picture])
    ours = decompose(stream, [TensorSpec(tuple(picture.shape))], optimized=True)
    assert counted(kinds(ours)) == counted(run_by_the_jit(stream, [picture]))


def test_who_reads_what_is_told_of_what_is_left() -> None:
    body = "a = torch.sigmoid(x)", "b = torch.tanh(a)", "c = torch.sigmoid(x)", "return torch.mul(a, torch.add(c, 0))"
    made = decompose(io.BytesIO(archive(forward(*body))), [TensorSpec((2, 4))], optimized=True)
    assert kinds(made) == ["sigmoid", "mul"]
    assert made.reads == ((-1,), (0, 0))


def test_a_list_that_ends_early_keeps_what_may_be_needed() -> None:
    body = "a = torch.sigmoid(x)", "b = torch.tanh(a)", "return torch.nonzero(a)"
    made = decompose(io.BytesIO(archive(forward(*body))), [TensorSpec((2, 4))], optimized=True)
    assert kinds(made) == ["sigmoid", "tanh"] and made.boundary is not None
