# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab collect --meter board``: kernels of a board whose clocks the real daemon holds, on a simulated one."""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.daemon.cli.setup.board import SetUpBoard
from jetdvfs.daemon.hardware.files import Files
from jetdvfs.daemon.wire.client import Client, HeldLease
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.cli.held_clocks import HeldClocks, SampledRails
from jetdvfs.profiles.lab.cli.twin_worker import TwinWorker
from jetdvfs.profiles.lab.measure.campaign import Campaign
from jetdvfs.profiles.lab.measure.gpus import SWITCH_S, measure_board, plan_board
from jetdvfs.profiles.lab.measure.meters.cpu import TimingLimits
from jetdvfs.profiles.lab.measure.meters.gpu import GpuMeter
from jetdvfs.profiles.lab.measure.meters.notes import CampaignNotes
from jetdvfs.profiles.lab.measure.processor import MeasuredModel, about_s, unit_s
from jetdvfs.profiles.reference import reference_input, reference_model
from jetdvfs.profiles.twin.cli.demo import DemoBoard, clock_files
from jetdvfs.profiles.twin.silicon.chip import Clocks
from jetdvfs.profiles.twin.silicon.silicon import Silicon

BOARD, NODE = load_board("agx-xavier"), 6
SHORT = TimingLimits(kernel_s=0.02, network_s=0.1, power_s=0.4, timings=10)
MEASURED = ("idle_mw", "network", "kernel_ms", "kernel_mw")
PART = FrequencyGrid(BOARD.grid.cpu_khz[8:], BOARD.grid.gpu_hz[3:7], BOARD.grid.emc_hz[-2:])


@pytest.fixture(scope="module")
def stage() -> Iterator[DemoBoard]:
    with DemoBoard(BOARD.name, NODE, "agx-xavier-sim", "auto") as stage:
        yield stage


@pytest.fixture(scope="module")
def model() -> MeasuredModel:
    path, given = reference_model("resnet18"), reference_input("resnet18")
    return MeasuredModel(path, decompose(path, (given,), name=path.stem), (given,))


def few(model: MeasuredModel, kinds: list[str]) -> Campaign:
    """One step of each kind, at one configuration; idle power at two."""
    whole = plan_board(BOARD, PART, [model], kinds, 1, quick=True)
    steps = [next(unit for unit in whole.units if unit.kind == kind) for kind in MEASURED]
    steps[1:] = [replace(unit, configurations=1) for unit in steps[1:]]
    return replace(whole, units=tuple(steps), size=replace(whole.size, idle_configurations=2))


@contextlib.contextmanager
def measuring(stage: DemoBoard, model: MeasuredModel) -> Iterator[tuple[CampaignNotes, TwinWorker, SampledRails, HeldClocks]]:
    board, notebook = SetUpBoard(stage.root, BOARD.name), CampaignNotes()
    with (
        contextlib.closing(TwinWorker(Path(stage.application_port), {model.path: model.network})) as worker,
        board.daemon(own=False) as client,
        SampledRails(board).sampling() as rails,
        contextlib.closing(HeldClocks(board, client, notebook, worker, rest_s=0.1)) as clocks,
    ):
        yield notebook, worker, rails, clocks


def test_kernels_are_measured_where_the_daemon_holds_the_clocks_which_go_back(
    stage: DemoBoard, model: MeasuredModel, tmp_path: Path
) -> None:
    before = clock_files(Files(stage.root), BOARD)
    with measuring(stage, model) as (notebook, worker, rails, clocks):
        campaign = few(model, worker.about["kinds"])
        found = measure_board(campaign, [model], worker, rails, clocks, SHORT, tmp_path, notebook=notebook)
    assert clock_files(Files(stage.root), BOARD) == before
    grid, silicon = BOARD.grid, Silicon(NODE, BOARD)
    (kernel,) = (campaign.invocations[what] for what in found.tables["kernel_ms"].what)
    places = {name: [grid.configuration(np.unravel_index(flat, grid.shape)) for flat in found.tables[name].configuration]
              for name in ("kernel_ms", "idle_mw", "network_ms")}  # fmt: skip
    for place in (place for some in places.values() for place in some):
        assert all(level in PART.levels(axis) for axis, level in place._asdict().items())
    true_ms = 1e3 * silicon.pairs([kernel], Clocks.of(places["kernel_ms"])).seconds
    assert found.tables["kernel_ms"].value == pytest.approx(true_ms, rel=0.1)
    idle = silicon.sensed(silicon.idle_rails_w(Clocks.of(places["idle_mw"])))
    assert found.tables["idle_mw"].value == pytest.approx(1e3 * sum(idle[rail] for rail in BOARD.energy_rails), rel=0.25)
    assert (found.tables["network_mw"].value > found.tables["idle_mw"].value.min()).all()
    assert len(list(tmp_path.rglob("unit-*.npz"))) == len(MEASURED)
    low_c, high_c = found.environment["die_c"]
    assert low_c <= found.temperature_c <= high_c < 50  # which the power supply's zone says always


