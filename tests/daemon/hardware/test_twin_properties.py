# SPDX-License-Identifier: Apache-2.0
"""Whatever the board, how somebody left it, what is asked and what goes wrong: it ends as asked or as it was found."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jetdvfs.daemon.errors import DaemonError
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard
from jetdvfs.tests.support.boards.twin_fakes import VirtualClock, fake_board
from jetdvfs.tests.support.boards.twin_family import CPUFREQ, FAMILY, Found, System

EXAMPLES = 40 if not os.environ.get("JETDVFS_ALL_BOARDS") else 500


class Killed(BaseException):
    """The process dies here, as by SIGKILL: nothing of ours runs afterwards."""


class Start(NamedTuple):
    """How somebody left a clock: two limits as shares of its table, and which governor."""

    limits: tuple[float, float]
    governor: int


class Step(NamedTuple):
    """A request as shares of the axes, and what goes wrong at which of its writes."""

    wanted: tuple[float, float, float]
    trouble: str
    at: int


shares = st.floats(0, 0.999)
starts = st.builds(Start, st.tuples(shares, shares), st.integers(0, 9))
troubles = st.sampled_from(["nothing", "nothing", "refused", "refused from then on", "killed", "vanished", "stuck"])
steps = st.builds(Step, st.tuples(shares, shares, shares), troubles, st.integers(1, 24))


def pick(table: tuple[int, ...], share: float) -> int:
    return table[int(share * len(table))]


def leave_as_found(one: Found, cpu: Start, gpu: Start, locked: float | None, offline: int) -> None:
    """What somebody did before us, in an order that every kernel takes."""
    files, board = one.files, one.board

    def put(folder: str, prefix: str, table: tuple[int, ...], start: Start, listed: str) -> None:
        low, high = sorted(pick(table, share) for share in start.limits)
        for name, value in (("min", table[0]), ("max", high), ("min", low)):
            files.write_text(f"{folder}/{prefix}{name}_freq", str(value))
        governors = files.read_text(f"{folder}/{listed}").split()
        files.write_text(f"{folder}/{prefix}governor", governors[start.governor % len(governors)])

    for policy in board.policies:
        put(f"{CPUFREQ}/{policy.name}", "scaling_", policy.clock.rates, cpu, "scaling_available_governors")
    device = next(path for path in board.description.section("gpu")["devfreq"] if files.exists(path))
    put(device, "", board.gpu.clock.rates, gpu, "available_governors")
    emc = board.description.section("emc")
    # Limits of the bandwidth manager do nothing while somebody holds the lock, which is theirs to end.
    if locked is not None and emc["drivers"] == ["bpmp"]:
        files.write_text(f"{emc['bpmp']}/mrq_rate_locked", "1")
        files.write_text(f"{emc['bpmp']}/rate", str(pick(board.emc.clock.rates, locked)))
    for cpu_number in range(board.description.cores - offline, board.description.cores):
        files.write_text(f"/sys/devices/system/cpu/cpu{cpu_number}/online", "0")


def limits_in_order(board: SimulatedBoard) -> bool:
    pairs = [policy.limits for policy in board.policies] + [board.gpu.shown]
    return all(low <= high or high == 0 for low, high in pairs)


def within_limits(board: SimulatedBoard, ceilings: dict[str, int]) -> bool:
    """Whether no clock was asked to go above what the others' limits leave."""
    asked = board.requested._asdict()
    return all(asked[name] <= ceiling for name, ceiling in ceilings.items())


def observer(one: Found, step: Step) -> Callable[[str, str], None]:
    """What happens at the step's writes; every write is checked against what must never be."""
    count = 0
    device = one.board.tree.resolve("/sys/class/devfreq/" + one.board.tree.names("/sys/class/devfreq")[0])

    def before(path: str, value: str) -> None:
        nonlocal count
        count += 1
        assert limits_in_order(one.board)
        if step.trouble == "killed" and count == step.at:
            raise Killed
        if (step.trouble == "refused" and count == step.at) or (step.trouble == "refused from then on" and count >= step.at):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if step.trouble == "vanished" and count == step.at:
            one.board.faults.vanish(device)

    return before


# A lower limit that is above the upper one, which the kernel then shows as both.
@example(System("agx-xavier", "5"), Start((0.25, 0.25), 0), Start((0.0, 0.0), 0), None, 0, [Step((0.0, 0.0, 0.0), "killed", 1)])
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.sampled_from(FAMILY),
    starts,
    starts,
    st.one_of(st.none(), shares),
    st.integers(0, 1),
    st.lists(steps, min_size=1, max_size=3),
)
def test_every_board_ends_as_asked_or_as_it_was_found(
    system: System, cpu: Start, gpu: Start, locked: float | None, offline: int, requests: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = Found(fake_board(VirtualClock(), system.board, jetpack=system.jetpack), Path(folder))
        leave_as_found(one, cpu, gpu, locked, offline)
        one.board.clock.sleep(0.2)
        one.hardware = one.probe()
        found = one.settings()
        for step in requests:
            grid, before = one.hardware.grid(), one.settings()
            tables = (grid.cpu_khz, grid.gpu_hz, grid.emc_hz)
            wanted = FrequencyConfiguration(*(pick(table, part) for table, part in zip(tables, step.wanted, strict=True)))
            if step.trouble == "stuck":
                one.board.faults.stick("cpu", one.board.policies[0].clock.rates[0])
            one.files.before = observer(one, step)
            try:
                applied = one.hardware.apply(wanted, "test")
                assert applied.accepted == wanted
                assert applied.verified or (step.trouble == "stuck" and "measured" in applied.notes[0])
                assert within_limits(one.board, {name: getattr(grid, name)[-1] for name in wanted._fields})
                # A GPU without power is given a clock that it takes up a little later.
                one.board.clock.sleep(0.1)
                with one.board.present():
                    assert step.trouble == "stuck" or one.board.configuration == wanted
            except DaemonError as error:
                named = str(error)
                assert "clocks were put back" in named or "nothing was changed" in named or "not everything" in named
                one.board.faults.clear()
                if "not everything" not in named:
                    assert one.settings() == before
            except Killed:
                one.files.before = lambda path, value: None
                one.board.faults.clear()
                one.hardware = one.probe()
                report = one.hardware.restore()
                assert not report.failed and not report.left
                assert one.settings() == found
            one.files.before = lambda path, value: None
            one.board.faults.clear()
            one.board.clock.sleep(0.1)
        report = one.hardware.restore()
        assert not report.failed and not report.left
        assert one.settings() == found
        assert not one.baseline.exists()


@pytest.mark.parametrize("system", FAMILY, ids=str)
def test_a_board_that_is_never_written_to_stays_as_it_was_found(system: System, tmp_path: Path) -> None:
    one = Found(fake_board(VirtualClock(), system.board, jetpack=system.jetpack), tmp_path)
    before = one.settings()
    assert one.hardware.restore().restored == ()
    one.hardware.grid()
    one.hardware.read()
    assert one.settings() == before and one.files.written == []
