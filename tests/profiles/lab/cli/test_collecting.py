# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab collect`` and ``cross-validate``: from this machine's processor to predictions of networks left out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from jetdvfs.daemon.cli import main as jetdvfs
from jetdvfs.profiles.adapt.measurements import Measurements
from jetdvfs.profiles.lab.cli import main
from jetdvfs.tests.support.paths import REFERENCE

IMAGE = ("--input", "1x3x32x32")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    torch = pytest.importorskip("torch", reason="PyTorch is what measures; it is not installed")
    folder, paths = tmp_path_factory.mktemp("models"), []
    for name, width in (("narrow", 8), ("middle", 12), ("wide", 24)):
        layers = (torch.nn.Conv2d(3, width, 3), torch.nn.ReLU(), torch.nn.Conv2d(width, width, 3), torch.nn.ReLU())
        path = folder / f"{name}.pt"
        torch.jit.save(torch.jit.script(torch.nn.Sequential(*layers).eval()), path)
        paths.append(str(path))
    return paths


@pytest.mark.slow
def test_networks_left_out_are_predicted_beside_what_they_took(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    record = tmp_path / "cpu.npz"
    arguments = ["collect", *models, *IMAGE, "--quick", "--kernels", "4", "--out", str(record)]
    assert main([*arguments, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["networks"] == 3 and planned["kernels"] > 8 and not record.exists()
    assert main([*arguments, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["kernels"] == planned["kernels"] == len(Measurements.load(record).invocations)
    assert main(["cross-validate", str(record), "--json"]) == 0
    judged = json.loads(capsys.readouterr().out)
    assert [one["network"] for one in judged["networks"]] == ["narrow", "middle", "wide"] and not judged["simulated"]
    for one in judged["networks"]:
        error = abs(one["predicted_ms"] / one["measured_ms"] - 1) * 100
        assert one["latency_percent"] == pytest.approx(error, abs=0.5) and one["energy_percent"] is None
    assert {one["kind"] for one in judged["kinds"]} >= {"conv2d"} and 0.5 < sum(
        one["share"] for one in judged["kinds"]
    ) <= 1.001
    assert main(["cross-validate", str(record), "--groups", "2"]) == 0
    shown = capsys.readouterr().out
    assert "measured ms" in shown and "mean error of latency" in shown and "no other device was seen" in shown
    assert "share of kernel time" in shown and "graph" not in shown


@pytest.fixture(scope="module")
def profile(models: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profile of this machine's processor, made of all models but the last."""
    pytest.importorskip("xgboost", reason="training needs xgboost")
    folder = tmp_path_factory.mktemp("processor")
    record, made = folder / "cpu.npz", folder / "cpu"
    assert main(["collect", *models[:-1], *IMAGE, "--quick", "--kernels", "6", "--out", str(record)]) == 0
    assert main(["train", str(record), "--out", str(made), "--dry-run"]) == 0
    assert not made.exists()
    assert main(["train", str(record), "--out", str(made)]) == 0
    return made


@pytest.mark.slow
def test_a_profile_is_made_of_this_machine_alone_and_predicts_a_network_it_never_measured(
    models: list[str], profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *measured, strange = models
    capsys.readouterr()
    assert jetdvfs(["profile", "show", str(profile), "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    assert manifest["device"]["name"] == manifest["board"] == "cpu" and not manifest["simulated"] and not manifest["rails"]
    assert {row["network"] for row in manifest["evaluation"]["unseen_network"]["networks"]} == {Path(m).stem for m in measured}
    assert jetdvfs(["profile", "show", str(profile)]) == 0
    assert "other boards were not seen" in capsys.readouterr().out
    assert jetdvfs(["predict", strange, *IMAGE, "--profile", str(profile), "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)
    assert predicted["energy_mj"] is None and predicted["points"][0]["power_mw"] is None and predicted["temperature_c"] is None
    again = tmp_path / "again.npz"
    assert main(["collect", *models, *IMAGE, "--quick", "--kernels", "1", "--out", str(again)]) == 0
    found = Measurements.load(again)
    what = [network.name for network in found.networks].index(Path(strange).stem)
    times = found.tables["network_ms"]
    took_ms, expected_ms = float(times.value[times.what == what][0]), predicted["latency_ms"][0][0][0]
    capsys.readouterr()
    print(f"left out of everything: predicted {expected_ms:.3f} ms, took {took_ms:.3f} ms ({expected_ms / took_ms - 1:+.0%})")
    assert 0 < expected_ms < float("inf") and took_ms > 0


@pytest.mark.slow
def test_a_profile_that_knows_times_only_says_so_instead_of_planning(
    models: list[str], profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    about = [models[0], *IMAGE, "--profile", str(profile)]
    for words in (
        ["plan", *about, "--target", "latency_ms=5"],
        ["predict", "--explain", *about],
        ["predict", *about, "--save", "s.npz"],
    ):
        assert jetdvfs(words) == 3
        told = capsys.readouterr().err
        assert "power was not measured" in told and told.count("\n") == 1
    assert jetdvfs(["predict", *about]) == 0
    shown = capsys.readouterr().out
    assert "knows times only" in shown and "energy mJ" not in shown


@pytest.fixture(scope="module")
def twin_record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was measured of one simulated board."""
    record = tmp_path_factory.mktemp("twin") / "twin.npz"
    networks = ["resnet18", "alexnet", "squeezenet1_0"]
    words = ["collect", *networks, "--meter", "simulated", "--board", "orin-nano-8gb", "--node", "4"]
    assert main([*words, "--kernels", "6", "--out", str(record)]) == 0
    return record


def test_a_simulated_boards_record_does_not_depend_on_interruptions(tmp_path: Path) -> None:
    words = ["collect", "squeezenet1_0", "--meter", "simulated", "--kernels", "1", "--folder", str(tmp_path / "kept")]
    assert main([*words, "--out", str(tmp_path / "one.npz")]) == 0
    units = sorted(tmp_path.glob("kept/*/unit-*.npz"))
    for number in (1, len(units) - 1):
        units[number].unlink()
    assert main([*words, "--out", str(tmp_path / "two.npz")]) == 0
    one, two = (Measurements.load(tmp_path / name).tables for name in ("one.npz", "two.npz"))
    for name, rows in one.items():
        assert (rows.value == two[name].value).all(), name


@pytest.mark.slow
def test_one_simulated_board_makes_a_profile_that_says_how_far_off_it_is_on_networks_left_out(
    twin_record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    capsys.readouterr()
    profile = tmp_path / "one"
    assert main(["train", str(twin_record), "--out", str(profile), "--name", "one", "--threads", "1", "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    assert manifest["nodes"] == [4] and manifest["simulated"] and manifest["silicon_version"] == "orin-nano-8gb-2"
    assert set(manifest["evaluation"]) == {"unseen_network"}
    for row in manifest["evaluation"]["unseen_network"]["networks"]:
        assert row["configurations"] == 12 and row["latency_percent"] < 40 and row["energy_percent"] < 40
    assert main(["evaluate", "--networks-left-out", "--profile", str(profile)]) == 0
    assert "on the only simulated orin-nano-8gb that was measured" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--simulated"], "--simulated --board NAME"),
        (["RECORD", "--simulated", "--board", "tx2"], "--simulated: RECORD has its own board"),
        ([], "no training data"),
    ],
)
def test_what_to_train_on_is_said_once(
    words: list[str], said: str, twin_record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(twin_record) if word == "RECORD" else word for word in words]
    assert main(["train", *words, "--out", str(tmp_path / "new")]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["collect", "model.onnx", *IMAGE, "--out", "r.npz"], 2, "not a file that PyTorch runs; valid: .pt, .pt2"),
        (["collect", str(REFERENCE / "resnet18.pt"), "--out", "r.npz"], 3, "say the shape of its inputs"),
        (["collect", "nowhere.pt", *IMAGE, "--out", "r.npz"], 3, "nowhere.pt"),
        (["collect", "resnet18", "--out", "nowhere/r.npz"], 3, "nowhere is not a folder"),
        (["collect", "resnet18", "--out", "r.npz", "--python", "/nowhere/python"], 3, "/nowhere/python cannot be started"),
        (["cross-validate", "nowhere.npz"], 3, "nowhere.npz"),
    ],
)
def test_what_cannot_be_measured_or_judged_is_one_line(
    words: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == code
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
    assert not list(tmp_path.iterdir())


WORKER = """
import json, os, sys
answer = {
    "torch": "2", "device_name": "stub", "threads": 1, "kinds": ["conv2d", "relu"], "ran": [], "timings": 5,
    "ms": 1.0, "period_ms": 1.0, "flops_per_s": 1e11, "bytes_per_s": 1e10,
}
for number, line in enumerate(sys.stdin):
    if number == LAST or number and os.path.exists("ENDED"):
        open("ENDED", "w").close()
        sys.exit(3)
    print(json.dumps(answer), flush=True)
"""


def stub(folder: Path, last: int = -1) -> str:
    """A Python whose worker takes a millisecond for everything, and ends at a request, then at the first of each new start."""
    ended = folder / "ended" if last >= 0 else ""
    (folder / "worker.py").write_text(WORKER.replace("LAST", str(last)).replace("ENDED", str(ended)))
    path = folder / "python"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} {folder / 'worker.py'}\n")
    path.chmod(0o755)
    return str(path)


def test_what_is_measured_is_kept_beside_the_record_until_that_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.npz"
    words = ["collect", "squeezenet1_0", "--quick", "--kernels", "1", "--out", str(out), "--python"]
    assert main([*words, stub(tmp_path, last=40)]) == 3
    said = capsys.readouterr().err
    assert "ended at 'kernel' with code 3" in said.splitlines()[-1] and " min left" in said
    before = len(list(tmp_path.glob("r.npz.parts/*/unit-*.npz")))
    assert before > 20 and not out.exists()
    assert main([*words[:3], "--seed", "1", *words[3:], stub(tmp_path), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hours"] >= 0
    assert main([*words, stub(tmp_path), "--seed", "1"]) == 0
    assert "r.npz.parts: keeps a campaign of other " in capsys.readouterr().err
    assert len(list(tmp_path.glob("r.npz.parts/*/unit-*.npz"))) == before  # those of the other one
    assert main([*words, stub(tmp_path)]) == 0
    assert "keeps a campaign" not in capsys.readouterr().err
    assert len(Measurements.load(out).tables["network_ms"]) == 1 and not out.with_name("r.npz.parts").exists()


def test_a_python_without_torch_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = tmp_path / "python"
    bare.write_text('#!/bin/sh\necho \'{"error": "python has no torch"}\'\n')
    bare.chmod(0o755)
    assert main(["collect", "resnet18", "--out", str(tmp_path / "r.npz"), "--python", str(bare)]) == 3
    assert capsys.readouterr().err.count("\n") == 1