def test_a_worker_that_fails_ends_it_with_the_clocks_back_and_what_was_measured_kept(
    stage: DemoBoard, model: MeasuredModel, tmp_path: Path
) -> None:
    before = clock_files(Files(stage.root), BOARD)
    with pytest.raises(MeasurementError, match="the GPU fell off"), measuring(stage, model) as (_, worker, rails, clocks):
        campaign = few(model, worker.about["kinds"])
        campaign = replace(campaign, units=campaign.units[::2], size=replace(campaign.size, idle_configurations=1))
        measure_board(campaign, [model], Failing(worker), rails, clocks, SHORT, tmp_path)
    assert clock_files(Files(stage.root), BOARD) == before
    assert len(list(tmp_path.rglob("unit-*.npz"))) == 1


class Failing:
    """A worker whose kernels fail."""

    def __init__(self, worker: TwinWorker) -> None:
        self._worker, self.about = worker, worker.about

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["do"] == "kernel":
            raise MeasurementError("meter: the GPU fell off")
        return self._worker.ask(request)


@pytest.mark.parametrize(("real", "counts"), [(1.01, True), (0.97, True), (0.9, False)])
def test_a_gpu_that_runs_slower_than_the_clock_that_is_held_does_not_count(stage: DemoBoard, real: float, counts: bool) -> None:
    class Cycles:
        about: Mapping[str, Any] = {}

        def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
            assert request == {"do": "gpu_clock"}
            return {"gpu_hz": real * BOARD.grid.gpu_hz[5]}

    board, notebook, at = SetUpBoard(stage.root, BOARD.name), CampaignNotes(), BOARD.grid.configuration((20, 5, 3))
    with board.daemon(own=False) as client, contextlib.closing(HeldClocks(board, client, notebook, Cycles())) as clocks:
        clocks.set(at)
        amiss = clocks.amiss()
    assert amiss == (
        "" if counts else f"the GPU is slower than its clock: {0.9 * at.gpu_hz / 1e6:.0f} of {at.gpu_hz / 1e6:.0f} MHz"
    )
    notebook.turn()
    assert notebook.told()["gpu_really_hz"] == {str(at.gpu_hz): round(real * at.gpu_hz)}


@pytest.mark.parametrize("name", ["nano", "tx2"])
def test_where_no_zone_says_that_it_throttles_the_die_is_as_warm_as_its_processors(name: str) -> None:
    with DemoBoard(name, NODE, f"{name}-sim", "auto") as stage:
        die_c = SetUpBoard(stage.root, name).die_c()
    assert die_c is not None and 25 < die_c < 49  # the power supply's zone says 50 or 100 C always


def test_what_is_known_of_the_board_before_it_is_measured_is_told_without_its_name(stage: DemoBoard) -> None:
    told = SetUpBoard(stage.root, BOARD.name).at_first()
    assert told["jetdvfs"] and told["l4t"] and told["power_mode"].startswith("0 ")
    assert 0 <= told["fan_drive"] <= 1 and set(told["governors"]) == {"cpu_khz", "gpu_hz", "emc_hz"}
    assert platform.node() not in json.dumps(told)


class HotFor:
    """Clocks of a board on which so many measurements do not count, or all at some clocks of the GPU."""

    def __init__(self, times: int = 0, gpu_hz: tuple[int, ...] = ()) -> None:
        self._times, self._gpu_hz, self.set_to = times, gpu_hz, list[FrequencyConfiguration]()

    def set(self, configuration: FrequencyConfiguration) -> None:
        self.set_to.append(configuration)

    def amiss(self) -> str:
        hot = len(self.set_to) <= self._times or self.set_to[-1].gpu_hz in self._gpu_hz
        return "it throttles: GPU-therm" if hot else ""


class Counting:
    """A worker that answers every request with how many there were."""

    about: Mapping[str, Any] = {"kinds": ["conv2d", "relu"]}
    asked = 0

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.asked += 1
        return {"ms": float(self.asked), "period_ms": float(self.asked), "ran": []}


class Steady:
    """Counters of energy of which each rail takes a joule between two readings."""

    rails = BOARD.energy_rails

    def read_uj(self) -> dict[str, int]:
        return dict.fromkeys(self.rails, 0)

    def since_mj(self, before: Mapping[str, int]) -> dict[str, float]:
        return dict.fromkeys(self.rails, 1e3)


def hot_meter(clocks: HotFor, notebook: CampaignNotes) -> GpuMeter:
    worker = Counting()
    lowest = BOARD.grid.configuration((0, 0, 0))
    return GpuMeter(worker, {}, Steady(), SHORT, clocks, lowest, notebook, wait=lambda seconds: None)


def test_what_was_measured_while_it_throttled_is_measured_again() -> None:
    clocks, notebook = HotFor(2), CampaignNotes()
    assert hot_meter(clocks, notebook).host_time_ms([], [BOARD.grid.top]) == 3.0
    assert clocks.set_to == [BOARD.grid.top] * 3
    notebook.turn()
    assert notebook.told() == {"rejected": {}, "measured_again": {"it throttles": 2}}


