# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs setup``: from a new board to a profile of it, on a simulated board with the real daemon."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.cli.setup.board import ObservedRun, SetUpBoard, known_facts, spread_out
from jetdvfs.daemon.cli.setup.measuring import SetupPlan, measure
from jetdvfs.daemon.cli.setup.runners import Candidate, EngineRunner, TwinRunner
from jetdvfs.daemon.hardware.files import Files
from jetdvfs.kernels.cost.model import surface
from jetdvfs.profiles.adapt.application import Application
from jetdvfs.profiles.adapt.measurements import Measurements
from jetdvfs.profiles.adapt.prior import prior_of
from jetdvfs.profiles.adapt.trtexec import Trtexec
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.bundle.finding import resolve_bundle
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.reference import reference_input, reference_network
from jetdvfs.profiles.twin.cli.demo import DemoBoard, clock_files
from jetdvfs.profiles.twin.silicon.chip import Clocks
from jetdvfs.profiles.twin.silicon.silicon import Silicon
from jetdvfs.tests.support.models.handmade_engine import profile, small
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.profiles.trtexec_stand_in import write_engine, write_program

BOARD = load_board("agx-xavier")
PRIOR = "agx-xavier-sim"
NETWORKS = ("resnet18", "mobilenet_v2")
OTHER_SILICON = 1


@pytest.fixture(scope="module")
def stage() -> Iterator[DemoBoard]:
    """A simulated board of a silicon that no shipped profile has seen."""
    with DemoBoard(BOARD.name, 5, PRIOR, "auto", perturbed=OTHER_SILICON) as stage:
        yield stage


@pytest.fixture(scope="module")
def about(stage: DemoBoard) -> list[str]:
    return ["--root", str(stage.root), "--board", BOARD.name, "--prior", PRIOR]


