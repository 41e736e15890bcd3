# SPDX-License-Identifier: Apache-2.0
"""The real jetson-stats service and client on simulated boards; and what the product uses the client for.

On the two boards of ``BOARDS``, or on one of every kind with ``JETDVFS_ALL_BOARDS=1``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from jetdvfs.daemon.cli.modes import switch_mode
from jetdvfs.daemon.errors import HardwareRefused, NotPermitted
from jetdvfs.daemon.hardware.jetson_stats import JetsonStats, connect
from jetdvfs.daemon.hardware.nvpmodel import ModeSwitch
from jetdvfs.daemon.hardware.power_modes import bound_levels
from jetdvfs.profiles.board import BoardDescription, PowerMode, load_board
from jetdvfs.profiles.twin.variant import boot_mode, installed, mode_set
from jetdvfs.tests.support.boards.whole_board import obstacle, run_on
from jetdvfs.tests.support.paths import ROOT

HERE = ROOT / "tests" / "support" / "boards"
BOARDS = ("agx-xavier", "agx-orin-64gb")
ONE_EACH_TIER = (BOARDS[0], pytest.param(BOARDS[1], marks=pytest.mark.slow))
OTHERS = ("nano", "tx2", "xavier-nx", "agx-orin-32gb", "orin-nx-16gb", "orin-nano-8gb", "agx-thor")


# The real one


def changes(board: BoardDescription) -> tuple[PowerMode, PowerMode]:
    """A mode that can be had at once, with as many cores as now, and one that needs a reboot; or the present one for lack."""
    now = boot_mode(board, mode_set(board))
    others = [mode for mode in mode_set(board).table if mode is not now]
    return (
        next((mode for mode in others if mode.masks == now.masks and mode.cores == now.cores), now),
        next((mode for mode in others if mode.masks != now.masks), now),
    )


@pytest.fixture(scope="module", params=BOARDS + OTHERS if os.environ.get("JETDVFS_ALL_BOARDS") else ONE_EACH_TIER)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[BoardDescription, dict[str, Any]]:
    """A board, and what the client said on it: ``before`` and ``after`` a change of the mode, and through the product."""
    if find_spec("jtop") is None:
        pytest.skip("the package jetson-stats is not installed (make test-jtop installs it)")
    if reason := obstacle():
        pytest.skip(reason)
    board = installed(load_board(request.param))
    first, second = changes(board)
    client = (sys.executable, str(HERE / "jetson_stats_client.py"), str(first.id), second.name)
    return board, json.loads(run_on(board.name, tmp_path_factory.mktemp("stage"), *client))


def gpus(board: BoardDescription, seen: dict[str, Any]) -> list[dict[str, Any]]:
    """The GPU's clock; a Thor's is asked of NVML, which simulated boards do not have."""
    found = list(seen["gpu"].values())
    assert len(found) == (board.soc != "tegra264")
    return found


@pytest.mark.jetson_stats
def test_it_reports_the_board(told: tuple[BoardDescription, dict[str, Any]]) -> None:
    board, said = told
    hardware = said["before"]["board"]
    assert (hardware["Model"], hardware["SoC"]) == (board.model, board.soc)
    assert hardware["L4T"].startswith(board.l4t)
    assert hardware["Module"].startswith("NVIDIA Jetson")
    assert said["product"]["module"] == hardware["Module"]


@pytest.mark.jetson_stats
def test_it_reports_the_clocks(told: tuple[BoardDescription, dict[str, Any]]) -> None:
    board, said = told
    grid, before = board.grid, said["before"]
    assert [core["info_freq"]["max"] for core in before["cpu"]] == [grid.cpu_khz[-1]] * board.cores
    assert all(core["freq"]["cur"] in grid.cpu_khz for core in before["cpu"])
    now = boot_mode(board, mode_set(board))
    for gpu in gpus(board, before):
        assert (gpu["min"] * 1000, gpu["max"] * 1000) == (grid.gpu_hz[0], bound_levels(grid.gpu_hz, now.gpu_hz)[-1])
    # It does not know where a Nano keeps the limits.
    if board.soc != "tegra210":
        assert before["emc"]["max"] * 1000 == bound_levels(grid.emc_hz, now.emc_hz)[-1]


@pytest.mark.jetson_stats
def test_it_reports_rails_and_temperatures(told: tuple[BoardDescription, dict[str, Any]]) -> None:
    board, said = told
    # A rail that is the whole board's is its total.
    whole = set(board.total_rails) if len(board.total_rails) == 1 else set()
    measured = {label for monitor in board.monitors for label in monitor.channels} - {"NC"} - whole
    rails = said["before"]["rails_mw"]
    assert measured <= set(rails)
    assert 100 < sum(rails.values()) < 60000
    temperatures = said["before"]["temperatures_c"]
    # A part without power has a zone that cannot be read.
    assert any("CPU" in name.upper() for name in temperatures) and len(temperatures) >= 4
    assert all(20 < temperature < 100 for temperature in temperatures.values())


@pytest.mark.jetson_stats
def test_it_changes_the_power_mode_through_the_boards_nvpmodel(told: tuple[BoardDescription, dict[str, Any]]) -> None:
    board, said = told
    before, after, first = said["before"], said["after"], changes(board)[0]
    assert before["modes"] == [mode.name for mode in mode_set(board).table]
    assert (before["mode"], after["mode"]) == (boot_mode(board, mode_set(board)).name, first.name)
    assert after["cpu"][0]["freq"]["max"] == bound_levels(board.grid.cpu_khz, first.cpu_khz)[-1]
    for gpu in gpus(board, after):
        assert gpu["max"] * 1000 == bound_levels(board.grid.gpu_hz, first.gpu_hz)[-1]


@pytest.mark.jetson_stats
def test_through_it_the_product_does_not_agree_to_a_reboot_either(told: tuple[BoardDescription, dict[str, Any]]) -> None:
    board, said = told
    first, second = changes(board)
    if second is not first and second.masks == first.masks:
        pytest.skip("none of this board's modes needs a reboot")
    assert said["product"] == {
        "module": said["before"]["board"]["Module"],
        "active": first.name,
        "done": second is first,
        "needs_reboot": second is not first,
    }


# The product's use of the client


class FakeModes:
    """The service of a board with three modes, of which the second needs a reboot; it takes its time to change."""

    models = ("MAXN", "15W", "30W")
    status = (True, False, True)

    def __init__(self) -> None:
        self.name = "MAXN"
        self.asked: list[tuple[int, bool]] = []
        self._looks = 0

    def set_nvpmodel_id(self, nvpmodel_id: int, force: bool = False) -> None:
        self.asked.append((nvpmodel_id, force))

    def pass_time(self, seconds: float) -> None:
        self._looks += 1
        if self.asked and self._looks == 3:
            self.name = self.models[self.asked[-1][0]]


class FakeClient:
    def __init__(self, modes: FakeModes | None) -> None:
        self.board = {"hardware": {"Module": "NVIDIA Jetson AGX Orin (64GB ram)"}}
        self.nvpmodel = modes
        self.closed = False

    def close(self) -> None:
        self.closed = True


def service(modes: FakeModes) -> JetsonStats:
    return JetsonStats(FakeClient(modes), modes.pass_time)


def test_a_mode_is_asked_of_the_service_without_force_and_waited_for() -> None:
    modes = FakeModes()
    switch = service(modes).switch(PowerMode(2, "30W"))
    assert (switch.done, switch.needs_reboot, modes.asked) == (True, False, [(2, False)])


def test_a_mode_that_needs_a_reboot_is_not_asked_of_the_service() -> None:
    modes = FakeModes()
    switch = service(modes).switch(PowerMode(1, "15W"))
    assert (switch.done, switch.active, switch.needs_reboot, modes.asked) == (False, "MAXN", True, [])


def test_a_mode_that_does_not_come_into_force_needs_a_reboot_where_it_changes_masks() -> None:
    class Deaf(FakeModes):
        status = (True, True, True)

        def pass_time(self, seconds: float) -> None:
            pass

    for masks, needs_reboot in ((("gpu_pg_mask",), True), ((), False)):
        switch = service(Deaf()).switch(PowerMode(1, "15W"), masks)
        assert (switch.done, switch.active, switch.needs_reboot) == (False, "MAXN", needs_reboot)


def test_the_service_cannot_be_asked_for_an_identifier_beyond_a_gap() -> None:
    modes = FakeModes()
    with pytest.raises(HardwareRefused, match="cannot be asked for mode 8 30W"):
        service(modes).switch(PowerMode(8, "30W"))
    with pytest.raises(HardwareRefused, match="has no nvpmodel"):
        JetsonStats(FakeClient(None)).switch(PowerMode(2, "30W"))
    assert modes.asked == []


def test_the_client_is_opened_where_the_service_is_and_closed_again(tmp_path: Path) -> None:
    client = FakeClient(FakeModes())
    (tmp_path / "jtop.sock").touch()
    for socket, open_client, module in (
        (tmp_path / "jtop.sock", lambda: client, "NVIDIA Jetson AGX Orin (64GB ram)"),
        (tmp_path / "jtop.sock", lambda: None, None),
        (tmp_path / "nowhere", lambda: client, None),
        (tmp_path / "jtop.sock", lambda: time.sleep(30), None),
    ):
        with connect(open_client, socket, 0.2) as stats:
            assert (stats and stats.module) == module
    assert client.closed


def test_who_is_not_root_changes_the_mode_through_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = FakeModes()
    mode = PowerMode(2, "30W")
    monkeypatch.setattr("jetdvfs.daemon.cli.modes.running_modes", lambda files: (None, ""))
    monkeypatch.setattr("jetdvfs.daemon.cli.modes.find_mode", lambda known, wanted: mode)
    monkeypatch.setattr("jetdvfs.daemon.cli.modes.active_mode", lambda files, known: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    stats: Callable[[], Any] = lambda: nullcontext(service(modes))  # noqa: E731
    data, lines = switch_mode("/", "30W", dry_run=False, stats=stats)
    assert lines == ["power mode 30W is in force"]
    assert data == {**asdict(ModeSwitch("30W", "30W", False, data["text"])), "done": True, "before": None}
    with pytest.raises(NotPermitted, match="only root may change it, or who may use a running jetson-stats service"):
        switch_mode("/", "30W", dry_run=False, stats=lambda: nullcontext(None))


def test_a_service_that_does_not_answer_in_time_is_as_none(tmp_path: Path) -> None:
    answers = threading.Event()

    def hangs() -> None:
        answers.wait(30)

    (tmp_path / "jtop.sock").touch()
    with connect(hangs, tmp_path / "jtop.sock", longest_s=0.05) as stats:
        assert stats is None
    answers.set()
