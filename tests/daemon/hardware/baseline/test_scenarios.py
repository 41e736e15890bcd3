# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to files, disk and process: the board ends as it was found, or where that is lost, as it is by itself.

Every scenario follows from its number alone, by which it can be run again (``-k 'scenario[17]'``).
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import DaemonError
from jetdvfs.daemon.hardware.baseline import store
from jetdvfs.daemon.hardware.baseline.store import COPIES
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock, Killed
from jetdvfs.tests.support.boards.shaky_kernel import GARBAGE, ShakyKernel

SCENARIOS, MORE = range(100), range(100, 400)
_SYSTEMS: tuple[Callable[[], ShakyKernel], ...] = (
    lambda: ShakyKernel(),
    lambda: ShakyKernel(rules="4.9"),
    lambda: ShakyKernel(gpu_userspace=False),
    lambda: ShakyKernel(load_board("agx-orin-64gb"), emc=("bpmp",)),
    lambda: ShakyKernel(load_board("agx-orin-64gb"), emc=("devfreq",)),
    lambda: ShakyKernel(load_board("orin-nx-16gb"), emc=("cap",)),
    lambda: ShakyKernel(load_board("nano"), rules="4.9"),
    lambda: ShakyKernel(load_board("agx-thor"), gpu_userspace=False),
)
_SET = ("governor", "min_freq", "max_freq", "mrq_rate_locked", "clk_state")
_READ_ERRORS = (errno.EIO, errno.EAGAIN, errno.EREMOTEIO, errno.ENODEV)


