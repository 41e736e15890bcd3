# SPDX-License-Identifier: Apache-2.0
"""The board is given back as it was found, whatever happened in between."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.errors import HardwareRefused
from jetdvfs.daemon.hardware.baseline.record import BaselineRecord, decoded
from jetdvfs.tests.support.boards.hardware_kernel import BOOT_TWO, CAP, CPU, EMC, GPU, XAVIER, Kernel, Killed
from jetdvfs.tests.support.boards.kept_baseline import HIGH, LOW, start

# The files a person or another service sets; what a governor moves by itself is not theirs.
SETTINGS = (
    f"{CPU}/scaling_governor",
    f"{CPU}/scaling_min_freq",
    f"{CPU}/scaling_max_freq",
    f"{GPU}/governor",
    f"{GPU}/min_freq",
    f"{GPU}/max_freq",
    f"{EMC}/mrq_rate_locked",
    f"{EMC}/rate",
    f"{EMC}/state",
)


@pytest.fixture
def kernel() -> Kernel:
    kernel = Kernel()
    kernel.take(f"{CPU}/scaling_min_freq", "729600")
    return kernel


def settings(kernel: Kernel) -> dict[str, str]:
    return {path: kernel.store[path] for path in SETTINGS}


def die_at(kernel: Kernel, step: int, *, after: bool) -> None:
    """Let the process die just before or just after its write number ``step``."""
    seen = 0

    def refuse(path: str, value: str) -> int:
        nonlocal seen
        seen += 1
        if seen == step + 1:
            if after:
                kernel.take(path, value)
            raise Killed
        return 0

    kernel.refuse = refuse


def test_the_baseline_is_on_disk_before_the_first_write(kernel: Kernel, place: Path) -> None:
    die_at(kernel, 0, after=False)
    with pytest.raises(Killed):
        start(kernel, place).apply(LOW, "test")
    for copy in (place / "baseline.0", place / "baseline.1"):
        assert decoded(copy.read_bytes(), BaselineRecord).values[f"{CPU}/scaling_governor"] == "schedutil"
        assert copy.stat().st_mode & 0o777 == 0o600
    assert place.stat().st_mode & 0o777 == 0o700


def test_everything_is_given_back_and_the_file_removed(kernel: Kernel, place: Path) -> None:
    found = settings(kernel)
    hardware = start(kernel, place)
    for configuration in (LOW, HIGH, LOW):
        hardware.apply(configuration, "test")
    report = hardware.restore()
    assert settings(kernel) == found
    assert (report.left, report.failed) == ((), ())
    assert not place.exists() and not hardware.touched


def test_giving_back_twice_changes_nothing_more(kernel: Kernel, place: Path) -> None:
    hardware = start(kernel, place)
    hardware.apply(LOW, "test")
    hardware.restore()
    kernel.written.clear()
    assert hardware.restore().restored == ()
    assert kernel.written == []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("gpu_userspace", [True, False])
def test_a_process_killed_at_any_write_is_cleaned_up_after(place: Path, after: bool, gpu_userspace: bool) -> None:
    def life(kernel: Kernel) -> None:
        hardware = start(kernel, place)
        hardware.apply(LOW, "test")
        hardware.apply(HIGH, "test")
        hardware.restore()

    def fresh() -> Kernel:
        kernel = Kernel(gpu_userspace=gpu_userspace)
        kernel.take(f"{CPU}/scaling_min_freq", "729600")
        return kernel

    counted = fresh()
    life(counted)
    found, steps = settings(fresh()), len(counted.written)
    assert steps > 10
    for step in range(steps):
        kernel = fresh()
        die_at(kernel, step, after=after)
        with pytest.raises(Killed):
            life(kernel)
        kernel.refuse = lambda path, value: 0
        hardware = start(kernel, place)
        assert hardware.touched
        report = hardware.restore()
        assert (settings(kernel), report.left, report.failed) == (found, (), ()), f"killed at write {step}"
        assert not place.exists()


def test_a_process_killed_while_its_journal_is_written_is_cleaned_up_after(
    kernel: Kernel, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = settings(kernel)
    replace = Path.replace
    for step in range(5):
        count = 0

        def dying(self: Path, target: Path, step: int = step) -> Path:
            nonlocal count
            count += 1
            if count > step:
                raise Killed
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", dying)
        with pytest.raises(Killed):
            hardware = start(kernel, place)
            for configuration in (LOW, HIGH):
                hardware.apply(configuration, "test")
            pytest.fail("was not killed")
        monkeypatch.setattr(Path, "replace", replace)
        start(kernel, place).restore()
        assert settings(kernel) == found
        assert not place.exists()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{CPU}/scaling_governor", "performance"),
        (f"{CPU}/scaling_setspeed", "1420800"),
        (f"{CPU}/scaling_min_freq", "268800"),
        (f"{CPU}/scaling_max_freq", "1958400"),
        (f"{CPU}/scaling_max_freq", "268800"),
        (f"{GPU}/governor", "performance"),
        (f"{GPU}/userspace/set_freq", "905250000"),
        (f"{GPU}/min_freq", "216750000"),
        (f"{GPU}/max_freq", "675750000"),
        (f"{EMC}/rate", "2133000000"),
    ],
)
def test_what_somebody_else_set_after_a_kill_is_left_and_the_rest_given_back(
    kernel: Kernel, place: Path, path: str, value: str
) -> None:
    found = settings(kernel)
    start(kernel, place).apply(LOW, "test")
    kernel.take(path, value)
    start(kernel, place).restore()
    assert kernel._read(path).decode() == value
    ours = {"cpu": (CPU,), "gpu": (GPU,), "emc": (EMC,)}
    for name, folders in ours.items():
        if not path.startswith(folders):
            assert {p: v for p, v in settings(kernel).items() if p.startswith(folders)} == {
                p: v for p, v in found.items() if p.startswith(folders)
            }, name
    assert int(kernel.store[f"{CPU}/scaling_min_freq"]) <= int(kernel.store[f"{CPU}/scaling_max_freq"])


@pytest.mark.parametrize("nonsense", ["36893488147419103232", "-1", "<unsupported>", ""])
def test_a_setpoint_that_reads_as_nonsense_keeps_nothing_from_being_given_back(
    kernel: Kernel, place: Path, nonsense: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, read = settings(kernel), kernel._read
    start(kernel, place).apply(LOW, "test")
    misread = f"{CPU}/scaling_setspeed"
    monkeypatch.setattr(kernel, "_read", lambda path: nonsense.encode() if path == misread else read(path))
    start(kernel, place).restore()
    assert settings(kernel) == found


def test_an_upper_limit_lowered_by_somebody_else_does_not_make_our_setting_theirs(kernel: Kernel, place: Path) -> None:
    start(kernel, place).apply(HIGH, "test")
    kernel.take(f"{CPU}/scaling_max_freq", "1190400")
    kernel.take(f"{EMC}/max_rate", "800000000")
    kernel.store[f"{EMC}/rate"] = "800000000"
    start(kernel, place).restore()
    assert kernel.store[f"{CPU}/scaling_governor"] == "schedutil"
    assert kernel.store[f"{CPU}/scaling_max_freq"] == "1190400"
    assert kernel.store[f"{EMC}/mrq_rate_locked"] == "0"


def test_where_the_kernel_refuses_a_lower_limit_above_somebody_elses_upper_one_it_is_given_that(place: Path) -> None:
    kernel = Kernel(rules="4.9")
    kernel.take(f"{CPU}/scaling_min_freq", "729600")
    start(kernel, place).apply(LOW, "test")
    kernel.take(f"{CPU}/scaling_max_freq", "499200")
    assert start(kernel, place).restore().failed == ()
    assert kernel.store[f"{CPU}/scaling_min_freq"] == kernel.store[f"{CPU}/scaling_max_freq"] == "499200"


def test_a_memory_lock_that_somebody_else_released_is_not_touched(kernel: Kernel, place: Path) -> None:
    start(kernel, place).apply(LOW, "test")
    kernel.take(f"{EMC}/mrq_rate_locked", "0")
    kernel.written.clear()
    start(kernel, place).restore()
    assert not [path for path, _ in kernel.written if path.startswith(EMC)]


def test_what_somebody_else_set_during_a_hold_is_what_they_get_back(kernel: Kernel, place: Path) -> None:
    hardware = start(kernel, place)
    hardware.apply(LOW, "test")
    kernel.take(f"{CPU}/scaling_governor", "performance")
    kernel.take(f"{CPU}/scaling_min_freq", "422400")
    hardware.apply(LOW, "again")
    hardware.restore()
    assert kernel.store[f"{CPU}/scaling_governor"] == "performance"
    assert kernel.store[f"{CPU}/scaling_min_freq"] == "422400"


def test_a_limit_set_after_the_baseline_was_taken_is_what_is_given_back(kernel: Kernel, place: Path) -> None:
    hardware = start(kernel, place)
    hardware.apply(HIGH, "test")
    kernel.take(f"{CPU}/scaling_min_freq", "960000")
    hardware.apply(LOW, "test")
    hardware.restore()
    assert kernel.store[f"{CPU}/scaling_min_freq"] == "960000"


def test_after_a_reboot_nothing_is_written(kernel: Kernel, place: Path) -> None:
    start(kernel, place).apply(LOW, "test")
    kernel.store["/proc/sys/kernel/random/boot_id"] = BOOT_TWO
    kernel.written.clear()
    hardware = start(kernel, place)
    assert not hardware.touched and not place.exists()
    hardware.restore()
    assert kernel.written == []


@pytest.mark.parametrize("refused", SETTINGS)
def test_one_file_that_refuses_keeps_no_other_from_being_given_back(kernel: Kernel, place: Path, refused: str) -> None:
    found = settings(kernel)
    hardware = start(kernel, place)
    hardware.apply(LOW, "test")
    changed = settings(kernel)[refused] != found[refused]
    kernel.refuse = lambda path, value: errno.EINVAL if path == refused else 0
    report = hardware.restore()
    assert {path for path, value in settings(kernel).items() if value != found[path]} == ({refused} if changed else set())
    # Once the lock is given back, the rate is the firmware's.
    missed = changed and refused != f"{EMC}/rate"
    assert [text.split(":")[0] for text in report.failed] == ([refused] if missed else [])
    assert place.exists() == hardware.touched == missed
    kernel.refuse = lambda path, value: 0
    assert hardware.restore().failed == ()
    unlocked_rate = {f"{EMC}/rate"}  # moved by the firmware once the lock is given back
    assert {path for path, value in settings(kernel).items() if value != found[path]} <= unlocked_rate & {refused}
    assert not place.exists()


def test_a_lower_limit_is_given_back_no_higher_than_an_upper_limit_that_is_not_ours(kernel: Kernel, place: Path) -> None:
    kernel.rules = "4.9"
    start(kernel, place).apply(LOW, "test")
    kernel.take(f"{CPU}/scaling_max_freq", "499200")
    report = start(kernel, place).restore()
    assert report.failed == ()
    assert kernel.store[f"{CPU}/scaling_min_freq"] == kernel.store[f"{CPU}/scaling_max_freq"] == "499200"


def test_a_cap_that_was_in_force_binds_and_is_not_written(kernel: Kernel, place: Path) -> None:
    kernel.store[CAP] = "1600000000"
    hardware = start(kernel, place)
    with pytest.raises(HardwareRefused, match="emc_hz=2133000000 is not offered now"):
        hardware.apply(XAVIER.grid.top, "test")
    assert hardware.apply(HIGH, "test").verified
    hardware.restore()
    assert kernel.store[CAP] == "1600000000"


def test_a_file_that_cannot_be_read_keeps_no_other_from_being_given_back(kernel: Kernel, place: Path) -> None:
    found = settings(kernel)
    hardware = start(kernel, place)
    hardware.apply(LOW, "test")
    lock = f"{EMC}/mrq_rate_locked"
    held = kernel.store.pop(lock)
    report = hardware.restore()
    assert [text.split(":")[0] for text in report.failed] == [lock]
    assert {path for path, value in found.items() if kernel.store.get(path) != value} == {lock, f"{EMC}/rate"}
    kernel.store[lock] = held
    assert hardware.restore().failed == ()
    assert settings(kernel) == found


def test_restoring_a_board_that_does_not_answer_says_what_is_missing(
    kernel: Kernel, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(kernel, place).apply(LOW, "test")
    (tmp_path / "nothing").mkdir()
    assert main(["restore", "--root", str(tmp_path / "nothing"), "--runtime-dir", str(place.parent)]) == 5
    error = capsys.readouterr().err
    assert "boot_id" in error and "daemon" not in error and error.count("\n") == 1
    assert place.exists()
