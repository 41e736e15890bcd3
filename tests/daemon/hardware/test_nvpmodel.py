# SPDX-License-Identifier: Apache-2.0
"""Power modes: reading nvpmodel's configuration, what a mode allows, and changing it without ever agreeing to a reboot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.errors import HardwareBusy, HardwareRefused, InputError, UsageError
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.hardware.nvpmodel import Nvpmodel, ProgramResult, run_program
from jetdvfs.daemon.hardware.power_modes import CONF, STATUS, active_mode, bound_levels, changed_masks, find_mode, parse_modes
from jetdvfs.profiles.board import PowerMode
from jetdvfs.tests.support.boards.hardware_kernel import CPU, GPU, TREE, FakeClock, Kernel

CONFIGURATION = """\
# < PM_CONFIG DEFAULT=9 > in a comment counts for nothing
< PARAM TYPE=FILE NAME=CPU_ONLINE >
CORE_1 /sys/devices/system/cpu/cpu1/online
CORE_2
  /sys/devices/system/cpu/cpu2/online
<PARAM TYPE=CLOCK NAME=CPU_DENVER_0 >
FREQ_TABLE /sys/devices/system/cpu/cpu0/cpufreq/scaling_available_frequencies
MAX_FREQ /sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq
MIN_FREQ /sys/devices/system/cpu/cpu0/cpufreq/scaling_min_freq
< PARAM TYPE=FILE NAME=TPC_POWER_GATING >
TPC_PG_MASK /sys/devices/gpu.0/tpc_pg_mask

# the widest
< POWER_MODEL ID=0 NAME=MAXN >
CPU_ONLINE CORE_1 1
TPC_POWER_GATING TPC_PG_MASK 0
CPU_DENVER_0 MIN_FREQ 1200000
CPU_DENVER_0 MAX_FREQ -1
GPU MIN_FREQ 0
GPU MAX_FREQ -1
EMC MAX_FREQ 0

< POWER_MODEL ID=3
  NAME=MODE_15W >   # wrapped
CPU_ONLINE CORE_1 1
CPU_ONLINE CORE_2 0
TPC_POWER_GATING TPC_PG_MASK 4
CPU_DENVER_0 MIN_FREQ 1200000
CPU_DENVER_0 MAX_FREQ 1450000
CPU_DENVER_1
 MAX_FREQ 1200000
