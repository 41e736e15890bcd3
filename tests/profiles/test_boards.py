# SPDX-License-Identifier: Apache-2.0
"""The board descriptions: what each says, how sure it is, and that a new board is one file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.errors import InputError
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.board import BOARDS_DIR, MARKS, SECTIONS, BoardDescription, list_boards, load_board
from jetdvfs.profiles.errors import BoardDescriptionError
from jetdvfs.profiles.twin.silicon.silicon import Silicon
from jetdvfs.tests.support.boards.hardware_kernel import TREE, XAVIER, FakeClock, Kernel
from jetdvfs.tests.support.paths import DOCS

FAMILY = [load_board(name) for name in list_boards()]


def named(board: BoardDescription) -> str:
    return board.name


SIBLINGS = {
    "agx-orin-industrial": "p3737-0000+p3701-0008",
    "agx-orin-p3701-0001": "p3737-0000+p3701-0001",
    "igx-orin": "p3740-0002+p3701-0008",
    "igx-orin-p3701-0002": "p3740-0002+p3701-0002",
    "thor-t4000": "p4071-0000+p3834-0000",
    "tx2-4gb": "p2771-0888",
    "tx2-nx": "p3509-0000+p3636-0001",
    "tx2i": "p3489-0000",
}
"""Boards that are described like another one, with a name that their device trees list."""


def test_the_family_is_described() -> None:
    assert set(list_boards()) >= {
        "agx-xavier",
        "xavier-nx",
        "tx2",
        "nano",
        "agx-orin-64gb",
        "agx-orin-32gb",
        "orin-nx-16gb",
        "orin-nx-8gb",
        "orin-nano-8gb",
        "orin-nano-4gb",
        "agx-thor",
        *SIBLINGS,
    }


@pytest.mark.parametrize("board", FAMILY, ids=named)
def test_every_section_says_how_sure_it_is(board: BoardDescription) -> None:
    for release in board.releases:
        assert {board.mark(section, release) for section in SECTIONS} <= set(MARKS)
    assert board.l4t.split(".")[0] in {release.l4t for release in board.releases}


@pytest.mark.parametrize("board", FAMILY, ids=named)
def test_every_board_is_known_by_any_name_of_its_own(board: BoardDescription) -> None:
    kernel = Kernel(board)
    for name in board.compatible[:-1]:
        kernel.store[f"{TREE}/compatible"] = f"{name}\0{board.compatible[-1]}\0"
        assert Hardware.probe(kernel, FakeClock()).description.name == board.name


@pytest.mark.parametrize("board", FAMILY, ids=named)
def test_cores_belong_to_one_policy_and_modes_stay_within_the_board(board: BoardDescription) -> None:
    assert sorted(cpu for policy in board.cpu_policies for cpu in policy.cpus) == list(range(board.cores))
    for modes in board.modes:
        assert modes.default in {mode.id for mode in modes.table}
        assert all(mode.cores is None or mode.cores <= board.cores for mode in modes.table)
        assert all(mode.gpu_hz is None or mode.gpu_hz >= board.grid.gpu_hz[0] for mode in modes.table)


@pytest.mark.parametrize(("name", "listed"), SIBLINGS.items())
def test_a_sibling_is_told_by_its_device_tree_and_says_what_is_assumed(
    name: str, listed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    board = load_board(name)
    kernel = Kernel(board)
    kernel.store[f"{TREE}/model"] = "Somebody's carrier\0"
    kernel.store[f"{TREE}/compatible"] = f"nvidia,{listed}\0nvidia,quill\0{board.compatible[-1]}\0"
    hardware = Hardware.probe(kernel, FakeClock())
    assert (hardware.description.name, hardware.description.like) == (name, "")
    assert hardware.grid() == board.grid
    assert board.sibling in list_boards() and board.sources
    assert main(["board", "show", name]) == 0
    shown = capsys.readouterr().out
    assert f"inherited from {board.sibling}, except where its file differs" in shown and f"read in: {board.sources[0]}" in shown


def test_a_module_on_a_carrier_of_another_make_is_that_of_the_developer_kit() -> None:
    kernel = Kernel(load_board("agx-orin-industrial"))
    kernel.store[f"{TREE}/model"] = "Somebody's carrier\0"
    kernel.store[f"{TREE}/compatible"] = "acme,box+p3701-0008\0nvidia,p3701-0008\0nvidia,tegra234\0"
    assert Hardware.probe(kernel, FakeClock()).description.name == "agx-orin-industrial"


def test_a_module_is_known_on_somebody_elses_carrier() -> None:
    kernel = Kernel()
    kernel.store[f"{TREE}/model"] = "Acme Vision Box\0"
    kernel.store[f"{TREE}/compatible"] = "acme,box3+p3767-0004\0nvidia,tegra234\0"
    assert Hardware.probe(kernel, FakeClock()).description.name == "orin-nano-4gb"


def test_without_a_device_tree_the_configuration_of_the_power_modes_names_the_module() -> None:
    kernel = Kernel()
    for name in ("model", "compatible"):
        del kernel.store[f"{TREE}/{name}"]
    with pytest.raises(InputError, match="says nothing"):
        Hardware.probe(kernel, FakeClock())
    kernel.store["/var/lib/nvpmodel/conf_file_path"] = "/etc/nvpmodel/nvpmodel_p3701_0004.conf\n"
    assert Hardware.probe(kernel, FakeClock()).description.name == "agx-orin-32gb"


def test_older_firmware_is_told_from_its_clocks() -> None:
    board = load_board("orin-nano-8gb")
    kernel = Kernel(board)
    assert not [note for note in Hardware.probe(kernel, FakeClock()).notes if "firmware" in note]
    kernel.store[f"{kernel.gpu}/available_frequencies"] = " ".join(map(str, board.firmware["base"].gpu_hz))
    hardware = Hardware.probe(kernel, FakeClock())
    assert hardware.grid().gpu_hz[-1] == 624750000
    (note,) = [note for note in hardware.notes if "firmware" in note]
    assert note == "GPU clock ends at 624.75 MHz as with firmware 'base'; this board is described up to 1020 MHz"


# Adding a board


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BOARDS_DIR, tmp_path / "boards"))


def add(folder: Path, **changes: object) -> BoardDescription:
    """Describe a new board by a file of its own: an Orin NX's, with other clocks in other places."""
    raw = yaml.safe_load((folder / "orin-nx-8gb.yaml").read_text())
    raw |= {"name": "new", "title": "New", "model": "New Board", "compatible": ["acme,new", "nvidia,tegra999"], "modules": []}
    raw["axes"] |= {"cpu_khz": [100000, 200000], "gpu_hz": [50000000, 70000000, 90000000], "emc_hz": [10000000, 20000000]}
    raw["gpu"]["devfreq"] = ["/sys/devices/new.gpu/devfreq/new.gpu"]
    raw["emc"] = {"drivers": ["devfreq"], "devfreq": "/sys/class/devfreq/new", "transition_ms": 3, "status": "derived"}
    raw |= changes
    (folder / "new.yaml").write_text(yaml.safe_dump(raw))
    return load_board("new", folder)