def test_a_board_that_stays_too_hot_ends_the_campaign_with_the_reason() -> None:
    clocks = HotFor(10_000)
    said = r"5 samples one after the other do not count, the last at .*: it throttles"
    with pytest.raises(MeasurementError, match=said) as told:
        hot_meter(clocks, CampaignNotes()).host_time_ms([], [BOARD.grid.top] * 20)
    assert "\n" not in str(told.value) and len(clocks.set_to) < 10  # which soon shows


def test_clocks_that_a_board_does_not_keep_are_left_out_and_the_rest_is_measured(model: MeasuredModel, tmp_path: Path) -> None:
    top = BOARD.grid.gpu_hz[-1]
    whole = plan_board(BOARD, BOARD.grid, [model], Counting.about["kinds"], 1, quick=True)
    found = measure_board(
        whole,
        [model],
        Counting(),
        Steady(),
        HotFor(gpu_hz=(top,)),
        replace(SHORT, power_s=0.0),
        tmp_path,
        notebook=CampaignNotes(),
    )
    for name in ("kernel_ms", "kernel_mw", "host_us", "host_active_mw", "idle_mw", "network_ms", "network_mw"):
        assert len(found.tables[name]), name
        assert top not in np.array(BOARD.grid.gpu_hz)[np.unravel_index(found.tables[name].configuration, BOARD.grid.shape)[1]]
    assert list(found.tables["network_ms"].configuration) == list(found.tables["network_mw"].configuration)
    rejected = found.environment["rejected"]["it throttles"]
    assert 2 * len(BOARD.grid.cpu_khz) <= rejected < found.environment["measured_again"]["it throttles"]
    again = measure_board(whole, [model], Counting(), Steady(), HotFor(), SHORT, tmp_path)
    assert again.environment["rejected"] == found.environment["rejected"]  # what is kept keeps that too


def test_a_dry_run_says_what_would_be_measured_and_how_long_it_takes(
    stage: DemoBoard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["collect", "resnet18", "--meter", "board", "--root", str(stage.root), "--bench", stage.application_port]
    assert main([*words, "--board", BOARD.name, "--out", str(tmp_path / "one.npz"), "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["configurations"] == BOARD.grid.size and told["hours"] > 0 and not list(tmp_path.iterdir())
    assert main(["collect", "resnet18", "--bench", stage.application_port, "--out", str(tmp_path / "one.npz")]) == 2
    assert "--bench: replaces PyTorch with --meter board" in capsys.readouterr().err


def test_more_kernels_and_slower_monitors_take_longer(model: MeasuredModel) -> None:
    few_of_them, many = (plan_board(BOARD, BOARD.grid, [model], ["conv2d", "relu"], count) for count in (2, 20))
    assert about_s(few_of_them, SHORT) < about_s(many, SHORT) < about_s(many, replace(SHORT, lead_s=3.4))


def test_an_interruption_loses_one_kernel_call_or_configuration(model: MeasuredModel) -> None:
    campaign = plan_board(BOARD, BOARD.grid, [model], ["conv2d", "relu"], 2)
    for unit in campaign.units:
        assert len(unit.what) == 1 or (unit.kind == "kernel_mw" and len(unit.what) <= 4 and len(unit.part) == 1)
        assert unit.part or campaign.samples(unit) == unit.configurations
        assert unit_s(campaign, unit, TimingLimits(power_s=0.6), SWITCH_S) < 20
    whole = sum(campaign.samples(unit) for unit in campaign.units if unit.kind == "idle_mw")
    assert whole == campaign.size.idle_configurations


def test_power_of_four_kernels_is_measured_while_clocks_are_held_once(
    stage: DemoBoard, model: MeasuredModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, hold = [], Client.hold

    def counted(client: Client, **what: Any) -> HeldLease:
        asked.append(what["configuration"])
        return hold(client, **what)

    monkeypatch.setattr(Client, "hold", counted)
    with measuring(stage, model) as (notebook, worker, rails, clocks):
        campaign = few(model, worker.about["kinds"])
        (power,) = (unit for unit in campaign.units if unit.kind == "kernel_mw")
        campaign = replace(campaign, units=(power,))
        found = measure_board(campaign, [model], worker, rails, clocks, SHORT, tmp_path, notebook=notebook).tables["kernel_mw"]
    assert len(power.what) == 4 and set(found.what) <= set(power.what) and len(set(found.configuration)) == 1
    grid = BOARD.grid
    assert asked == [grid.configuration(np.unravel_index(found.configuration[0], grid.shape))]


def test_a_campaign_of_a_part_of_the_grid_is_another_one(model: MeasuredModel) -> None:
    whole, part = (plan_board(BOARD, grid, [model], ["conv2d"], 1, quick=True) for grid in (BOARD.grid, PART))
    assert whole.offered is None and part.offered == PART and whole.digest != part.digest