GPU MAX_FREQ 670000000 EMC MAX_FREQ 1331200000
NVDEC MAX_FREQ 716800000
< PM_CONFIG DEFAULT=3 >
< FAN_CONFIG DEFAULT=quiet >
"""


def test_modes_are_read_with_gaps_wrapped_lines_and_comments() -> None:
    modes = parse_modes(CONFIGURATION, 8)
    assert modes.default == 3
    assert modes.table == (
        PowerMode(0, "MAXN", 8, 1200000, None, None, None, {"tpc_pg_mask": 0}),
        PowerMode(3, "MODE_15W", 7, 1200000, 1200000, 670000000, 1331200000, {"tpc_pg_mask": 4}),
    )
    assert find_mode(modes, "3") is find_mode(modes, "MODE_15W") is modes.table[1]
    assert changed_masks(*modes.table) == ("tpc_pg_mask",)
    with pytest.raises(UsageError, match=r"'1': not in .*; valid: 0 MAXN, 3 MODE_15W"):
        find_mode(modes, "1")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no POWER_MODEL in it"),
        ("< POWER_MODEL ID=0 NAME=A >\nGPU MAX_FREQ", ":1: 2 words after POWER_MODEL, expected triples"),
        ("\n< POWER_MODEL ID=x NAME=A >", ":2: ID is 'x', expected a whole number"),
        ("< POWER_MODEL ID=1 >", ":1: a POWER_MODEL without NAME"),
        ("< POWER_MODEL ID=1 NAME=A >\n< POWER_MODEL ID=1 NAME=B >", r"an ID is used twice among \[1, 1\]"),
        ("< POWER_MODEL ID=1 NAME=A >\nGPU MAX_FREQ fast", "GPU MAX_FREQ is 'fast'"),
        ("< >", ":1: an empty header"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        parse_modes(text, 8)


@pytest.mark.parametrize(
    ("status", "active"), [("pmode:0003\n", "MODE_15W"), ("pmode:0000 fmode:quiet", "MAXN"), ("pmode:0001", None), ("", None)]
)
def test_the_mode_in_force_is_what_nvpmodel_noted(status: str, active: str | None) -> None:
    kernel = Kernel()
    kernel.store[STATUS] = status
    mode = active_mode(kernel, parse_modes(CONFIGURATION, 8))
    assert (mode and mode.name) == active


def test_a_cap_leaves_the_levels_below_it_and_at_least_one() -> None:
    assert bound_levels((1, 2, 3), None) == (1, 2, 3)
    assert bound_levels((1, 2, 3), 2) == (1, 2)
    assert bound_levels((5, 6), 2) == (5,)


# On a board


@pytest.fixture
def kernel() -> Kernel:
    kernel = Kernel()
    kernel.store |= {CONF: CONFIGURATION, STATUS: "pmode:0003\n"}
    return kernel


def test_the_mode_in_force_bounds_the_grid_even_where_its_limits_were_raised(kernel: Kernel) -> None:
    hardware = Hardware.probe(kernel, FakeClock())
    grid = hardware.grid()
    assert (grid.cpu_khz[-1], grid.gpu_hz[-1], grid.emc_hz[-1]) == (1190400, 624750000, 1331200000)
    mode = hardware.mode()
    assert mode is not None and mode.name == "MODE_15W"
    kernel.store[STATUS] = "pmode:0000"
    assert hardware.grid().gpu_hz[-1] == 1377000000


def test_limits_below_the_modes_bind_too(kernel: Kernel) -> None:
    kernel.take(f"{GPU}/max_freq", "318750000")
    kernel.take(f"{CPU}/scaling_max_freq", "1036800")
    grid = Hardware.probe(kernel, FakeClock()).grid()
    assert (grid.cpu_khz[-1], grid.gpu_hz[-1]) == (1036800, 318750000)


def test_modes_that_cannot_be_understood_are_said_and_bind_nothing(kernel: Kernel) -> None:
    kernel.store[CONF] = "< POWER_MODEL ID=x NAME=A >"
    hardware = Hardware.probe(kernel, FakeClock())
    assert hardware.grid().gpu_hz[-1] == 1377000000
    assert any("power modes are not known: /etc/nvpmodel.conf:1: ID is 'x'" in note for note in hardware.notes)


# Changing it

MODES = parse_modes(CONFIGURATION, 8)
MAXN, WATTS_15 = MODES.table
REBOOT = """\
NVPM WARN: Reboot required for changing to this power mode: 0
NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:
NVPM ERROR: bad input!
"""


class Program:
    """An nvpmodel that answers with ``outcome`` and is in mode ``after`` from then on."""

    def __init__(self, outcome: ProgramResult, after: str) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._outcome = outcome
        self._after = after

    def __call__(self, command: Sequence[str]) -> ProgramResult:
        self.asked.append(tuple(command[1:]))
        return (
            self._outcome if command[1] == "-m" else ProgramResult(0, f"NV Fan Mode:quiet\nNV Power Mode: {self._after}\n0\n")
        )


@pytest.mark.parametrize(
    ("outcome", "after", "done", "needs_reboot"),
    [
        (ProgramResult(0, ""), "MAXN", True, False),
        (ProgramResult(1, "NVPM ERROR: something"), "MAXN", True, False),
        (ProgramResult(0, ""), "MODE_15W", False, False),
        (ProgramResult(0, REBOOT), "MODE_15W", False, True),
        (ProgramResult(255, REBOOT), "MODE_15W", False, True),
        (ProgramResult(0, "NVPM WARN: reboot recommended"), "MAXN", True, False),
        (ProgramResult(None, REBOOT), "MODE_15W", False, True),
    ],
)
def test_what_counts_is_the_mode_in_force_afterwards(
    outcome: ProgramResult, after: str, done: bool, needs_reboot: bool
) -> None:
    program = Program(outcome, after)
    switch = Nvpmodel(run=program).switch(MAXN)
    assert (switch.done, switch.needs_reboot, switch.active) == (done, needs_reboot, after)
    assert program.asked == [("-m", "0"), ("-q",)]


def test_a_query_without_an_answer_is_not_taken_for_one() -> None:
    with pytest.raises(HardwareBusy, match="no answer within"):
        Nvpmodel(run=lambda command: ProgramResult(None, "")).query()
    with pytest.raises(HardwareRefused, match="said 'NVPM ERROR: no root', expected 'NV Power Mode: NAME'"):
        Nvpmodel(run=lambda command: ProgramResult(0, "NVPM ERROR: no root\n")).query()
    with pytest.raises(HardwareRefused, match="cannot be run"):
        Nvpmodel("/nowhere/nvpmodel").query()


def test_a_program_that_asks_gets_no_answer() -> None:
    outcome = run_program(("/bin/sh", "-c", 'echo "enter YES to confirm:"; read answer || echo "bad input: $answer"; exit 3'))
    assert outcome == ProgramResult(3, "enter YES to confirm:\nbad input: \n")


# The commands

SCRIPT = f"""\
#!/bin/sh
here="$(dirname "$0")/../.."
case "$1" in
-q) case "$(cat "$here{STATUS}")" in
    pmode:0000) printf 'NV Power Mode: MAXN\\n0\\n';;
    *) printf 'NV Power Mode: MODE_15W\\n3\\n';;
    esac;;
