# SPDX-License-Identifier: Apache-2.0
"""decompose, predict and plan as a person or a script runs them."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.kernels.cost.model import Method, surface
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle import bundle
from jetdvfs.profiles.errors import BundleError
from jetdvfs.profiles.reference import reference_model
from jetdvfs.tests.support import handmade_gguf
from jetdvfs.tests.support.analytic import GRID, board, conv2d, matmul, network, relu, view
from jetdvfs.tests.support.handmade_gguf import gguf
from jetdvfs.tests.support.paths import REFERENCE

NETWORK = network(conv2d(), view(), relu(1 << 18), matmul(300), relu(1 << 16, kind="cumsum"))
COST = board(sigma=0.1, common=0.05)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "handmade.json"
    path.write_text(json.dumps(NETWORK.to_json(host_calls=True)))
    return str(path)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A profile whose manifest can be changed; the only one there is."""
    manifest = SimpleNamespace(
        name="small-sim",
        board="agx-xavier",
        simulated=True,
        temperature_c=45.0,
        leakage_fold_c=None,
        rails=("GPU",),
        described=lambda: load_board("agx-xavier"),
    )

    def load(name: str) -> SimpleNamespace:
        if name != manifest.name:
            raise BundleError(f"profile {name!r}: no such bundle; valid: {manifest.name}")
        return SimpleNamespace(manifest=manifest, cost=COST)

    monkeypatch.setattr(bundle, "load_bundle", load)
    return manifest


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_decompose_prints_each_kind_with_its_work(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "decompose", model)
    assert code == 0
    assert "handmade (1x3x224x224:float32): 4 launches of 4 distinct kernels, 1 host-only calls" in out
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
    assert "unmodelled (what no profile can have a model for)" in out
    assert re.search(r"^  cumsum +1 +0\.\d\d% of FLOPs +\d\.\d\d% of bytes$", out, re.MULTILINE)
    out = run(capsys, "decompose", model, "--profile", "small-sim")[1]
    assert "unmodelled by profile small-sim" in out
    assert re.search(r"^cumsum .* none$", out, re.MULTILINE) and re.search(r"^conv2d .* own$", out, re.MULTILINE)
    data = run_json(capsys, "decompose", model, "--profile", "small-sim")
    assert data["unmodelled_by"] == "profile small-sim"
    assert [kind["kind"] for kind in data["unmodelled"]] == ["cumsum"]