class Scenario:
    """One board, a few holds, and accidents."""

    def __init__(self, number: int, folder: Path) -> None:
        self.random = random.Random(number)
        self.kernel = self.random.choice(_SYSTEMS)()
        self.place = folder / "run" / "baseline"
        self.lost = False
        self._clock = FakeClock()
        self._change_before()
        self.found = self.settings()
        self.hardware = self.start()
        self.cap = self.kernel.emc.get("cap", "")

    def settings(self) -> dict[str, str]:
        return {
            path: text for path, text in self.kernel.store.items() if path.endswith(_SET) or path == self.kernel.emc.get("cap")
        }

    def start(self) -> Hardware:
        return Hardware.probe(self.kernel, self._clock, boards=[self.kernel.board], baseline=self.place)

    def _change_before(self) -> None:
        """What a person set before: a governor that holds no frequency, and limits."""
        for path in list(self.kernel.store):
            if path.endswith("scaling_governor") and self.random.random() < 0.5:
                self.kernel.take(path, self.random.choice(["performance", "conservative", "schedutil"]))
            elif path.endswith("scaling_min_freq") and self.random.random() < 0.5:
                self.kernel.take(path, str(self.kernel.board.grid.cpu_khz[self.random.randrange(4)]))

    # What happens

    def hold(self) -> None:
        grid = self.hardware.grid()
        levels = (self.random.choice(getattr(grid, axis)) for axis in FrequencyConfiguration._fields)
        self.hardware.apply(FrequencyConfiguration(*levels), "test")

    def restore(self) -> None:
        self.hardware.restore()

    def keep(self) -> None:
        self.hardware.keep_baseline()

    def killed_at_a_write(self) -> None:
        """The process dies just before or just after one of its writes, and the next one takes over."""
        at, after = self.random.randrange(12), self.random.random() < 0.5
        count = 0

        def die(path: str, value: str) -> int:
            nonlocal count
            count += 1
            if count > at:
                if after:
                    self.kernel.take(path, value)
                raise Killed
            return 0

        self.kernel.refuse = die
        self._until_killed()
        self.kernel.refuse = lambda path, value: 0
        self.hardware = self.start()

    def killed_while_keeping(self) -> None:
        """The process dies while it writes what it keeps, before a file is in its place or after."""
        with self._writing(self.random.randrange(6), self._die):
            self._until_killed()
        self.hardware = self.start()

    def _until_killed(self) -> None:
        try:
            for action in self.random.choices([self.hold, self.restore], k=3):
                action()
        except (DaemonError, Killed):
            pass

    def _die(self, path: Path, data: bytes) -> None:
        if self.random.random() < 0.5:
            path.write_bytes(data[: self.random.randrange(len(data))])
        raise Killed

    def full_disk(self) -> None:
        error = self.random.choice([errno.ENOSPC, errno.EROFS, errno.EDQUOT])

        def refuse(path: Path, data: bytes) -> None:
            raise OSError(error, os.strerror(error))

        with self._writing(self.random.randrange(6), refuse):
            for _ in range(self.random.randrange(1, 4)):
                self._tried(self.hold)
                self._tried(self.keep)
            if self.random.random() < 0.5:
                self.hardware = self.start()
                self._tried(self.restore)

    @contextmanager
    def _writing(self, whole: int, then: Callable[[Path, bytes], None]) -> Iterator[None]:
        """A disk that takes so many files, and does something else with every further one."""
        write_new, count = store._write_new, 0

        def write(path: Path, data: bytes) -> None:
            nonlocal count
            count += 1
            (write_new if count <= whole else then)(path, data)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "_write_new", write)
            yield

    def damaged(self) -> None:
        """Copies become something else, while something is held or not; a new process finds them."""
        self._tried(self.hold)
        chosen = self.random.choice([(0,), (1,), (0, 1)])
        there = [self.place / COPIES[number] for number in chosen if (self.place / COPIES[number]).is_file()]
        for path in there:
            self.random.choice([self._truncate, self._flip, self._replace_by_fifo, self._remove])(path)
        if self.random.random() < 0.2:
            shutil.rmtree(self.place, ignore_errors=True)
            self.lost = True
        self.lost = self.lost or len(chosen) == 2
        self.hardware = self.start()

    def _truncate(self, path: Path) -> None:
        path.write_bytes(path.read_bytes()[: self.random.randrange(2000)])

    def _flip(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(7)
        path.write_bytes(data)

    def _remove(self, path: Path) -> None:
        path.unlink()

    def _replace_by_fifo(self, path: Path) -> None:
        path.unlink()
        os.mkfifo(path)

    def removed_while_holding(self) -> None:
        self._tried(self.hold)
        shutil.rmtree(self.place.parent, ignore_errors=True)
        assert self.hardware.keep_baseline() == ""
        self.hardware = self.start()

    def misread(self) -> None:
        """Some files read wrongly for a while, during holds and restores."""
        for path in self.random.sample(sorted(self.settings()), k=2):
            wrong: str | int = self.random.choice((*GARBAGE, *_READ_ERRORS))
            self.kernel.misread[path] = [wrong] * self.random.choice([1, 2, 5, 40])
        self._holds_and_restores()

    def ignored_or_refused(self) -> None:
        """Some files do not take what is written for a while."""
        for path in self.random.sample(sorted(self.settings()), k=2):
            self.random.choice([self.kernel.ignored, self.kernel.refused])[path] = self.random.choice([1, 2, 10])
        self._holds_and_restores()

    def _holds_and_restores(self) -> None:
        for action in self.random.choices([self.hold, self.restore, self.keep], k=4):
            self._tried(action)
        if self.random.random() < 0.3:
            self.hardware = self.start()
        self._tried(self.restore)
        self.kernel.behave()

    def _tried(self, action: Callable[[], object]) -> None:
        try:
            action()
        except DaemonError as error:
            assert "\n" not in str(error)

    @property
    def accidents(self) -> tuple[Callable[[], None], ...]:
        return (
            self.hold,
            self.killed_at_a_write,
            self.killed_while_keeping,
            self.full_disk,
            self.damaged,
            self.removed_while_holding,
            self.misread,
            self.ignored_or_refused,
        )


def held_by_us(scenario: Scenario) -> dict[str, str]:
    """Marks of ours that a board shows."""
    store, marks = scenario.kernel.store, {}
    for path, value in scenario.settings().items():
        ours = {"governor": "userspace", "scaling_governor": "userspace", "mrq_rate_locked": "1", "clk_state": "1"}
        if ours.get(path.rpartition("/")[2]) == value:
            marks[path] = value
        if path.endswith("/min_freq") and value == store[path.replace("min_freq", "max_freq")]:
            marks[path] = value
    return marks


@pytest.mark.parametrize("number", [*SCENARIOS, *(pytest.param(number, marks=pytest.mark.slow) for number in MORE)], ids=str)
def test_scenario(number: int, tmp_path: Path) -> None:
    scenario = Scenario(number, tmp_path)
    for accident in scenario.random.choices(scenario.accidents, k=scenario.random.randint(1, 4)):
        accident()
    if scenario.random.random() < 0.5:
        scenario.hardware = scenario.start()
    for _ in range(3):
        report = scenario.hardware.restore()
    assert report.failed == ()
    assert not scenario.hardware.touched and not scenario.start().touched
    if scenario.lost:
        assert not held_by_us(scenario)
    else:
        assert scenario.settings() == scenario.found
    assert not [path for path in tmp_path.rglob("*") if path.name in (*COPIES, "baseline.held") or path.name.endswith(".new")]