def test_adding_a_board_is_adding_one_file(folder: Path, tmp_path: Path) -> None:
    new = add(folder)
    assert new.mark("emc") == "derived"
    boards = [load_board(name, folder) for name in list_boards(folder)]
    hardware = Hardware.probe(Kernel(new), FakeClock(), boards=boards, baseline=tmp_path / "baseline.json")
    assert (hardware.description.name, hardware.grid().shape) == ("new", (2, 3, 2))
    applied = hardware.apply(FrequencyConfiguration(100000, 70000000, 20000000), "test")
    assert applied.verified
    assert "/sys/class/devfreq/new/min_freq" in {write.path for write in applied.writes}
    assert not hardware.restore().failed


INDUSTRIAL = """\
# NVIDIA Jetson AGX Orin Industrial: the 64GB's chip at other clocks.
like: agx-orin-64gb
name: agx-orin-industrial
title: NVIDIA Jetson AGX Orin Industrial
model: NVIDIA Jetson AGX Orin Industrial
compatible: ["nvidia,p3737-0000+p3701-0008", "nvidia,p3701-0008", "nvidia,tegra234"]
modules: [p3701-0008]
identity:
  status: {modules: verified, model: derived, compatible: derived}
axes:
  gpu_hz: [306000000, 408000000, 510000000, 612000000, 714000000, 816000000, 918000000, 1185000000]
  status: {cpu_khz: derived, gpu_hz: unknown, emc_hz: derived}
"""


def test_a_board_on_a_known_chip_says_only_what_differs(folder: Path) -> None:
    (folder / "agx-orin-industrial.yaml").write_text(INDUSTRIAL)
    new, known = (load_board(name, folder) for name in ("agx-orin-industrial", "agx-orin-64gb"))
    assert (new.title, new.modules, new.grid.gpu_hz[-1]) == ("NVIDIA Jetson AGX Orin Industrial", ("p3701-0008",), 1185000000)
    assert (new.monitors, new.modes, new.grid.cpu_khz) == (known.monitors, known.modes, known.grid.cpu_khz)
    verified = [name for name, mark in new.marks.items() if mark == "verified"]
    assert verified == ["identity.modules"] and new.mark("cpu") in ("derived", "unknown")
    silicon = Silicon(None, new)
    assert silicon.version == Silicon(None, known).version and set(silicon.rails) <= set(known.roles)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("like: agx-orin-64g", "no board 'agx-orin-64g'; did you mean 'agx-orin-64gb'"),
        ("like: agx-orin-industrial", "a board that is like itself: agx-orin-industrial -> agx-orin-industrial"),
    ],
)
def test_a_board_that_is_like_none_or_itself_is_refused_in_one_line(folder: Path, line: str, said: str) -> None:
    (folder / "agx-orin-industrial.yaml").write_text(INDUSTRIAL.replace("like: agx-orin-64gb", line))
    with pytest.raises(BoardDescriptionError, match=said) as caught:
        load_board("agx-orin-industrial", folder)
    assert "\n" not in str(caught.value)