-m) if [ -e "$here/golden" ]; then
        echo "NVPM WARN: Reboot required"; read answer || echo "NVPM ERROR: bad input!"
    else printf 'pmode:%04d' "$2" > "$here{STATUS}"; exit 1
    fi;;
esac
"""


@pytest.fixture
def root(kernel: Kernel, tmp_path: Path) -> Path:
    """A system's files in a folder, with an nvpmodel that refuses where a file ``golden`` is."""
    for path in (CONF, STATUS, f"{TREE}/model", f"{TREE}/compatible"):
        place = tmp_path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(kernel.store[path])
    program = tmp_path / "usr/sbin/nvpmodel"
    program.parent.mkdir(parents=True)
    program.write_text(SCRIPT)
    program.chmod(0o755)
    return tmp_path


def test_modes_are_listed_with_the_one_in_force(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "modes", "--root", str(root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[0].split()) == "0 MAXN 8 cores, CPU uncapped, GPU uncapped, EMC uncapped (may need a reboot)"
    assert lines[1].startswith("*   3 MODE_15W") and lines[1].endswith("(the default)")
    assert main(["board", "modes", "--root", str(root), "--json"]) == 0
    modes = json.loads(capsys.readouterr().out)
    assert [mode["active"] for mode in modes] == [False, True]
    assert [mode["changed_masks"] for mode in modes] == [["tpc_pg_mask"], []]


def test_a_dry_run_says_what_changes_and_changes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "mode", "MAXN", "--dry-run", "--root", str(root)]) == 0
    assert "changes tpc_pg_mask: may need a reboot" in capsys.readouterr().out
    assert (root / STATUS.lstrip("/")).read_text() == "pmode:0003\n"


def test_changing_the_mode(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "mode", "0", "--root", str(root)]) == 0
    back = f"sudo jetdvfs board mode MODE_15W --root {root}; that may need a reboot"
    assert capsys.readouterr().out == f"power mode MAXN is in force\nbefore: MODE_15W; to go back: {back}\n"


def test_a_changed_mode_is_told_with_the_one_before(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "mode", "0", "--root", str(root), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["active"], told["before"]["name"]) == ("MAXN", "MODE_15W")


def test_a_mode_that_needs_a_reboot_is_reported_and_not_agreed_to(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "golden").touch()
    assert main(["board", "mode", "MAXN", "--root", str(root)]) == 5
    assert "power mode MAXN needs a reboot, which is yours to do; MODE_15W stays in force" in capsys.readouterr().err


def test_wrong_uses_of_the_commands(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "mode", "TURBO", "--root", str(root)]) == 2
    assert "valid: 0 MAXN, 3 MODE_15W" in capsys.readouterr().err
    for words in (["mode"], ["modes", "MAXN"], ["modes", "--dry-run"]):
        with pytest.raises(SystemExit) as ended:
            main(["board", *words])
        assert ended.value.code == 2
    (root / CONF.lstrip("/")).unlink()
    assert main(["board", "modes", "--root", str(root)]) == 3
    assert "power modes are not known" in capsys.readouterr().err