def test_the_fused_view_is_one_option_of_every_verb(
    simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    resnet = (str(reference_model("resnet18")), "--input", "1x3x224x224")
    data = run_json(capsys, "decompose", *resnet, "--fused")
    assert (data["kinds"]["fused_pointwise"], data["kinds"]["conv2d"], data["fused"]) == (17, 20, True)
    assert ", fused: 40 launches of" in run(capsys, "decompose", *resnet, "--fused")[1]
    profile = ("--profile", "small-sim")
    plain, fused = (run_json(capsys, "predict", *resnet, *profile, *option) for option in ((), ("--fused",)))
    assert fused["points"][0]["latency_ms"] < plain["points"][0]["latency_ms"]
    frozen = tmp_path / "frozen.json"
    frozen.write_text(json.dumps({**NETWORK.to_json(), "launches": [{**conv2d().to_json(), "kind": "conv2d_relu"}]}))
    assert run_json(capsys, "decompose", str(frozen))["fused"]
    note = "no model for conv2d_relu: the model of conv2d stands in, less certainly"
    assert note in run(capsys, "predict", str(frozen), *profile)[1]
    plan = run_json(capsys, "plan", *resnet, *profile, "--fused", "--target", "min-energy")
    assert plan["choice"]["latency_ms"] in np.array(fused["latency_ms"])
    explained = run_json(capsys, "explain", *resnet, *profile, "--fused")
    assert "fused_pointwise" in {part["kernel"]["kind"] for part in explained["kernels"]}


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


def test_predict_shows_what_stands_out_and_says_that_it_is_simulated(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "predict", model, "--profile", "small-sim")
    fastest = surface(NETWORK, COST).latency_ms.min()
    assert code == 0 and "simulated" in out
    assert re.search(rf"^lowest latency .* {fastest:.2f} ", out, re.MULTILINE)
    assert "no model for cumsum (1 launches" in out and "stands in" not in out
    simulated.simulated = False
    simulated.name = "small"
    assert "simulated" not in run(capsys, "predict", model, "--profile", "small")[1]


@pytest.mark.parametrize("method", ["timeline", "sum"])
def test_predict_saves_the_surface_of_the_method(
    method: Method, model: str, simulated: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "surface.npz"
    assert run(capsys, "predict", model, "--profile", "small-sim", "--method", method, "--save", str(saved))[0] == 0
    with np.load(saved) as arrays:
        np.testing.assert_array_equal(arrays["energy_mj"], surface(NETWORK, COST, method).energy_mj)


def test_predict_answers_at_a_configuration_in_mhz_or_the_kernels_units(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    points = [
        run_json(capsys, "predict", model, "--profile", "small-sim", "--config", text)["points"][-1]
        for text in ("1000,800,1600", "1000000,800000000,1600000000")
    ]
    assert points[0] == points[1]
    assert points[0]["configuration"] == {"cpu_khz": 1_000_000, "gpu_hz": 800_000_000, "emc_hz": 1_600_000_000}
    assert points[0]["latency_ms"] == surface(NETWORK, COST).latency_ms[1, 2, 1]


def test_predict_json_holds_the_whole_surface(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    data = run_json(capsys, "predict", model, "--profile", "small-sim")
    assert data["simulated"] is True and data["unmodelled"][0]["kind"] == "cumsum"
    assert np.shape(data["latency_ms"]) == GRID.shape and data["grid"]["cpu_khz"] == list(GRID.cpu_khz)


def test_plan_prints_the_choice_the_reasons_and_the_trade_off(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(
        capsys, "plan", model, "--profile", "small-sim", "--target", "latency_ms=3", "--fps", "20", "--confidence", "0.9"
    )
    assert code == 0 and "simulated" in out
    chosen = run_json(
        capsys, "plan", model, "--profile", "small-sim", "--target", "latency_ms=3", "--fps", "20", "--confidence", "0.9"
    )
    assert chosen["choice"]["latency_high_ms"] <= 3 and chosen["simulated"] is True
    assert f"set CPU {chosen['choice']['configuration']['cpu_khz'] / 1e3:.1f} MHz" in out
    assert chosen["why"].split(". ")[0] in out and "down on" in out and "per frame mJ" in out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["predict", "absent.pt", "--input", "1x3x224x224", "--profile", "small-sim"], 3, "absent.pt"),
        (["predict", "absent.json", "--profile", "small-sim"], 3, "absent.json: No such file"),
        (["predict", "MODEL", "--profile", "other"], 3, "valid: small-sim"),
        (["predict", "MODEL", "--profile", "small-sim", "--config", "1,2"], 2, "expected CPU,GPU,EMC"),
        (["predict", "MODEL", "--profile", "small-sim", "--config", "1000,801,1600"], 3, "GPU 801 MHz is not a frequency"),
        (["predict", "MODEL", "--profile", "small-sim", "--save", "/no/folder/x.npz"], 3, "/no/folder/x.npz: cannot write"),
        (["predict", "MODEL", "--profile", "small-sim", "--method", "magic"], 2, "invalid choice"),
        (["plan", "MODEL", "--profile", "small-sim", "--target", "speed"], 2, "valid: latency_ms=NUMBER"),
        (["plan", "MODEL", "--profile", "small-sim", "--target", "latency_ms=0.001"], 4, "the lowest latency is"),
        (["plan", "MODEL", "--profile", "small-sim", "--target", "min-energy", "--fps", "1e5"], 4, "100000 frames per second"),
        (["plan", "MODEL", "--profile", "small-sim", "--target", "min-energy", "--confidence", "95"], 2, "confidence=95"),
        (["plan", "MODEL", "--profile", "small-sim"], 2, "expected a --target, or --batches with a --deadline"),
        (["plan", "MODEL", "--target", "min-energy"], 2, "--profile NAME, one of "),
        (["decompose", "MODEL", "--deptj", "2"], 2, "--deptj 2: not known"),
        (["decompos", "MODEL"], 2, "invalid choice: 'decompos'"),
        (["predict", "MODEL", "--profile", "small-sim", "--fused"], 3, "decompose the model's file again"),
        (["decompose", "MODEL", "--depth", "2"], 2, "together with --tree"),
        (["decompose", "MODEL", "--tree", "--depth", "-1"], 2, "from 0 on"),
        (["decompose", "MODEL", "--tree", "--launches"], 2, "ask for one of them"),
        (["decompose", "MODEL", "--profile", "other"], 3, "valid: small-sim"),
        (["decompose", "MODEL", "--plot", "/no/folder/x.png"], 3, "cannot write the picture (No such file or directory)"),
        (["predict", "any.pt", "--input", "0x3x224x224", "--profile", "small-sim"], 3, "0 leaves nothing to run"),
        (["decompose", "MODEL", "--plot", "/"], 3, "its name must end in .png"),
    ],
)
def test_what_goes_wrong_ends_in_one_line_and_its_exit_code(
    arguments: list[str], code: int, says: str, model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, out, err = run(capsys, *(model if word == "MODEL" else word for word in arguments))
    assert (ended, out) == (code, "")
    assert says in err
    assert err.count("\n") == 1


def test_names_out_of_a_file_are_shown_as_they_stand(
    simulated: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="pictures are matplotlib's; it is not installed")
    odd = "\x1b[2J$\\frac$"
    named = network(conv2d(scope=odd), relu(1 << 18, kind=odd), name=odd)
    (tmp_path / "odd.json").write_text(json.dumps(named.to_json()))
    plot = ["--plot", str(tmp_path / "odd.png")]
    verbs = (["decompose", "--tree", *plot], ["decompose", "--launches"], ["plan", "--target", "min-energy", *plot])
    for verb in (*verbs, ["characterize", *plot], ["explain"]):
        code, out, err = run(capsys, *verb, "--profile", "small-sim", "--", str(tmp_path / "odd.json"))
        assert (code, err) == (0, "") and "?[2J$" in out and "\x1b" not in out


PART = {"operator": "torchvision::nms", "place": "line 7", "reason": "boxes decide"}
SENTENCE = "decomposed up to torchvision::nms at line 7: boxes decide; what follows is not counted"
FOR_WHOLE_NETWORKS = pytest.mark.parametrize(
    "verb", [["predict"], ["plan", "--target", "min-energy"], ["explain"], ["characterize"]], ids=lambda verb: verb[0]
)


@pytest.fixture
def part(tmp_path: Path, simulated: SimpleNamespace) -> str:
    """A list of launches that ends before its network does."""
    path = tmp_path / "detector.json"
    path.write_text(json.dumps({**NETWORK.to_json(), "boundary": PART}))
    return str(path)


def test_decompose_lists_a_part_of_a_network_and_says_where_it_ends(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "decompose", part)
    assert (code, err) == (0, f"note: handmade: {SENTENCE}\n")
    assert out.startswith("handmade (up to torchvision::nms) (1x3x224x224:float32): 4 launches")
    assert json.loads(run(capsys, "decompose", part, "--json")[1])["boundary"] == PART


def test_decompose_says_which_launches_are_assumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokens.json"
    first = NETWORK.launches[0]
    path.write_text(json.dumps(network(dataclasses.replace(first, params={**first.params, "assumed": True})).to_json()))
    code, _, err = run(capsys, "decompose", str(path))
    assert code == 0 and err.count("\n") == 1 and "1 copy is assumed" in err and "contiguous" in err


@FOR_WHOLE_NETWORKS
def test_a_part_of_a_network_is_not_taken_for_it(verb: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    for accepted in ((), ("--accept-boundary", "aten::nms")):
        code, out, err = run(capsys, *verb, part, "--profile", "small-sim", *accepted)
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert f"jetdvfs {verb[0]}: handmade: the list of launches ends at torchvision::nms" in err
        assert "boxes decide (line 7)" in err and "4 launches of 2" in err and "--accept-boundary torchvision::nms" in err
        assert ("not at aten::nms" in err) == bool(accepted)


@FOR_WHOLE_NETWORKS
def test_a_part_that_is_accepted_by_name_says_in_every_answer_what_it_is(
    verb: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted = (*verb, part, "--profile", "small-sim", "--accept-boundary", "aten::item", "--accept-boundary", PART["operator"])
    code, out, err = run(capsys, *accepted)
    assert (code, err) == (0, "")
    assert "handmade (up to torchvision::nms)" in out and SENTENCE in out
    data = run_json(capsys, *accepted)
    assert (data["networks"][0] if verb == ["characterize"] else data)["boundary"] == PART
    if verb[0] == "plan":
        assert data["why"].endswith(f"All of this is of a part of the network: {SENTENCE}.")


def test_a_saved_surface_says_that_it_is_of_a_part(part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--profile", "small-sim", "--accept-boundary", "torchvision::nms", "--save", str(tmp_path / "part.npz"))
    assert run(capsys, "predict", part, *asked)[0] == 0
    with np.load(tmp_path / "part.npz") as data:
        assert json.loads(str(data["about"]))["boundary"] == PART


def test_a_picture_of_a_part_says_so_in_its_title(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = pytest.importorskip("matplotlib.figure", reason="pictures are matplotlib's; it is not installed")
    said: list[str] = []
    monkeypatch.setattr(
        figures.Figure,
        "savefig",
        lambda figure, *_, **__: said.append(" ".join(text.get_text() for text in figure.findobj(figures.Text))),
    )
    asked = ("--profile", "small-sim", "--accept-boundary", "torchvision::nms", "--plot", str(tmp_path / "part.png"))
    for verb in (["predict"], ["plan", "--target", "min-energy"], ["characterize"]):
        assert run(capsys, *verb, part, *asked)[0] == 0
    assert run(capsys, "decompose", part, "--plot", str(tmp_path / "part.png"))[0] == 0
    assert len(said) == 4 and all("handmade (up to torchvision::nms)" in words for words in said)


def test_a_list_from_before_operators_were_named_is_read(
    simulated: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "old.json"
    for sentence, place, reason in (
        ("decomposed up to line 7: boxes: many", "line 7", "boxes: many"),
        ("boxes", "a place unknown", "boxes"),
    ):
        path.write_text(json.dumps({**NETWORK.to_json(), "boundary": sentence}))
        data = json.loads(run(capsys, "decompose", str(path), "--json")[1])
        assert data["boundary"] == {"operator": "unnamed", "place": place, "reason": reason}
        assert "--accept-boundary unnamed" in run(capsys, "explain", str(path), "--profile", "small-sim")[2]
    path.write_text(json.dumps({**NETWORK.to_json(), "boundary": ""}))
    assert "boundary" not in run_json(capsys, "explain", str(path), "--profile", "small-sim")


@pytest.mark.parametrize(
    "boundary", [5, [], {"operator": "aten::nms"}, {**PART, "operator": ""}, {**PART, "place": "x" * 1025}]
)
def test_a_boundary_of_another_form_is_refused(boundary: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.json").write_text(json.dumps({**NETWORK.to_json(), "boundary": boundary}))
    code, _, err = run(capsys, "decompose", str(tmp_path / "odd.json"))
    assert (code, err.count("\n")) == (3, 1)


def test_json_that_is_no_network_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("text.json", "not json"), ("list.json", "[]"), ("deep.json", "[" * 100_000)):
        (tmp_path / name).write_text(text)
        code, _, err = run(capsys, "decompose", str(tmp_path / name))
        assert (code, err.count("\n")) == (3, 1)


def test_explain_prints_the_kernels_what_bounds_them_and_each_step(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "explain", model, "--profile", "small-sim", "--config", "1000,400,1600")
    assert code == 0
    assert "handmade on agx-xavier, profile small-sim, at CPU 1000.0 MHz, GPU 400.00 MHz, EMC 1600.0 MHz" in out
    assert "simulated" in out
    assert re.search(r"^conv2d +conv +1x64x56x56 +compute +1 +1\.156 ", out, re.MULTILINE)
    assert re.search(r"^cumsum .* no model$", out, re.MULTILINE)
    assert re.search(r"^bound by compute \d\d\.\d%, ", out, re.MULTILINE)
    assert re.search(r"^  GPU up to 800 MHz +[\d.]+ +-\d", out, re.MULTILINE)
    assert "EMC up" not in out  # it is at its top


def test_explain_json_holds_the_whole_and_its_parts(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    data = run_json(capsys, "explain", model, "--profile", "small-sim")
    assert data["prediction"]["configuration"] == GRID.top._asdict() and data["simulated"] is True
    parts = data["idle_mj"] + data["host_mj"] + data["kernels_mj"]
    assert parts == pytest.approx(data["prediction"]["energy_mj"], rel=1e-5)
    assert {part["kernel"]["kind"] for part in data["kernels"]} == {"conv2d", "relu", "matmul", "cumsum"}
    assert [(step["axis"], step["direction"]) for step in data["steps"]] == [
        ("cpu_khz", "down"), ("gpu_hz", "down"), ("emc_hz", "down"),
    ]  # fmt: skip


def test_a_warning_takes_one_line(model: str) -> None:
    words = ["decompose", model, "--profile", "agx-xavier-sim"]
    code = f"import sys; sys.modules['jetdvfs.kernels.trees._sweep'] = None; from jetdvfs.daemon.cli import main; main({words})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "warning: jetdvfs was installed without its C core: tree ensembles are evaluated by NumPy, slowly\n"


@pytest.mark.parametrize("verb", ["decompose", "predict", "plan", "explain", "characterize"])
def test_help_has_examples_and_exit_codes(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0
    assert f"  jetdvfs {verb} resnet18" in out and "4  target not attainable" in out


def test_execution_and_what_a_frame_takes_besides_are_told(
    simulated: SimpleNamespace, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("predict", model, "--profile", "small-sim", "--execution", "graph", "--host-ms", "3")
    found = run_json(capsys, *asked)
    assert found["execution"] == "graph" and found["beside"] == {"host_ms": 3.0, "copied_bytes": 0}
    assert found["execution_note"].startswith("what starting a graph costs the host was not measured on this board")
    bare = run_json(capsys, "predict", model, "--profile", "small-sim")
    assert bare["execution"] == "eager" and bare["points"][0]["latency_ms"] + 2 < found["points"][0]["latency_ms"]
    code, out, _ = run(capsys, *asked)
    assert code == 0 and f"executed as graph: {found['execution_note']}" in out
    code, out, _ = run(capsys, "explain", model, "--profile", "small-sim", "--execution", "engine")
    assert code == 0 and "the host starts one engine in" in out
    code, _, err = run(capsys, "plan", model, "--profile", "small-sim", "--target", "min-energy", "--host-ms", "-1")
    assert code == 3 and "host_ms=-1" in err


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


@pytest.fixture
def language_model(tmp_path: Path) -> str:
    path = tmp_path / "small.gguf"
    path.write_bytes(gguf(*handmade_gguf.model()))
    return str(path)


def test_prompts_and_tokens_of_a_language_model_have_plans_of_their_own(
    language_model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["plan", language_model, "--prefill", "4096", "--decode", "64", "--profile", "small-sim"]
    targets = ["--target", "ttft_ms=100000", "--target", "min-edp"]
    code, out, _ = run(capsys, *both, *targets)
    assert code == 0 and "(prefill of 4096)" in out and "(decode of 64)" in out
    assert re.search(r"^ttft_ms \S+, mj_per_prompt ", out, re.MULTILINE) and re.search(
        r"^tokens_per_s \S+, mj_per", out, re.MULTILINE
    )
    plans = json.loads(run(capsys, *both, *targets, "--json")[1])
    assert list(plans) == ["prefill", "decode"]
    assert [one["target"] for one in plans.values()] == ["ttft_ms=100000", "min-edp"]
    assert plans["decode"]["tokens_per_s"] == pytest.approx(1e3 / plans["decode"]["choice"]["latency_ms"])
    assert plans["prefill"]["ttft_ms"] == plans["prefill"]["choice"]["latency_ms"]
    shared = json.loads(run(capsys, *both, "--target", "min-energy", "--json")[1])
    assert [one["target"] for one in shared.values()] == ["min-energy"] * 2
    alone = json.loads(
        run(capsys, "plan", language_model, "--decode", "64", *both[-2:], "--target", "tokens_per_s=1", "--json")[1]
    )
    assert alone["phase"] == "decode" and alone["choice"]["latency_ms"] <= 1e3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--prefill", "8", "--decode", "8", "--target", "ttft_ms=500"], "expected one for --decode, got none"),
        (["--decode", "8", "--target", "ttft_ms=500"], "ttft_ms=500 is said of a language model reading a prompt"),
        (["--decode", "8", "--target", "min-edp", "--target", "min-energy"], "--target: one of each network"),
        (
            ["--prefill", "8", "--decode", "8", "--target", "min-edp", "--target", "min-energy"],
            "expected one for --prefill, got min-edp and min-energy",
        ),
        (["--prefill", "8", "--decode", "8", "--target", "min-edp", "--plot", "x.png"], "--plot draws one plan"),
    ],
)
def test_targets_that_no_phase_has_are_refused(
    arguments: list[str], told: str, language_model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = run(capsys, "plan", language_model, "--profile", "small-sim", *arguments)
    assert code == 2 and told in error and error.count("\n") == 1


def test_a_network_without_tokens_has_no_target_in_tokens(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = run(capsys, "plan", model, "--profile", "small-sim", "--target", "tokens_per_s=20")
    assert (
        code == 2 and "tokens_per_s=20 is said of a language model making tokens (--decode), and this network is none" in error
    )


SQUEEZENET = str(REFERENCE / "squeezenet1_0.pt")


def test_batch_and_clocks_are_chosen_together(simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", SQUEEZENET, "--input", "x=1x3x64x64", "--profile", "small-sim", "--batches", "1,4,64"]
    found = json.loads(run(capsys, *asked, "--deadline", "1000", "--json")[1])
    items = {one["batch"]: one["item_mj"] for one in found["batches"]}
    assert list(items) == [1, 4, 64] and found["batch"] == min(items, key=lambda size: items[size])
    assert items[64] < items[1]  # the host's share of an item falls
    one, four, _ = found["batches"]
    assert four["items_per_s"] == pytest.approx(4e3 / four["choice"]["latency_ms"])
    tight = json.loads(run(capsys, *asked, "--deadline", str(four["top"]["latency_ms"] * 1.05), "--json")[1])
    assert "refusal" in tight["batches"][2] and tight["batch"] in (1, 4)
    code, out, _ = run(capsys, *asked, "--deadline", str(four["top"]["latency_ms"] * 1.05))
    assert code == 0 and "not within the deadline" in out and out.count("chosen") == 1
    assert run(capsys, *asked, "--deadline", str(one["top"]["latency_ms"] / 50))[0] == 4
    paced = json.loads(run(capsys, *asked, "--deadline", "1000", "--fps", "2", "--json")[1])
    assert [batch["fps"] for batch in paced["batches"]] == [2, 0.5, 2 / 64]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--batches", "1,2"], "expected --deadline MS"),
        (["--batches", "1,2", "--deadline", "5", "--target", "min-energy"], "no --target"),
        (["--batches", "1,0", "--deadline", "5"], "expected up to 16 batch sizes"),
        (["--deadline", "5"], "expected a --target, or --batches"),
        ([], "expected a --target, or --batches"),
    ],
)
def test_batches_without_a_deadline_are_refused(
    arguments: list[str], told: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = run(capsys, "plan", SQUEEZENET, "--input", "1x3x64x64", "--profile", "small-sim", *arguments)
    assert code == 2 and told in error and error.count("\n") == 1


def test_an_input_without_a_batch_has_none_to_be_changed(
    simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["plan", SQUEEZENET, "--input", "2x3x64x64", "--profile", "small-sim", "--batches", "1,2", "--deadline", "50"]
    code, _, error = run(capsys, *asked)
    assert code == 2 and "has no batch of 1 to be changed" in error
