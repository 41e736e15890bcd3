# SPDX-License-Identifier: Apache-2.0
"""The simulated boards' nvpmodel and jetson_clocks, and what the product makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.errors import HardwareBusy
from jetdvfs.daemon.hardware.files import Files
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.hardware.nvpmodel import Nvpmodel, ProgramResult, run_program
from jetdvfs.daemon.hardware.power_modes import bound_levels, changed_masks, find_mode, parse_modes, read_modes
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.board import list_boards, load_board, parse_board
from jetdvfs.profiles.errors import TwinError
from jetdvfs.profiles.timing import SystemClock
from jetdvfs.profiles.twin.faults import Faults
from jetdvfs.profiles.twin.tools.modes_file import render
from jetdvfs.profiles.twin.tools.system import TOOLS_FILE
from jetdvfs.profiles.twin.variant import installed
from jetdvfs.tests.support.boards.board_apart import BoardApart, board_apart
from jetdvfs.tests.support.boards.twin_fakes import small_network
from jetdvfs.tests.support.daemons.board_daemon import CPU, EMC, GPU, Daemon, eventually

NVPMODEL, JETSON_CLOCKS = "usr/sbin/nvpmodel", "usr/bin/jetson_clocks"
ONLINE, CAP = "sys/devices/system/cpu/online", "sys/kernel/nvpmodel_emc_cap/emc_iso_cap"
HELD = FrequencyConfiguration(1881600, 675750000, 1331200000)
LOW = FrequencyConfiguration(115200, 675750000, 1331200000)


@pytest.fixture
def board(tmp_path: Path) -> Iterator[BoardApart]:
    with board_apart(tmp_path / "root") as board:
        yield board


@pytest.fixture
def daemon(board: BoardApart, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(board, tmp_path)
    yield daemon
    assert daemon.stop() == 0, daemon.log.read_text()


def call(board: BoardApart, tool: str, *arguments: str, told: str = "") -> tuple[int, list[str]]:
    """The exit code and the lines of one of the board's programs."""
    done = subprocess.run([board.root / tool, *arguments], input=told, capture_output=True, text=True, check=False, timeout=20)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def mode_in_force(board: BoardApart) -> str:
    code, lines = call(board, NVPMODEL, "-q")
    assert code == 0 and lines[0].startswith("NV Power Mode: ")
    return lines[0].removeprefix("NV Power Mode: ")


def impatient(board: BoardApart, option: str) -> Nvpmodel:
    """The board's nvpmodel, of which an answer to one option is waited for a second only."""

    def run(command: Sequence[str]) -> ProgramResult:
        return run_program(command, 1.0) if option in command else run_program(command)

    return Nvpmodel(str(board.root / NVPMODEL), run)


def jetdvfs(board: BoardApart, *words: str) -> int:
    return main([*words, "--root", str(board.root)])


# The programs


@pytest.mark.parametrize("name", list_boards())
def test_every_boards_modes_come_back_from_the_file_that_its_nvpmodel_reads(name: str) -> None:
    board = load_board(name)
    for modes in board.modes:
        read = parse_modes(render(board, modes), board.cores)
        assert (read.default, read.table) == (modes.default, modes.table)


def test_a_mode_takes_cores_offline_and_caps_clocks_rounded_down(board: BoardApart) -> None:
    assert mode_in_force(board) == "MAXN"
    assert call(board, NVPMODEL, "-m", "2") == (0, [])
    assert call(board, NVPMODEL, "-q") == (0, ["NV Power Mode: MODE_15W", "2"])
    assert board.read(ONLINE) == "0-3"
    assert board.read(f"{CPU}/scaling_max_freq") == "1190400"
    assert board.read(f"{GPU}/max_freq") == "624750000"
    assert board.read(CAP) == "1331200000"
    assert call(board, NVPMODEL, "-m", "0")[0] == 0
    assert (board.read(ONLINE), board.read(CAP), board.read(f"{GPU}/max_freq")) == ("0-7", "0", "1377000000")


