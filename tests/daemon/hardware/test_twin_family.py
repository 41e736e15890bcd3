# SPDX-License-Identifier: Apache-2.0
"""The hardware layer on every described board's twin, on each of its JetPacks, with each of its firmwares and power modes."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.errors import HardwareBusy, HardwareRefused
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.leases.demand import DemandMonitor
from jetdvfs.daemon.leases.demand_floors import FloorRules
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.profiles.board import BOARDS_DIR, list_boards, load_board, parse_board
from jetdvfs.profiles.documents import laid_over
from jetdvfs.profiles.errors import TwinError
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.profiles.twin.variant import installed
from jetdvfs.tests.support.boards.twin_fakes import TreeFiles, VirtualClock, fake_board
from jetdvfs.tests.support.boards.twin_family import FAMILY, USUAL, Found, System
from jetdvfs.tests.support.snapshots import record, recorded


def found(system: System, folder: Path, **how: str) -> Found:
    return Found(fake_board(VirtualClock(), system.board, jetpack=system.jetpack, **how), folder)


def corners(grid: FrequencyGrid) -> tuple[FrequencyConfiguration, ...]:
    axes = (grid.cpu_khz, grid.gpu_hz, grid.emc_hz)
    middle = FrequencyConfiguration(*(axis[len(axis) // 2] for axis in axes))
    bottom = FrequencyConfiguration(*(axis[0] for axis in axes))
    return middle, grid.top, bottom


@pytest.mark.parametrize("system", FAMILY, ids=str)
def test_a_twin_is_recognised_offers_its_grid_obeys_and_is_given_back(system: System, tmp_path: Path) -> None:
    one = found(system, tmp_path)
    hardware, described = one.hardware, one.board.description
    before = one.settings()
    assert hardware.description.name == system.board
    assert hardware.identity.jetpack.startswith(system.jetpack)
    assert hardware.identity.l4t == described.l4t
    assert hardware.mode() is not None
    # A board whose firmware offers less than the description says so, and nothing else is out of order.
    assert all("ends at" in note for note in hardware.notes), hardware.notes
    axes = ("cpu_khz", "gpu_hz", "emc_hz")
    offered = {name: getattr(hardware.grid(), name) for name in axes}
    cap = hardware.mode()
    for name in axes:
        limit = getattr(cap, name)
        table = getattr(described.grid, name)
        assert offered[name] == tuple(rate for rate in table if limit is None or rate <= limit), name
    for configuration in corners(hardware.grid()):
        applied = hardware.apply(configuration, "test")
        assert applied.verified, applied.notes
        assert one.board.configuration == configuration
    assert hardware.restore().failed == ()
    assert one.settings() == before
    assert not one.baseline.exists()


@pytest.mark.parametrize("system", FAMILY, ids=str)
def test_what_a_twin_measures_is_what_its_description_says(system: System, tmp_path: Path) -> None:
    one = found(system, tmp_path)
    sensors, described = one.hardware.sensors, one.board.description
    one.board.clock.sleep(5.0)
    rails_mw = sensors.rails_mw()
    assert set(rails_mw) == {rail for monitor in described.monitors for rail in monitor.channels if rail != "NC"}
    assert sum(rails_mw[rail] for rail in described.total_rails) > 0
    parts = described.section("twin")["thermal"]["zones"]
    zones = {name for name in described.section("thermal")["zones"] if not parts[name].get("part")}
    assert zones <= set(sensors.temperatures_mc()) <= set(described.section("thermal")["zones"])
    fan = one.hardware.fan()
    assert fan is not None and 0.0 <= fan.drive <= 1.0
    counts = {f"oc{number}" for number in described.section("throttling").get("events", ())}
    assert set(sensors.over_current()) == (counts if "over_current" in described.section("twin") else set())


@pytest.mark.parametrize("system", FAMILY, ids=str)
def test_the_daemon_finds_what_counts_the_memorys_activity(system: System, tmp_path: Path) -> None:
    one = found(system, tmp_path)
    meter = DemandMonitor(one.files, one.hardware.description, one.board.clock.monotonic, one.hardware, FloorRules())
    assert meter.notes == ()


@pytest.mark.parametrize("system", FAMILY, ids=str)
def test_every_file_of_a_twin_can_be_read_and_every_link_leads_somewhere(system: System) -> None:
    tree = fake_board(VirtualClock(), system.board, jetpack=system.jetpack).tree
    unread = []
    for path, attribute in tree.files():
        try:
            assert attribute.read is None or tree.read(path), path
        except BlockingIOError:
            unread.append(path)
    # Zones of parts without power, since JetPack 6.
    assert all(path.endswith("/temp") for path in unread)
    assert bool(unread) == ("orin" in system.board and system.jetpack != "5")
    for path, link in tree.links():
        assert tree.exists(tree.resolve(path)), f"{path} -> {link.target}"


def transitions(system: System, folder: Path) -> Iterator[str]:
    one = found(system, folder)
    for title, configuration in zip(("taken over", "all up", "all down"), corners(one.hardware.grid()), strict=True):
        one.hardware.apply(configuration, "test")
        yield f"{title}: {' '.join(map(str, configuration))}"
        yield from (f"  {write}" for write in one.writes())
    one.hardware.restore()
    yield "given back:"
    yield from (f"  {write}" for write in one.writes())


@pytest.mark.parametrize("system", FAMILY, ids=str)
def test_the_ordered_writes_on_every_twin(system: System, tmp_path: Path) -> None:
    made = "\n".join(transitions(system, tmp_path))
    assert made == recorded(system.board, f"JetPack {system.jetpack}"), "if the order was meant to change: run this file"


@pytest.mark.parametrize("name", list_boards())
def test_every_board_says_what_its_twin_was_calibrated_on(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = load_board(name).section("twin")["calibrated_on"]
    assert main(["board", "show", name]) == 0
    assert f"its simulated board was calibrated on: {said}" in capsys.readouterr().out


# Firmware and power modes


def test_older_firmware_caps_an_orin_nano_super(tmp_path: Path) -> None:
    one = found(System("orin-nano-8gb", ""), tmp_path, firmware="base")
    grid = one.hardware.grid()
    assert (grid.gpu_hz[-1], grid.cpu_khz[-1], grid.emc_hz[-1]) == (624750000, 1510400, 2133000000)
    assert any("as with firmware 'base'" in note for note in one.hardware.notes)
    mode = one.hardware.mode()
    assert mode is not None and mode.name == "15W"


@pytest.mark.parametrize(
    ("board", "mode", "cores", "tops"),
    [
        ("agx-orin-64gb", "MODE_30W", "0-7", (1728000, 612000000, 3199000000)),
        ("agx-orin-64gb", "MODE_15W", "0-3", (1113600, 408000000, 2133000000)),
        ("tx2", "MAXQ", "0,3-5", (1113600, 726750000, 1331200000)),
        ("nano", "5W", "0-1", (825600, 614400000, 1600000000)),
        ("agx-thor", "120W", "0-13", (2601000, 1386000000, 4266000000)),
    ],
)
def test_the_grid_is_that_of_the_power_mode(
    board: str, mode: str, cores: str, tops: tuple[int, int, int], tmp_path: Path
) -> None:
    one = found(System(board, ""), tmp_path, mode=mode)
    assert one.files.read_text("/sys/devices/system/cpu/online") == cores
    assert one.hardware.grid().top == tops
    assert one.hardware.apply(one.hardware.grid().top, "test").verified
    assert one.hardware.restore().failed == ()


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"jetpack": "6"}, "board tx2: no simulated JetPack '6'; valid: 4"),
        ({"firmware": "super"}, "board tx2: no firmware 'super'; valid: variant"),
    ],
)
def test_what_a_board_cannot_be_is_refused(how: dict[str, str], complaint: str) -> None:
    with pytest.raises(TwinError, match=complaint):
        installed(load_board("tx2"), **how)
    with pytest.raises(TwinError, match="no power mode 'MAXP'; valid: MAXN, MAXQ"):
        fake_board(name="tx2", mode="MAXP")


# Faults, on every board


@pytest.mark.parametrize("system", USUAL, ids=str)
def test_faults_happen_on_every_board(system: System, tmp_path: Path) -> None:
    one = found(system, tmp_path)
    hardware, board, before = one.hardware, one.board, one.settings()
    middle, top, _ = corners(hardware.grid())
    gpu = next(path for path in board.description.section("gpu")["devfreq"] if board.tree.exists(board.tree.resolve(path)))

    # A write that fails: everything goes back.
    hardware.apply(middle, "test")
    setpoint = next(path for path, _ in reversed(one.files.written) if path.startswith(("/sys/class/devfreq", "/sys/devices")))
    hardware.restore()
    board.faults.refuse(board.tree.resolve(setpoint), errno.EIO)
    with pytest.raises((HardwareBusy, HardwareRefused)):
        hardware.apply(middle, "test")
    board.faults.clear()
    hardware.restore()
    assert one.settings() == before

    # A stuck clock: told apart from an accepted one, where the GPU has power so that its clock can be measured.
    one.files.write_text(f"{board.description.section('gpu')['device']}/power/control", "on")
    board.faults.stick("gpu", board.gpu.clock.rates[0])
    applied = hardware.apply(top, "test")
    assert not applied.verified and applied.accepted == top and "measured" in applied.notes[0]
    board.faults.clear()

    # A file that vanishes during a hold: given back when it returns.
    board.faults.vanish(board.tree.resolve(gpu))
    assert hardware.restore().failed
    board.faults.clear()
    assert hardware.restore().failed == ()
    assert one.settings() == before

    # A rail that falls silent.
    rail = board.description.energy_rails[0]
    board.faults.silence(rail)
    board.clock.sleep(1.0)
    assert hardware.sensors.rails_mw()[rail] == 0.0


HOT = [system for system in FAMILY if load_board(system.board).section("thermal")["trips_mc"]]


@pytest.mark.parametrize("system", HOT, ids=str)
def test_a_board_that_is_too_hot_says_so_and_is_given_back_when_it_has_cooled(system: System, tmp_path: Path) -> None:
    one = found(system, tmp_path)
    before, (middle, top, _) = one.settings(), corners(one.hardware.grid())
    assert one.hardware.apply(middle, "test").verified
    trip = min(millidegrees for _, millidegrees, _ in one.board.thermal.trips())
    one.board.faults.script({"kind": "heat", "degrees": trip + 1.0 - one.board.thermal.hottest_c})
    one.board.clock.sleep(4.5)
    assert any("past its passive trip" in reason for reason in one.hardware.throttled())
    applied = one.hardware.apply(top, "test") if top in one.hardware.grid() else None
    assert applied is None or not applied.verified
    one.board.faults.clear()
    one.board.clock.sleep(20.0)
    assert one.hardware.throttled() == ()
    assert one.hardware.restore().failed == ()
    assert one.settings() == before


def test_a_lower_limit_that_was_pressed_down_by_the_upper_one_is_given_back_as_the_power_mode_has_it(tmp_path: Path) -> None:
    clock = VirtualClock()
    files = TreeFiles(simulated_board("agx-xavier", clock=clock))
    hardware = Hardware.probe(files, clock, baseline=tmp_path / "baseline")
    low, high = (f"/sys/devices/system/cpu/cpufreq/policy0/scaling_{limit}_freq" for limit in ("min", "max"))
    found, whole = files.read_text(low), files.read_text(high)
    files.write_text(high, "345600")  # as heat does, for longer than its trip is reached
    hardware.apply(FrequencyConfiguration(115200, 318750000, 665600000), "a test")
    files.write_text(high, whole)
    hardware.restore()
    assert (files.read_text(low), files.read_text(high)) == (found, whole)


@pytest.mark.parametrize("upper_khz", [115200, 345600])
def test_a_lower_limit_given_back_under_a_lower_upper_one_stands_where_it_was_once_that_has_passed(
    upper_khz: int, tmp_path: Path
) -> None:
    clock = VirtualClock()
    files = TreeFiles(simulated_board("agx-xavier", clock=clock))
    hardware = Hardware.probe(files, clock, baseline=tmp_path / "baseline")
    low, high = (f"/sys/devices/system/cpu/cpufreq/policy0/scaling_{limit}_freq" for limit in ("min", "max"))
    found, whole = files.read_text(low), files.read_text(high)
    hardware.apply(FrequencyConfiguration(115200, 318750000, 665600000), "a test")
    clock.sleep(600.0)  # no trip is reached, and none was for long
    files.write_text(high, str(upper_khz))
    assert hardware.restore().failed == ()
    assert files.read_text(low) == files.read_text(high) == str(upper_khz)
    files.write_text(high, whole)
    assert (files.read_text(low), files.read_text(high)) == (found, whole)


@pytest.mark.parametrize("board", ["agx-orin-64gb", "agx-xavier"])
def test_a_gpu_set_by_its_limits_that_is_first_held_while_it_is_hot_gets_them_back_whole(board: str, tmp_path: Path) -> None:
    raw = yaml.safe_load((BOARDS_DIR / f"{board}.yaml").read_text())
    raw["gpu"]["governors"].remove("userspace")
    one = Found(fake_board(VirtualClock(), parse_board(raw)), tmp_path)
    before, whole = one.settings(), one.hardware.grid()
    trip = min(millidegrees for _, millidegrees, _ in one.board.thermal.trips())
    one.board.faults.script({"kind": "heat", "degrees": trip + 1.0 - one.board.thermal.hottest_c})
    one.board.clock.sleep(6.5)
    assert len(one.hardware.grid().gpu_hz) < len(whole.gpu_hz)
    one.hardware.apply(corners(whole)[2], "test")
    one.board.faults.clear()
    one.board.clock.sleep(60.0)
    assert one.hardware.grid() == whole  # what heat took counts again while the hold lasts
    assert one.hardware.apply(whole.top, "test").verified
    assert one.hardware.restore().failed == ()
    assert one.settings() == before


def test_a_gpu_that_nothing_has_used_yet_is_controlled_once_it_has_appeared(tmp_path: Path) -> None:
    one = Found(fake_board(VirtualClock(), "agx-orin-64gb", desktop=False), tmp_path)
    assert any("GPU clock" in note and "comes once the GPU is used" in note for note in one.hardware.notes)
    wanted = one.hardware.grid().top._replace(gpu_hz=612000000)
    early = one.hardware.apply(wanted, "test")
    assert (early.verified, early.waiting) == (False, ("gpu_hz",))
    assert not [path for path, _ in one.files.written if "devfreq" in path and "gpu" in path]
    one.files.write_text("/sys/devices/platform/gpu.0/railgate_enable", "0")
    assert len(one.hardware.grid().gpu_hz) == 11
    assert one.hardware.apply(wanted, "test").verified
    assert one.hardware.current().gpu_hz == 612000000


@pytest.mark.parametrize(
    ("jetpack", "levels", "note"),
    [("6", 4, "memory clock can only be capped"), ("7", 4, ""), ("5", 1, "memory clock is taken to be")],
)
def test_without_debugfs_the_memory_clock_is_reached_as_the_release_allows(
    jetpack: str, levels: int, note: str, tmp_path: Path
) -> None:
    board = fake_board(VirtualClock(), "agx-orin-64gb", jetpack=jetpack)
    board.faults.vanish("/sys/kernel/debug")
    one = Found(board, tmp_path)
    before = one.settings()
    assert len(one.hardware.grid().emc_hz) == levels
    assert any(note in one_note for one_note in one.hardware.notes) or not (note or one.hardware.notes)
    low = one.hardware.grid().top._replace(emc_hz=one.hardware.grid().emc_hz[0])
    assert one.hardware.apply(low, "test").verified
    assert one.hardware.restore().failed == ()
    assert one.settings() == before


def test_a_cap_of_the_memory_clock_that_does_not_rise_again_is_said_to_stay(tmp_path: Path) -> None:
    raw = laid_over(load_board("agx-orin-64gb").raw, {"twin": {"power_hints": False}})
    board = fake_board(VirtualClock(), parse_board(raw))
    board.faults.vanish("/sys/kernel/debug")
    one = Found(board, tmp_path)
    grid = one.hardware.grid()
    assert grid.emc_hz[-1] == 2133000000  # the firmware's own cap at boot, which nothing here raises
    assert one.hardware.apply(grid.top._replace(emc_hz=665600000), "test").verified
    assert not one.hardware.apply(grid.top, "test").verified
    cap = "/sys/kernel/nvpmodel_clk_cap/emc"
    assert one.hardware.restore().failed == (f"{cap}: stays at 665600000, though 2133000000 was written",)


def test_a_gpu_clock_that_waits_is_planned_for_up_to_what_its_power_mode_allows(tmp_path: Path) -> None:
    board = simulated_board("agx-orin-64gb", clock=VirtualClock(), mode="MODE_30W", desktop=False)
    one = Found(board, tmp_path)
    assert one.hardware.grid().gpu_hz == (306000000, 408000000, 510000000, 612000000)


def test_a_clock_that_cannot_be_seen_is_taken_to_be_at_the_most_its_power_mode_allows(tmp_path: Path) -> None:
    board = simulated_board("agx-orin-64gb", clock=VirtualClock(), mode="MODE_30W", desktop=False)
    for path in board.description.section("gpu")["devfreq"]:
        board.faults.vanish(path.rpartition("/devfreq/")[0])
    one = Found(board, tmp_path)
    assert one.hardware.grid().gpu_hz == (612000000,)
    assert any(note.startswith("GPU clock is taken to be at 612 MHz") for note in one.hardware.notes)


PAST_LIMITS = [System(board, "7") for board in ("agx-orin-64gb", "orin-nano-8gb", "agx-thor")]


def emc_hz(one: Found) -> int:
    return one.hardware.memory_hz()


@pytest.mark.parametrize("system", PAST_LIMITS, ids=str)
@pytest.mark.parametrize("when", ["before the daemon", "before the lease", "while held"])
def test_a_lock_of_jetson_clocks_past_the_limits_is_taken_over_and_given_back(
    system: System, when: str, tmp_path: Path
) -> None:
    one = found(system, tmp_path)
    emc = one.board.description.section("emc")["bpmp"]
    low, high = one.hardware.grid().emc_hz[0], one.hardware.grid().emc_hz[-1]
    wanted = one.hardware.grid().top._replace(emc_hz=low)

    def jetson_clocks() -> None:
        one.files.write_text(f"{emc}/mrq_rate_locked", "1")
        one.files.write_text(f"{emc}/rate", str(high))

    if when == "while held":
        assert one.hardware.apply(wanted, "test").verified
    jetson_clocks()
    if when == "before the daemon":
        one.hardware = one.probe()
    assert emc_hz(one) == pytest.approx(high, rel=0.01)
    if when == "while held":
        assert [reading.accepted for reading in one.hardware.read()["emc_hz"]] == [high]  # not what was requested
    applied = one.hardware.apply(wanted, "test")
    assert applied.verified, applied.notes
    assert emc_hz(one) == pytest.approx(low, rel=0.01)
    assert not one.hardware.restore().failed
    assert one.files.read_text(f"{emc}/mrq_rate_locked") == "1"
    assert one.files.read_text(f"{emc}/rate") == str(high)


def test_a_lock_past_the_limits_is_named_and_once_ended_the_limits_hold_the_clock_again(tmp_path: Path) -> None:
    one = found(System("agx-orin-64gb", "7"), tmp_path)
    emc = one.board.description.section("emc")["bpmp"]
    one.files.write_text(f"{emc}/mrq_rate_locked", "1")
    one.hardware.read()
    (note,) = [note for note in one.hardware.notes if "locked" in note]
    assert "jetson_clocks" in note
    assert [write.path for write in one.hardware.unlock_memory()] == [f"{emc}/mrq_rate_locked"]
    one.files.written.clear()
    assert one.hardware.apply(one.hardware.grid().top, "test").verified
    assert not [path for path, _ in one.files.written if path.startswith(emc)]


# Adding a board


def test_adding_a_board_with_its_twin_is_adding_one_file(tmp_path: Path) -> None:
    """A module of another make: two clusters, one rail, a memory clock behind devfreq alone, JetPack 7."""
    folder = tmp_path / "boards"
    folder.mkdir()
    raw = yaml.safe_load((BOARDS_DIR / "orin-nx-8gb.yaml").read_text())
    raw |= {"name": "new", "title": "New board", "model": "Acme New", "compatible": ["acme,new", "acme,chip"], "modules": []}
    raw |= {"jetpack": "7.1", "l4t": "38.4", "kernel": "6.8", "soc": "tegra999", "firmware": {}}
    raw["axes"] |= {"cpu_khz": [100000, 200000], "gpu_hz": [50000000, 60000000, 70000000], "emc_hz": [10000000, 20000000]}
    raw["emc"] |= {"drivers": ["devfreq"], "devfreq": "/sys/class/devfreq/memory"}
    raw["cpu"] |= {"boot": {"min_khz": 100000, "max_khz": 200000, "status": "derived"}}
    raw["modes"] = {"own": {"conf": "new.conf", "default": 3, "status": "derived", "table": [{"id": 3, "name": "ALL"}]}}
    raw["releases"] = [{"jetpack": "7", "l4t": "38", "kernel": "6.8"}]
    raw["twin"] = {
        "like": "orin-nx-8gb",
        "silicon": "orin-nx-8gb",
        "compatible": ["acme,new", "acme,chip"],
        "power_mode": "ALL",
        "releases": {"7": {"emc": {"drivers": ["devfreq"]}}},
    }
    (folder / "new.yaml").write_text(yaml.safe_dump(raw))
    new = load_board("new", folder)
    board = simulated_board(new, clock=VirtualClock())
    files = TreeFiles(board)
    hardware = Hardware.probe(files, board.clock, boards=[new], baseline=tmp_path / "baseline.json")
    assert (hardware.description.name, hardware.grid().shape) == ("new", (2, 3, 2))
    assert hardware.apply(FrequencyConfiguration(100000, 70000000, 20000000), "test").verified
    assert "/sys/class/devfreq/memory/min_freq" in {path for path, _ in files.written}
    assert hardware.restore().failed == ()


if __name__ == "__main__":
    for system in FAMILY:
        with tempfile.TemporaryDirectory() as place:
            record(system.board, f"JetPack {system.jetpack}", transitions(system, Path(place)))
