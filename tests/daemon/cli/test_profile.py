# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs profile`` lists, shows and installs; the lab's verbs refuse in one line; moved verbs say where to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.daemon.cli import main as jetdvfs
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.train import production
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.tests.support.profiles import analytic
from jetdvfs.tests.support.profiles.small_bundle import make_bundle


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data/jetdvfs/bundles"


def test_an_installed_profile_is_listed_and_shown(tmp_path: Path, folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_bundle(tmp_path / "mine")
    assert jetdvfs(["profile", "install", str(tmp_path / "mine"), "--into", str(folders)]) == 0
    capsys.readouterr()
    assert jetdvfs(["profile", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["mine"]["board"] == "agx-xavier" and rows["mine"]["simulated"] is True
    assert jetdvfs(["profile", "show", "mine"]) == 0
    shown = capsys.readouterr().out
    assert "simulated" in shown and "3654" in shown and "relu" in shown
    assert jetdvfs(["profile", "show", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["silicon_version"] == "test-1"


def test_a_dry_run_installs_nothing(tmp_path: Path, folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_bundle(tmp_path / "mine")
    assert jetdvfs(["profile", "install", str(tmp_path / "mine"), "--into", str(folders), "--dry-run"]) == 0
    assert "sound" in capsys.readouterr().out and not folders.exists()
    assert jetdvfs(["profile", "install", str(tmp_path / "mine"), "--into", str(folders), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "mine" and not folders.exists()


def test_a_damaged_profile_is_listed_as_such(tmp_path: Path, folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_bundle(folders / "broken")
    (folders / "broken/manifest.json").write_text("{}")
    assert jetdvfs(["profile", "list"]) == 0
    assert "broken" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["show", "nothing"], ["install", "nowhere"]])
def test_a_profile_that_is_not_there_ends_with_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert jetdvfs(["profile", *arguments]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and arguments[-1] in said


def test_real_boards_are_not_trained_on_from_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--board", "agx-xavier", "--out", str(tmp_path / "out")]) == 2
    assert "--simulated" in capsys.readouterr().err


def _planned(out: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """What a dry run of training says."""
    pytest.importorskip("xgboost", reason="training needs xgboost")
    command = ["train", "--board", "agx-xavier", "--simulated", "--quick", "--out", str(out), "--dry-run", "--json"]
    assert main(command) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["networks"] == len(reference_names()) and not out.exists()
    return said


@pytest.fixture
def few_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two random kernels of each kind: to choose as many as a profile is trained on takes a minute."""
    size = replace(production.QUICK, random_kernels={}, random_kernels_default=2)
    monkeypatch.setattr(production, "QUICK", size)


@pytest.mark.usefixtures("few_kernels")
def test_a_dry_run_of_training_says_what_would_be_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_networks = {launch.signature for name in reference_names() for launch in reference_network(name).launches}
    assert _planned(tmp_path / "out", capsys)["kernels"] > len(of_networks)


def test_a_profile_of_silicon_that_is_not_here_is_not_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    make_bundle(tmp_path / "mine")
    assert main(["evaluate", "--profile", str(tmp_path / "mine"), "--configs", "2"]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no simulated silicon 'test-1'; valid: agx-xavier-" in said


def test_training_into_a_folder_that_is_not_empty_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    (tmp_path / "precious").write_text("keep")
    assert main(["train", "--board", "agx-xavier", "--simulated", "--quick", "--out", str(tmp_path)]) == 3
    assert "not empty" in capsys.readouterr().err and (tmp_path / "precious").read_text() == "keep"
    file = str(tmp_path / "precious")
    assert main(["train", "--board", "agx-xavier", "--simulated", "--out", file, "--dry-run"]) == 3
    assert "no folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("silicon", "gate", "--samples", "-1"), "--samples: expected a whole number from 1"),
        (("silicon", "gate", "--rounds", str(10**20)), "--rounds: expected a whole number from 1"),
        (("silicon", "gate", "--rounds", "0"), "--rounds: expected a whole number from 1"),
        (("silicon", "gate", "--threads", "0"), "--threads: expected a whole number from 1"),
        (("evaluate", "--configs", "0"), "--configs: expected a whole number from 1"),
        (("evaluate", "--node", "-1"), "--node: expected a whole number from 0"),
        (("train", "--board", "agx-xavier", "--out", "new", "--seed", "-1"), "--seed: expected a whole number from 0"),
        (("silicon", "comparison", "--data", "nowhere"), "--data: expected a folder, got 'nowhere'"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_is_begun(
    words: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([*words])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    said = capsys.readouterr()
    assert (code, said.out, said.err.count("\n")) == (2, "", 1)
    assert named in said.err


def test_a_profile_that_knows_no_temperature_says_so_and_is_not_asked_for_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_bundle(tmp_path / "cold")
    make_bundle(tmp_path / "warm", leakage_mw=1000)
    network = Path(tmp_path / "net.json")
    network.write_text(json.dumps(analytic.network(analytic.relu()).to_json()))
    asked = ["predict", str(network), "--profile"]
    assert jetdvfs([*asked, str(tmp_path / "cold")]) == 0
    assert "with the die at 45 C; this profile knows no other temperature" in capsys.readouterr().out
    assert jetdvfs([*asked, str(tmp_path / "cold"), "--temperature", "60"]) == 3
    assert capsys.readouterr().err == "jetdvfs predict: temperature: idle power is known at one temperature only\n"
    powers = []
    for words in ([], ["--temperature", "45"], ["--temperature", "83"]):
        assert jetdvfs([*asked, str(tmp_path / "warm"), "--json", *words]) == 0
        said = json.loads(capsys.readouterr().out)
        powers.append(np.array(said["idle_mw"]))
        assert said["temperature_c"] == (float(words[1]) if words else 45.0)
    np.testing.assert_allclose(powers[1], powers[0])
    np.testing.assert_allclose(powers[2] - powers[0], 1000 * (np.e - 1), rtol=1e-3)
    assert jetdvfs([*asked, str(tmp_path / "warm"), "--temperature", "400"]) == 3
    assert "temperature 400 C: expected one of a die that works" in capsys.readouterr().err
    assert jetdvfs(["profile", "show", str(tmp_path / "warm")]) == 0
    assert "leakage grows e-fold in 38.0 C" in capsys.readouterr().out


def test_warming_into_a_folder_that_is_not_empty_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_bundle(tmp_path / "cold")
    assert main(["train", str(tmp_path / "cold"), "--out", str(tmp_path)]) == 3
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "now"),
    [
        (("profile", "train", "--board", "tx2"), "jetdvfs-lab train"),
        (("profile", "judge", "record.npz"), "jetdvfs-lab cross-validate"),
        (("characterize",), "jetdvfs-lab paper characterize"),
        (("trace", "check", "trace.json"), "jetdvfs-lab trace"),
    ],
)
def test_a_verb_that_moved_says_where_to(words: tuple[str, ...], now: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert jetdvfs(words) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"jetdvfs {words[0]}: moved to: {now}\n")
