# SPDX-License-Identifier: Apache-2.0
"""What a network is made of, as decompose prints, sums up and draws it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from jetdvfs.kernels.network import Network
from jetdvfs.profiles.reference import reference_model
from jetdvfs.tests.support.models.handmade import archive, forward
from jetdvfs.tests.support.profiles.analytic import network
from jetdvfs.tests.support.profiles.only import NETWORK
from jetdvfs.tests.support.verbs import run, run_json


def test_decompose_prints_each_kind_with_its_work(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "decompose", model)
    assert code == 0
    assert "handmade (1x3x224x224:float32): 4 launches of 4 distinct kernels, 1 host-only call," in out
    assert re.search(r"^conv2d +1 +1 +231 MFLOP +\d+\.\d% +1\.75 MB", out, re.MULTILINE)
    assert "view" not in out
    assert re.search(r"^view +1$", run(capsys, "decompose", model, "--host-calls")[1], re.MULTILINE)


def test_decompose_lists_launches_in_order_with_shapes_and_parameters(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "decompose", model, "--launches", "--host-calls")[1].splitlines()[3:]
    assert [line.split()[:2] for line in lines] == [
        ["0", "conv2d"], ["-", "view"], ["1", "relu"], ["2", "matmul"], ["3", "cumsum"],
    ]  # fmt: skip
    assert "1x64x56x56 -> 1x64x56x56" in lines[0] and "weight=64x64x3x3" in lines[0] and "groups=1" in lines[0]


def test_decompose_sums_up_by_module(capsys: pytest.CaptureFixture[str]) -> None:
    resnet = str(reference_model("resnet18"))
    lines = run(capsys, "decompose", resnet, "--input", "1x3x224x224", "--tree")[1].splitlines()
    assert re.search(r"^resnet18 +68 +3\.64 GFLOP +100\.0% ", lines[3])
    assert re.search(r"^      conv1 +1 +231 MFLOP .* conv2d -> 1x64x56x56$", lines[10])
    shallow = run(capsys, "decompose", resnet, "--input", "1x3x224x224", "--tree", "--depth", "1")[1]
    assert re.search(r"^  layer1 +14 .* 4 conv2d, 4 batch_norm, 4 relu, 2 add$", shallow, re.MULTILINE)
    tree = run_json(capsys, "decompose", resnet, "--input", "1x3x224x224", "--tree")["tree"]
    assert [module["module"] for module in tree][:7] == ["", "conv1", "bn1", "relu", "maxpool", "layer1", "layer1.0"]
    parts = [module for module in tree if module["depth"] == 1]
    assert sum(module["bytes"] for module in parts) == tree[0]["bytes"]
    assert sum(module["own_launches"] for module in tree) == tree[0]["launches"] == 68


def test_decompose_says_what_has_no_model_and_against_what(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(capsys, "decompose", model)[1]
    assert "unmodelled (kinds without a cost model in any profile)" in out
    assert re.search(r"^  cumsum +1 +0\.\d\d% of FLOPs +\d\.\d\d% of bytes$", out, re.MULTILINE)
    out = run(capsys, "decompose", model, "--profile", "small-sim")[1]
    assert "unmodelled by profile small-sim" in out
    assert re.search(r"^cumsum .* none$", out, re.MULTILINE) and re.search(r"^conv2d .* own$", out, re.MULTILINE)
    data = run_json(capsys, "decompose", model, "--profile", "small-sim")
    assert data["unmodelled_by"] == "profile small-sim"
    assert [kind["kind"] for kind in data["unmodelled"]] == ["cumsum"]


def test_a_network_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="pictures are matplotlib's; it is not installed")
    for name in ("googlenet", "vgg16"):
        path = tmp_path / f"{name}.png"
        assert run(capsys, "decompose", str(reference_model(name)), "--input", "1x3x224x224", "--plot", str(path))[0] == 0
        assert path.stat().st_size > 20_000


def test_decompose_json_is_the_networks(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = run_json(capsys, "decompose", model)
    assert set(data) >= {"inputs", "launches", "kinds"} and "host_calls" not in data
    assert set(data["launches"][0]) == {"kind", "scope", "inputs", "output", "dtype", "params", "flops", "bytes"}
    assert Network.from_json(run_json(capsys, "decompose", model, "--host-calls")) == NETWORK


def test_decompose_reads_torchscript(capsys: pytest.CaptureFixture[str]) -> None:
    reference = reference_model("resnet18")
    data = run_json(capsys, "decompose", str(reference), "--input", "1x3x224x224")
    assert data["kinds"] == {"conv2d": 20, "batch_norm": 20, "relu": 17, "add": 8, "max_pool2d": 1, "mean": 1, "matmul": 1}
    code, _, err = run(capsys, "decompose", str(reference))
    assert (code, "say the shape of its inputs" in err) == (2, True)
    assert run(capsys, "decompose", str(reference), "--input", "1x5x224x224")[0] == 3


def test_decompose_says_which_launches_are_assumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokens.json"
    first = NETWORK.launches[0]
    path.write_text(json.dumps(network(msgspec.structs.replace(first, params={**first.params, "assumed": True})).to_json()))
    code, _, err = run(capsys, "decompose", str(path))
    assert code == 0 and err.count("\n") == 1 and "1 copy is assumed" in err and "contiguous" in err


def test_decompose_shows_which_launch_reads_what_another_wrote(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    resnet = (str(reference_model("resnet18")), "--input", "1x3x224x224")
    out = run(capsys, "decompose", *resnet, "--graph")[1]
    assert "68 nodes, 75 edges; memory at least " in out
    assert re.search(r"^0 conv2d +1 batch_norm +1x64x112x112 +3\.21 MB$", out, re.MULTILINE)
    plain, data = run_json(capsys, "decompose", *resnet), run_json(capsys, "decompose", *resnet, "--graph")
    assert "graph" not in plain and data.pop("graph")["edges"][0] == {
        "source": 0, "target": 1, "shape": [1, 64, 112, 112], "bytes": 4 * 64 * 112 * 112,
    }  # fmt: skip
    assert data == plain
    assert run(capsys, "decompose", model, "--graph")[0] == 3  # a list without 'reads'


@pytest.mark.parametrize(("line", "why"), [("return x", "calls no operator"), ("return torch.view(x, [6])", "the host's")])
def test_decompose_says_why_a_list_is_empty(line: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "view.pt"
    path.write_bytes(archive(forward(line)))
    code, _, err = run(capsys, "decompose", str(path), "--input", "2x3")
    assert code == 0 and "view launches no kernel: " in err and why in err