def test_a_board_that_is_like_another_has_an_identity_of_its_own(folder: Path) -> None:
    (folder / "agx-orin-industrial.yaml").write_text(INDUSTRIAL.replace("modules: [p3701-0008]\n", ""))
    with pytest.raises(BoardDescriptionError, match="like agx-orin-64gb, but without modules of its own"):
        load_board("agx-orin-industrial", folder)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"fan": {}}, "no status in fan; valid: verified, derived, unknown"),
        ({"fan": {"status": "certain"}}, "line [0-9]+: fan.status: expected verified, derived or unknown, got 'certain'"),
        (
            {"releases": [{"jetpack": "6", "l4t": "36", "kernel": "5", "marks": {"fin": "verified"}}]},
            r"releases\[0\].marks.fin: expected identity, axes, .* or modes, got 'fin'",
        ),
        (
            {"releases": [{"jetpack": "6", "l4t": "36", "kernel": "5", "marks": {"fan": "certain"}}]},
            r"releases\[0\].marks.fan: expected verified, derived or unknown, got 'certain'",
        ),
    ],
)
def test_a_file_that_does_not_say_how_sure_it_is_is_refused(folder: Path, changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(BoardDescriptionError, match=complaint):
        add(folder, **changes)


@pytest.mark.parametrize(
    ("energy", "complaint"),
    [
        (["VDD_IN", "VDD_SOC"], "VDD_SOC lies within VDD_IN and would be counted twice"),
        (["VDD_SOX"], "no monitor measures 'VDD_SOX'; valid: VDD_CPU_GPU_CV, VDD_IN, VDD_SOC"),
    ],
)
def test_no_rail_is_counted_twice(folder: Path, energy: list[str], complaint: str) -> None:
    rails = yaml.safe_load((folder / "orin-nx-8gb.yaml").read_text())["rails"]
    with pytest.raises(BoardDescriptionError, match=complaint):
        add(folder, rails={**rails, "energy": energy})


MODE = {"id": 0, "name": "MAXN", "cores": 6, "cpus": 6}


@pytest.mark.parametrize(
    ("section", "changes", "complaint"),
    [
        ("rails", {"roles": {"VDD_IN": ["module"]}}, "rails: no roles of VDD_CPU_GPU_CV, VDD_SOC"),
        ("rails", {"roles": {"VDD_IN": ["sound"]}}, r"rails.roles.VDD_IN\[0\]: expected cpu, gpu, .* or other, got 'sound'"),
        ("rails", {"driver": None}, "rails.driver: expected a text, got None"),
        ("rails", {"monitors": [{"address": "1-0040"}]}, r"rails.monitors\[0\].hwmon: missing; expected a text"),
        ("cpu", {"cores": "six"}, "cpu.cores: expected a positive whole number, got 'six'"),
        ("axes", {"emc_hz": [2, 1]}, "grid axis emc_hz: expected positive frequencies in strictly rising order"),
        ("modes", {"own": {"conf": "own.conf", "default": 0, "table": [MODE]}}, r"table\[0\].cpus: unknown; valid: id"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_would_be_valid(
    folder: Path, section: str, changes: dict[str, object], complaint: str
) -> None:
    raw = yaml.safe_load((folder / "orin-nx-8gb.yaml").read_text())[section]
    with pytest.raises(BoardDescriptionError, match=complaint) as caught:
        add(folder, **{section: {**raw, **changes}})
    assert "new.yaml" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("board", FAMILY, ids=named)
def test_the_rails_of_the_host_feed_the_cpu_and_count_towards_energy(board: BoardDescription) -> None:
    for rail in board.host_rails:
        assert rail in board.energy_rails and "cpu" in board.roles[rail] and "gpu" not in board.roles[rail]
    assert bool(board.host_rails) == (len(board.energy_rails) > 1)  # where one rail feeds the whole module, none is the host's


# What is shown


def test_the_matrix_in_the_documentation_is_the_one_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "matrix"]) == 0
    printed = capsys.readouterr().out
    assert "| agx-xavier | 5 | 35 | 5.10 | verified |" in printed
    assert (DOCS / "boards.md").read_text() == printed, "write docs/boards.md anew: jetdvfs board matrix > docs/boards.md"
    assert main(["board", "matrix", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == sum(len(board.releases) for board in FAMILY)
    assert XAVIER.name in {row["board"] for row in rows}


def test_many_evenly_spaced_clocks_are_shown_by_their_ends_and_step(capsys: pytest.CaptureFixture[str]) -> None:
    axis = load_board("agx-thor").grid.gpu_hz
    assert main(["board", "show", "agx-thor"]) == 0
    (shown,) = (line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("GPU MHz"))
    first, *_, before, last = (f"{level / 1e6:g}" for level in axis)
    assert shown.split(": ")[1] == f"{first} to {before} in steps of {(axis[1] - axis[0]) / 1e6:g}, and {last}"
