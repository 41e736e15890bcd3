# SPDX-License-Identifier: Apache-2.0
"""What fails for a reason that may pass is tried again for a while, everything else is told at once."""

from __future__ import annotations

import pytest

from jetdvfs.daemon.errors import DaemonError, HardwareBusy, HardwareHangs, HardwareRefused, LimitReached, NoDaemon
from jetdvfs.daemon.hardware.bounded_calls import retried
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock


class Failing:
    """A call that fails so many times."""

    def __init__(self, error: DaemonError, times: int) -> None:
        self.calls = 0
        self._error = error
        self._times = times

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self._times:
            raise self._error
        return self.calls


def test_a_call_that_succeeds_in_time_is_made_until_it_does() -> None:
    clock = FakeClock()
    assert retried(Failing(HardwareBusy("busy"), times=2), clock, longest_s=1.0, pause_s=0.25) == 3
    assert clock.now == 100.75


@pytest.mark.parametrize("kind", [HardwareBusy, LimitReached, NoDaemon])
def test_a_call_that_goes_on_failing_is_given_up_after_the_agreed_time(kind: type[DaemonError]) -> None:
    clock, call = FakeClock(), Failing(kind("still"), times=1000)
    with pytest.raises(kind, match="still"):
        retried(call, clock, longest_s=1.0, pause_s=0.25)
    assert (call.calls, clock.now) == (4, 101.0)


@pytest.mark.parametrize("kind", [HardwareRefused, HardwareHangs])
def test_what_would_fail_again_or_was_waited_for_already_is_told_at_once(kind: type[DaemonError]) -> None:
    clock, call = FakeClock(), Failing(kind("never"), times=1)
    with pytest.raises(kind, match="never"):
        retried(call, clock, longest_s=1.0, pause_s=0.25)
    assert (call.calls, clock.now) == (1, 100.0)