def test_a_mode_that_takes_a_reboot_is_asked_about_and_nothing_changes_without_a_yes(board: BoardApart) -> None:
    found = board.settings()
    code, lines = call(board, NVPMODEL, "-m", "1")
    assert code != 0
    assert lines[-1] == "NVPM ERROR: bad input!"
    assert (mode_in_force(board), board.settings(), board.reboots) == ("MAXN", found, 0)
    assert call(board, NVPMODEL, "-m", "1", told="YES\n")[0] == 0
    assert (mode_in_force(board), board.reboots) == ("MODE_10W", 1)


def test_a_lower_limit_above_the_upper_one_in_force_fails(board: BoardApart) -> None:
    board.write(f"{CPU}/scaling_max_freq", 806400)
    code, lines = call(board, NVPMODEL, "-m", "2")
    assert code != 0 and "1190400: greater than the current max value 806400" in lines[-1]
    assert mode_in_force(board) == "MAXN"


def test_the_configuration_and_how_it_differs_from_what_is_set_are_printed_as_others_parse_them(board: BoardApart) -> None:
    printed = call(board, NVPMODEL, "-p", "--verbose")[1]
    for line in ("PM_CONFIG: DEFAULT=MODE_15W_DESKTOP(7)", "POWER_MODEL: ID=1 NAME=MODE_10W", "TPC_POWER_GATING TPC_PG_MASK 5"):
        assert f"NVPM VERB: {line}" in printed
    board.write(f"{CPU}/scaling_max_freq", 806400)
    limit = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq"
    told = f"NVPM VERB: PARAM CPU_CLUSTER_0: ARG MAX_FREQ: PATH {limit}: REAL_VAL: 806400 CONF_VAL: -1"
    assert told in call(board, NVPMODEL, "-q", "--verbose", "-f", "/etc/nvpmodel/nvpmodel_t194.conf")[1]


def test_a_mode_that_is_not_there_and_a_configuration_that_is_none_are_refused(board: BoardApart) -> None:
    assert call(board, NVPMODEL, "-m", "9") == (255, ["NVPM ERROR: there is no mode 9"])
    code, lines = call(board, NVPMODEL, "-q", "-f", "/etc/nv_tegra_release")
    assert code == 255 and lines[-1].startswith("NVPM ERROR: ")


def test_as_at_boot_the_mode_in_force_is_applied_again(board: BoardApart) -> None:
    found = board.settings()
    board.write(f"{CPU}/scaling_min_freq", 2265600)
    board.write(f"{GPU}/max_freq", 675750000)
    assert call(board, NVPMODEL, "--boot")[0] == 0
    assert board.settings() == found


def test_jetson_clocks_pins_everything_within_the_mode_and_brings_back_what_it_stored(
    board: BoardApart, tmp_path: Path
) -> None:
    call(board, NVPMODEL, "-m", "2")
    found = board.settings()
    assert call(board, JETSON_CLOCKS, "--store", str(tmp_path / "stored"))[0] == 0
    assert call(board, JETSON_CLOCKS, "--fan") == (0, [])
    assert board.clocks == FrequencyConfiguration(1190400, 624750000, 1331200000)
    lines = call(board, JETSON_CLOCKS, "--show")[1]
    assert (
        "cpu0: Online=1 Governor=schedutil MinFreq=1190400 MaxFreq=1190400 CurrentFreq=1190400 IdleStates: C1=0 c6=0 " in lines
    )
    assert "GPU MinFreq=624750000 MaxFreq=624750000 CurrentFreq=624750000" in lines
    assert "EMC MinFreq=204000000 MaxFreq=1331200000 CurrentFreq=1331200000 FreqOverride=1" in lines
    assert any(line.startswith("FAN ") and line.endswith("pwm1=255") for line in lines)
    assert lines[-1] == "NV Power Mode: MODE_15W"
    assert call(board, JETSON_CLOCKS, "--restore", str(tmp_path / "stored"))[0] == 0
    assert board.settings() == found