@pytest.fixture(scope="module")
def done(stage: DemoBoard, about: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What setting the board up in a quarter of a minute told; the clocks before and after with it."""
    folder = tmp_path_factory.mktemp("setup")
    before = clock_files(Files(stage.root), BOARD)
    into, record = ["--into", str(folder / "profiles")], ["--record", str(folder / "record.npz")]
    words = ["setup", *NETWORKS, *about, "--bench", stage.application_port, "--minutes", "0.25", *into, *record, "--json"]
    with pytest.MonkeyPatch.context() as patch:
        told = folder / "told.json"
        with told.open("w") as file:
            patch.setattr(sys, "stdout", file)
            assert main(words) == 0
    return {**json.loads(told.read_text()), "before": before, "after": clock_files(Files(stage.root), BOARD)}


@pytest.mark.slow
def test_a_new_board_gets_a_profile_and_its_clocks_back(done: dict[str, Any]) -> None:
    assert done["done"] and done["simulated"] and done["prior"] == PRIOR
    assert done["before"] == done["after"]
    bundle = load_bundle(done["installed"])
    assert bundle.manifest.board == BOARD.name and bundle.manifest.carried is not None
    assert bundle.manifest.carried.observations == done["observations"] >= len(NETWORKS)


@pytest.mark.slow
def test_what_is_predicted_stands_beside_what_was_observed_where_nothing_was_before(done: dict[str, Any]) -> None:
    record, grid = Measurements.load(Path(done["record"])), BOARD.grid
    observed = {tuple(grid.configuration(_place(int(flat)))) for flat in record.tables["network_ms"].configuration}
    assert done["proof"]
    for row in done["proof"]:
        assert row["observed_ms"] > 0 and row["observed_mw"] > 0
        assert row["predicted_ms"] == pytest.approx(row["observed_ms"], rel=0.3)
    assert {tuple(row["configuration"].values()) for row in done["proof"]} - observed


@pytest.mark.slow
def test_the_adapted_profile_is_nearer_to_the_board_than_the_one_it_was_made_of(done: dict[str, Any]) -> None:
    record = Measurements.load(Path(done["record"]))
    before = prior_of(load_bundle(PRIOR), BOARD).cost
    after = load_bundle(done["installed"]).cost
    off = []
    for cost in (before, after):
        errors = []
        for what, network in enumerate(record.networks):
            rows = record.tables["network_mw"].where(record.tables["network_mw"].what == what)
            predicted = surface(network, cost).power_mw.ravel()[rows.configuration]
            errors += list(np.abs(np.log(predicted / rows.value)))
        off.append(float(np.mean(errors)))
    assert off[1] < off[0]


def test_a_dry_run_says_what_is_known_and_changes_nothing(
    stage: DemoBoard, about: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = clock_files(Files(stage.root), BOARD)
    assert main(["setup", *about, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert BOARD.title in said and PRIOR in said and "29 of 29 levels" in said and "VDDRQ" in said
    assert not list(tmp_path.iterdir()) and clock_files(Files(stage.root), BOARD) == before


@pytest.mark.slow
def test_setup_goes_on_with_a_record_of_other_networks_in_any_order(
    stage: DemoBoard, about: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, into = tmp_path / "record.npz", tmp_path / "my profiles"
    words = [*about, "--bench", stage.application_port, "--minutes", "0.2", "--record", str(record), "--into", str(into)]
    assert main(["setup", "squeezenet1_0", *words]) == 0
    first = Measurements.load(record)
    assert first.environment["l4t"] and first.environment["governors"]
    capsys.readouterr()
    assert main(["setup", "resnet18", "squeezenet1_0", *words]) == 0
    both = Measurements.load(record)
    assert [one.name for one in both.networks] == ["squeezenet1_0", "resnet18"]
    assert set(both.tables["network_ms"].what) == {0, 1} and len(both.tables["network_ms"]) > len(first.tables["network_ms"])
    said = capsys.readouterr().out
    assert f"--profile '{into / 'agx-xavier-adapted'}' --target" in said and "profile install '" in said
    assert load_bundle(resolve_bundle(into / "agx-xavier-adapted")).manifest.carried is not None


def test_a_record_of_another_board_is_not_gone_on_with(
    stage: DemoBoard, about: list[str], done: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record.npz"
    replace(Measurements.load(Path(done["record"])), silicon_version="").save(record)
    assert main(["setup", "resnet18", *about, "--bench", stage.application_port, "--record", str(record)]) == 3
    assert "is of another board, a real agx-xavier; give another --record" in capsys.readouterr().err


def test_clocks_that_cannot_be_set_are_told_without_advice_to_cool(stage: DemoBoard, tmp_path: Path) -> None:
    class Astray:
        """A board whose clocks cannot be set."""

        grid, description, sensors = BOARD.grid, BOARD, SimpleNamespace(energy_rails=BOARD.energy_rails)

        def at_first(self) -> dict[str, Any]:
            return {}

        def observe(self, client: Any, runner: Any, candidate: Any, configuration: Any, seconds: float) -> ObservedRun:
            return ObservedRun(configuration, 0.0, None, None, "cannot write cpufreq/scaling_setspeed: ENOENT")

    class Never:
        what, simulated = "nothing", True

    known = known_facts(SetUpBoard(stage.root, BOARD.name), PRIOR)
    plan = SetupPlan(Astray(), known, (_candidate("resnet18"),), 5.0, tmp_path / "r.npz", "made", tmp_path)  # type: ignore[arg-type]
    with pytest.raises(MeasurementError, match=r"ENOENT\); 0 are kept"):
        measure(plan, Never(), None, lambda *_: None)  # type: ignore[arg-type]


WORKER = """
import json, sys
answers = [{"torch": "2", "device_name": "stub"}, *[{"ms": 5.0, "ran": []}] * 3]
for line in sys.stdin:
    if not answers:
        sys.exit(3)
    print(json.dumps(answers.pop(0)), flush=True)
"""


def test_a_meter_that_dies_leaves_what_was_measured_and_the_clocks_as_they_were(
    stage: DemoBoard, about: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stub, record = tmp_path / "python", tmp_path / "record.npz"
    (tmp_path / "worker.py").write_text(WORKER)
    stub.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path / 'worker.py'}\n")
    stub.chmod(0o755)
    before = clock_files(Files(stage.root), BOARD)
    assert main(["setup", "resnet18", *about, "--python", str(stub), "--record", str(record), "--minutes", "1"]) == 3
    said = capsys.readouterr().err.strip().splitlines()
    assert "the PyTorch process ended at 'network' with code 3" in said[-1]
    assert len(Measurements.load(record).tables["network_ms"]) >= 1
    assert clock_files(Files(stage.root), BOARD) == before


@pytest.mark.slow
def test_a_board_that_throttles_all_the_time_is_told_and_given_back(
    about: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record.npz"
    with DemoBoard(BOARD.name, 6, PRIOR, "auto", perturbed=OTHER_SILICON) as hot:
        before = clock_files(Files(hot.root), BOARD)
        with Application(hot.application_port) as application:
            application.request("fault", kind="heat", degrees=51)
        words = ["--root", str(hot.root), "--bench", hot.application_port, "--minutes", "1", "--record", str(record)]
        assert main(["setup", "resnet18", *about, *words]) == 3
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert "observations one after the other do not count (it throttles" in said and "the clocks are back" in said
        after = clock_files(Files(hot.root), BOARD)
    # What heat takes from a limit, the kernel gives back step by step.
    assert {path: value for path, value in after.items() if "max_freq" not in path} == {
        path: value for path, value in before.items() if "max_freq" not in path
    }


@pytest.mark.slow
def test_what_is_observed_on_a_warm_board_is_what_a_profile_knows_of_a_cooler_one(tmp_path: Path) -> None:
    board, candidate, prior = BOARD, _candidate("squeezenet1_0"), load_bundle(PRIOR)
    silicon = Silicon(5, board)
    with DemoBoard(board.name, 5, PRIOR, "auto") as stage:
        with Application(stage.application_port) as application:
            application.request("fault", kind="heat", degrees=25)
        there = SetUpBoard(stage.root, board.name)
        plan = SetupPlan(there, known_facts(there, PRIOR), (candidate,), 6.0, tmp_path / "record.npz", "made", tmp_path)
        with there.daemon(own=False) as client, contextlib.closing(TwinRunner(Path(stage.application_port))) as runner:
            found = measure(plan, runner, client, lambda *_: None)
    low_c, high_c = found.environment["die_c"]
    assert 60 < low_c <= high_c < 89  # by the zones that throttle: PMIC-Die says 50 C whatever is the case
    assert found.temperature_c == prior.manifest.temperature_c
    rows = found.tables["idle_mw"]
    places = [board.grid.configuration(np.unravel_index(flat, board.grid.shape)) for flat in rows.configuration]
    true_mw = 1e3 * sum(silicon.sensed(silicon.idle_rails_w(Clocks.of(places)))[rail] for rail in board.energy_rails)
    assert np.median(rows.value / true_mw) == pytest.approx(1.0, abs=0.05)


def test_an_engine_is_observed_over_the_clocks_with_its_layers(stage: DemoBoard, tmp_path: Path) -> None:
    layers = {"Layers": small(), "Bindings": ["x", "y"]}
    times = json.loads(profile([layer["Name"] for layer in small()]))
    trtexec, path = Trtexec(write_program(tmp_path)), tmp_path / "small.engine"
    network = trtexec.network(write_engine(path, layers, times), ())
    write_engine(path, layers, times, port=stage.application_port, network=network.to_json(host_calls=True))
    board, record = SetUpBoard(stage.root, BOARD.name), tmp_path / "record.npz"
    plan = SetupPlan(board, known_facts(board, PRIOR), (Candidate(path, network, ()),), 1.5, record, "made", tmp_path)
    with board.daemon(own=False) as client:
        measure(plan, EngineRunner(trtexec), client, lambda done, total, text: None)
    found = Measurements.load(record)
    seen, kernels = found.tables["network_ms"], found.tables["kernel_ms"]
    assert len(seen) == len(found.tables["network_mw"]) >= 1
    assert len(kernels) == len(seen) * len(network.launches)
    assert set(kernels.configuration) == set(seen.configuration)
    assert [found.invocations[what].kind for what in kernels.what[:4]] == [launch.kind for launch in network.launches]
    assert kernels.value[:4] == pytest.approx([0.1, 0.2, 0.3, 0.4])


@pytest.mark.slow
def test_it_ends_when_plans_are_known_as_well_as_asked(stage: DemoBoard, tmp_path: Path) -> None:
    candidate = _candidate("resnet18")
    board, record = SetUpBoard(stage.root, BOARD.name), tmp_path / "record.npz"
    plan = SetupPlan(board, known_facts(board, PRIOR), (candidate,), 120.0, record, "made", tmp_path, accuracy=0.5)
    told: list[str] = []
    with board.daemon(own=False) as client, contextlib.closing(TwinRunner(Path(stage.application_port))) as runner:
        found = measure(plan, runner, client, lambda done, total, text: told.append(text))
        assert 1 <= len(found.tables["network_ms"]) <= 5 and told[0].endswith(" s left")
        before = len(found.tables["network_ms"])
        # A record that knows enough already is added nothing to.
        assert len(measure(plan, runner, client, lambda *_: None).tables["network_ms"]) == before


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--accuracy", "0"], 2, "--accuracy 0: expected a percentage"),
        (["--trtexec"], 2, "expected TensorRT engines as MODEL"),
        (["no.engine", "--trtexec"], 3, "no.engine: no such engine"),
        ([str(REFERENCE / "resnet18.pt"), "--trtexec", "/nowhere/trtexec"], 3, "/nowhere/trtexec cannot be started"),
        (["resnet18", "--trtexec", "--input", "1x3x224x224"], 2, "an engine's input needs a name"),
        (["--minutes", "0"], 2, "--minutes 0: expected 0.2 or more"),
        (["--minutes", "nan"], 2, "--minutes nan"),
        ([str(REFERENCE / "resnet18.pt")], 2, "say the shape of its inputs"),
        (["--prior", "nobodys"], 3, "nobodys"),
        (["--bench", "/nowhere/port"], 3, "/nowhere/port"),
        (["--python", "/nowhere/python"], 3, "/nowhere/python cannot be started"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_no_clock_is_touched(
    words: list[str], code: int, said: str, about: list[str], stage: DemoBoard, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    before = clock_files(Files(stage.root), BOARD)
    assert main(["setup", *about, *words]) == code
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
    assert clock_files(Files(stage.root), BOARD) == before and not list(tmp_path.iterdir())


def test_a_torch_without_cuda_is_told_before_anything_is_set(
    about: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what is asked")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    monkeypatch.chdir(tmp_path)
    assert main(["setup", *about]) == 3
    told = capsys.readouterr().err
    assert "CUDA" in told and told.count("\n") == 1 and not list(tmp_path.iterdir())


def test_observed_configurations_begin_at_the_top_and_leave_no_part_of_an_axis_out() -> None:
    found = spread_out(BOARD.grid, 60, seed=1)
    assert found[0] == BOARD.grid.top and len(set(found)) > 55
    for axis, levels in zip(np.array(found).T, (BOARD.grid.cpu_khz, BOARD.grid.gpu_hz, BOARD.grid.emc_hz), strict=True):
        assert len(set(axis.tolist())) >= 0.8 * len(levels)
    assert spread_out(BOARD.grid, 60, seed=2) != found


def _candidate(name: str) -> Candidate:
    return Candidate(REFERENCE / f"{name}.pt", reference_network(name), (reference_input(name),))


def _place(flat: int) -> list[int]:
    return [int(at) for at in np.unravel_index(flat, BOARD.grid.shape)]