def test_jetson_clocks_pins_the_nanos_memory_too(tmp_path: Path) -> None:
    top = load_board("nano").grid.top
    with board_apart(tmp_path / "root", "nano") as board:
        assert call(board, JETSON_CLOCKS, "--store", str(tmp_path / "stored"))[0] == 0
        assert call(board, JETSON_CLOCKS)[0] == 0
        assert board.clocks == top
        shown = f"EMC MinFreq=40800000 MaxFreq={top.emc_hz} CurrentFreq={top.emc_hz} FreqOverride=1"
        assert shown in call(board, JETSON_CLOCKS, "--show")[1]
        assert call(board, JETSON_CLOCKS, "--restore", str(tmp_path / "stored"))[0] == 0
        assert eventually(lambda: board.clocks.emc_hz < top.emc_hz)


def test_a_way_to_misbehave_that_a_program_does_not_have_is_refused() -> None:
    with pytest.raises(TwinError, match="no way 'sings' for 'nvpmodel' to misbehave; valid: nvpmodel: lies, "):
        Faults().script({"kind": "tool", "tool": "nvpmodel", "how": "sings"})


# The product


def test_modes_are_listed_changed_and_followed_by_the_clocks_on_offer(
    board: BoardApart, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jetdvfs(board, "board", "modes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("*   0 MAXN") and len(lines) == 8
    for wanted, tops in (("MODE_15W", (1190400, 624750000, 1331200000)), ("0", (2265600, 1377000000, 2133000000))):
        assert jetdvfs(board, "board", "mode", wanted) == 0
        capsys.readouterr()
        assert jetdvfs(board, "board", "--json") == 0
        clocks = json.loads(capsys.readouterr().out)["clocks"]
        assert tuple(clocks[axis]["levels"][-1] for axis in ("cpu_khz", "gpu_hz", "emc_hz")) == tops


def test_identifiers_with_gaps_are_those_that_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = load_board("agx-xavier").raw
    standard = raw["modes"]["standard"]
    table = [mode for mode in standard["table"] if mode["id"] in (0, 2, 7)]
    gapped = parse_board({**raw, "modes": {"standard": {**standard, "table": table}}})
    with board_apart(tmp_path / "root", gapped) as board:
        assert jetdvfs(board, "board", "mode", "7") == 0
        assert jetdvfs(board, "board", "modes", "--json") == 0
        out = capsys.readouterr().out
        assert [(mode["id"], mode["active"]) for mode in json.loads(out[out.index("[") :])] == [
            (0, False),
            (2, False),
            (7, True),
        ]
        assert jetdvfs(board, "board", "mode", "1") == 2
        assert "valid: 0 MAXN, 2 MODE_15W, 7 MODE_15W_DESKTOP" in capsys.readouterr().err
        assert mode_in_force(board) == "MODE_15W_DESKTOP"


def test_a_reboot_is_reported_and_never_agreed_to(board: BoardApart, capsys: pytest.CaptureFixture[str]) -> None:
    assert jetdvfs(board, "board", "mode", "MODE_10W", "--dry-run") == 0
    assert "changes tpc_pg_mask: may need a reboot" in capsys.readouterr().out
    assert jetdvfs(board, "board", "mode", "MODE_10W") == 5
    assert "power mode MODE_10W needs a reboot, which is yours to do; MAXN stays in force" in capsys.readouterr().err
    assert (mode_in_force(board), board.reboots) == ("MAXN", 0)


def test_the_mode_in_force_counts_and_not_the_exit_code(board: BoardApart, capsys: pytest.CaptureFixture[str]) -> None:
    board.misbehave("nvpmodel", "lies")
    assert jetdvfs(board, "board", "mode", "MODE_15W") == 5
    assert "power mode MODE_15W was not set, MAXN is in force" in capsys.readouterr().err
    board.mend()
    board.misbehave("nvpmodel", "complains")
    assert jetdvfs(board, "board", "mode", "MODE_15W") == 0
    assert capsys.readouterr().out.startswith("power mode MODE_15W is in force\nbefore: MAXN; to go back: ")


def test_a_program_that_hangs_is_waited_for_no_longer_than_agreed(board: BoardApart) -> None:
    mode = find_mode(parse_modes(board.read("etc/nvpmodel.conf"), 8), "MODE_15W")
    board.misbehave("nvpmodel", "hangs")
    switch = impatient(board, "-m").switch(mode)
    assert (switch.done, switch.active, switch.needs_reboot) == (False, "MAXN", False)
    assert switch.text.startswith("no answer within")
    board.misbehave("nvpmodel", "hangs-on-query")
    with pytest.raises(HardwareBusy, match="no answer within"):
        impatient(board, "-q").query()


def test_what_a_program_has_started_ends_with_it() -> None:
    started = time.monotonic()
    outcome = run_program(("/bin/sh", "-c", "echo asked; sleep 30 & sleep 30"), longest_s=0.2)
    assert outcome == (None, "asked\n")
    assert time.monotonic() - started < 5


def test_a_program_that_hangs_under_load_goes_on_when_the_load_ends(board: BoardApart) -> None:
    board.misbehave("nvpmodel", "hangs-under-load")
    mode = find_mode(parse_modes(board.read("etc/nvpmodel.conf"), 8), "MODE_15W")
    with board.busy_with(small_network(), fps=60):
        assert eventually(lambda: json.loads(board.read(TOOLS_FILE[1:]))["gpu_busy"])
        assert not impatient(board, "-m").switch(mode).done
    assert Nvpmodel(str(board.root / NVPMODEL)).switch(mode).done


EACH_JETPACK = (("tx2", "4"), ("agx-orin-64gb", "5"), ("orin-nano-8gb", "6"), ("agx-thor", "7"))
OTHERS = (("nano", "4"), ("xavier-nx", "5"), ("orin-nx-16gb", "5"), ("agx-orin-32gb", "6"), ("agx-orin-64gb", "7"))


@pytest.mark.parametrize(("name", "jetpack"), EACH_JETPACK + OTHERS if os.environ.get("JETDVFS_ALL_BOARDS") else EACH_JETPACK)
def test_on_every_jetpack_a_mode_comes_into_force_and_bounds_the_clocks_or_needs_a_reboot(
    name: str, jetpack: str, tmp_path: Path
) -> None:
    description = installed(load_board(name), jetpack, "")
    with board_apart(tmp_path / "root", name, jetpack) as board:
        files = Files(tmp_path / "root")
        hardware = Hardware.probe(files, SystemClock())
        modes = read_modes(files, description.cores)
        assert modes is not None
        nvpmodel = Nvpmodel(str(tmp_path / "root" / NVPMODEL))
        for mode in modes.table:
            before = hardware.mode()
            assert before is not None
            outcome = nvpmodel.switch(mode)
            if changed_masks(before, mode):
                assert (outcome.needs_reboot, hardware.mode()) == (True, before)
                continue
            assert outcome.done, outcome
            assert (hardware.mode(), hardware.current().cpu_khz <= (mode.cpu_khz or 1 << 40)) == (mode, True)
            grid, described = hardware.grid(), description.grid
            for axis in ("cpu_khz", "gpu_hz", "emc_hz"):
                assert getattr(grid, axis) == bound_levels(getattr(described, axis), getattr(mode, axis)), (mode, axis)
            assert hardware.moved_limits() == ()
        assert board.reboots == 0


def test_limits_that_somebody_has_moved_are_named(board: BoardApart, capsys: pytest.CaptureFixture[str]) -> None:
    def notes() -> list[str]:
        assert jetdvfs(board, "board") == 0
        return [line.removeprefix("note: ") for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]

    assert notes() == []
    call(board, JETSON_CLOCKS)
    pinned = "is pinned at {} by its limits: by jetson_clocks, a service, or a process that holds it"
    assert notes() == [
        "memory clock is locked by another program: by a running jetdvfsd, jetson_clocks, or a process that died with the lock",
        f"GPU clock {pinned.format('1377 MHz')}",
        f"CPU clock {pinned.format('2265.6 MHz')}",
    ]
    call(board, NVPMODEL, "-m", "2")
    assert len(notes()) == 1
    board.write(f"{GPU}/max_freq", 318750000)
    lowered = "GPU clock is limited to 318.75 MHz, below the 624.75 MHz of power mode MODE_15W: by a person, a service, or heat"
    assert notes()[1:] == [lowered]
    board.write(f"{GPU}/max_freq", 0)
    raised = "GPU clock may go up to 1377 MHz, above the 624.75 MHz of power mode MODE_15W: raised since the mode was set"
    assert notes()[1:] == [raised]


# Behind the daemon's back


def degraded(daemon: Daemon) -> list[str]:
    with daemon.client() as client:
        return [text for text in client.status()["degraded"] if "was held" in text or "is needed" in text]


def test_jetson_clocks_is_noticed_then_undone_for_the_lease(board: BoardApart, daemon: Daemon) -> None:
    with daemon.client() as client:
        client.hold(configuration=HELD)
        call(board, JETSON_CLOCKS)
        told = {
            "CPU clock: set to 2265.6 MHz by another program; 1881.6 MHz was held",
            "GPU clock: set to 1377 MHz by another program; 675.75 MHz was held",
            "memory clock: set to 2133 MHz by another program; 1331.2 MHz was held",
        }
        assert eventually(lambda: told <= set(degraded(daemon)), 3.0)
        assert eventually(lambda: board.clocks == HELD, 20.0)
        assert eventually(lambda: not degraded(daemon), 3.0)


def test_a_re_run_of_nvpmodel_is_noticed_then_undone_for_the_lease(board: BoardApart, daemon: Daemon) -> None:
    with daemon.client() as client:
        client.hold(configuration=LOW)
        call(board, NVPMODEL, "--boot")
        told = "CPU clock: set to 1190.4 MHz by another program; 115.2 MHz was held"
        assert eventually(lambda: told in degraded(daemon), 3.0)
        assert eventually(lambda: board.clocks == LOW, 20.0)


def test_a_clock_pinned_by_its_limits_that_nvpmodel_has_let_go_is_pinned_again(tmp_path: Path) -> None:
    """A Thor's GPU has no governor that takes a clock: it is pinned by both limits, which a re-run of nvpmodel sets anew."""
    pinned = FrequencyConfiguration(702000, 558000000, 2750000000)
    with board_apart(tmp_path / "root", "agx-thor") as board:
        daemon = Daemon(board, tmp_path)
        with daemon.client() as client, client.hold(configuration=pinned):
            assert board.clocks.gpu_hz == pinned.gpu_hz
            call(board, NVPMODEL, "--boot")
            told = "GPU clock: taken over (nvhost_podgov); 558 MHz was held"
            assert eventually(lambda: told in client.status()["degraded"], 3.0)
            assert eventually(lambda: board.clocks.gpu_hz == pinned.gpu_hz, 20.0)
        assert daemon.stop() == 0


def test_a_lower_mode_is_followed_at_once_and_left_when_the_old_one_is_back(board: BoardApart, daemon: Daemon) -> None:
    with daemon.client() as client, client.hold(configuration=HELD):
        call(board, NVPMODEL, "-m", "2")
        assert eventually(lambda: board.clocks == FrequencyConfiguration(1190400, 624750000, 1331200000), 5.0)
        assert eventually(
            lambda: "CPU clock: 1881.6 MHz is needed, the limits in force allow 1190.4 MHz" in degraded(daemon), 3.0
        )
        call(board, NVPMODEL, "-m", "0")
        assert eventually(lambda: board.clocks == HELD, 5.0)
        call(board, NVPMODEL, "-m", "2")
    assert eventually(lambda: board.read(f"{EMC}/mrq_rate_locked") == "0", 5.0)
    # What the mode set stays as the mode set it.
    assert (board.read(f"{CPU}/scaling_max_freq"), board.read(f"{GPU}/max_freq")) == ("1190400", "624750000")
    assert board.read(f"{GPU}/governor") == "nvhost_podgov"
