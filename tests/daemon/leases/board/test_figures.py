# SPDX-License-Identifier: Apache-2.0
"""Status, plans and predictions hold numbers, whatever the board's files or a caller's say."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetdvfs.daemon.config import Config
from jetdvfs.daemon.errors import DaemonError, UsageError
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.leases.board.service import BoardService
from jetdvfs.daemon.leases.board.slowdown import EventCounters
from jetdvfs.daemon.leases.board.status import status
from jetdvfs.daemon.leases.controller import Controller
from jetdvfs.daemon.leases.demand import DemandMonitor
from jetdvfs.daemon.leases.demand_floors import FloorRules
from jetdvfs.daemon.leases.lease import Holder, Lease
from jetdvfs.daemon.planning.lease_plan import LeasePlan
from jetdvfs.daemon.planning.plan import Planning, plan
from jetdvfs.daemon.wire.calls import PUBLIC
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.errors import KernelsError
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.surface import Surface
from jetdvfs.tests.support.boards.hardware_kernel import XAVIER, FakeClock, Kernel
from jetdvfs.tests.support.daemons.replies import check_reply
from jetdvfs.tests.support.profiles.analytic import board, conv2d, network

SURFACE = surface(network(conv2d()), board(sigma=0.1, common=0.05))
ACTIVITY = XAVIER.section("emc")["activity"][0]
WILD = ("nan", "-inf", "1e300", str(10**40), str(2**63), "", "-5", "0", "²", "４２", "\x00\xff", "9" * 400, "<unknown>", "3 4")


def numbers(value: Any) -> Iterator[float]:
    """Every number in a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, (int, float)):
        yield value


class GoneWrong(Kernel):
    """A kernel whose drivers tell nonsense, or whose files are gone (None)."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, str | None] = {}

    def _read(self, path: str) -> bytes:
        if path not in self.told:
            return super()._read(path)
        text = self.told[path]
        if text is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return text.encode()


class Unwatched:
    """Nobody reports frames, nobody adds up energy."""

    def missed(self, lease_id: str) -> None:
        return None

    def energy_mj(self, lease: Lease) -> float | None:
        return None

    def doubt(self, lease_id: str) -> None:
        return None

    def corrected(self, lease: Lease) -> None:
        return None

    def silent(self, lease: Lease) -> None:
        return None


class Watched:
    """A board in memory with a lease, and all that looks after it."""

    def __init__(self, folder: Path) -> None:
        self.kernel, self.clock = GoneWrong(), FakeClock()
        self.kernel.store |= {"/proc/stat": "cpu0 1 2 3 4 5 6\n", ACTIVITY: "100000"}
        self.hardware = Hardware.probe(self.kernel, self.clock, baseline=folder / "baseline")
        demands = DemandMonitor(self.kernel, self.hardware.description, self.clock.monotonic, self.hardware, FloorRules())
        self.controller = Controller(self.hardware, Config(), self.clock.monotonic, demands)
        events = EventCounters(self.hardware.sensors.over_current, self.clock.monotonic)
        self.board_service = BoardService(self.hardware, self.controller, events, deque(), lambda: 0)
        need = LeasePlan(FrequencyConfiguration(1190400, 675750000, 1331200000))
        self.controller.hold(Holder("a", 1, 0, "app"), need, "test")

    def status(self) -> dict[str, Any]:
        self.clock.sleep(0.5)
        self.controller.tend()
        self.board_service.read()
        told = status(
            self.board_service.snapshot, self.hardware.sensors, self.hardware.description, None, (), Unwatched(), lambda _: None
        )
        return {"version": "1", **told, "uptime_s": time.monotonic()}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_status_is_what_the_interface_promises_whatever_the_boards_files_hold(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(Path(folder))
        paths = sorted(path for path in watched.kernel.store if not path.startswith(("/etc/", "/proc/sys/kernel/random")))
        for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=12, unique=True)):
            watched.kernel.told[path] = data.draw(st.none() | st.sampled_from(WILD))
        for _ in range(2):
            told = watched.status()
            check_reply(PUBLIC, "Status", {"status": told})
            assert all(math.isfinite(number) for number in numbers(json.loads(json.dumps(told))))
            assert all(0 <= power < 1e7 for power in told["rails_mw"].values())


def test_a_board_whose_every_figure_is_none_is_still_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    watched = Watched(tmp_path)
    for path in watched.kernel.store:
        if path.startswith(("/sys/class", "/sys/devices", "/sys/kernel", "/sys/bus", "/proc/stat")):
            watched.kernel.told[path] = str(10**40)
    told = watched.status()
    check_reply(PUBLIC, "Status", {"status": told})
    assert told["degraded"] and told["rails_mw"] == {} == told["temperatures_mc"]
    assert not [record for record in caplog.records if record.exc_info]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["latency_ms", "energy_mj", "power_mw", "min-energy", "min-edp"]),
    st.floats(),
    st.none() | st.floats(),
    st.none() | st.floats(),
    st.floats(1e-290, 1e290),
    st.floats(0, 1e3),
)
def test_no_plan_holds_what_is_no_number(
    kind: str, limit: float, fps: float | None, confidence: float | None, scale: float, sigma: float
) -> None:
    target = kind if kind.startswith("min") else f"{kind}={limit!r}"
    try:
        with_sigma = Surface(
            SURFACE.grid,
            SURFACE.latency_ms * scale,
            SURFACE.power_mw,
            SURFACE.energy_mj * scale,
            SURFACE.idle_mw,
            SURFACE.latency_sigma + sigma,
            SURFACE.energy_sigma + sigma,
            method="timeline",
        )
        made = plan(with_sigma, target, fps=fps, confidence=confidence)
    except (DaemonError, KernelsError) as error:
        assert "\n" not in str(error)
        return
    assert all(math.isfinite(number) for number in numbers(json.loads(json.dumps(made.to_json()))))
    assert "nan" not in made.why and "inf " not in made.why


@pytest.mark.parametrize("fps", [1e-320, 5e-324, 0.0, -1.0, 1e308, 100_001.0, math.inf, math.nan])
def test_a_rate_that_makes_no_sense_is_refused_with_those_that_do(fps: float) -> None:
    with pytest.raises(UsageError, match=r"expected a frame rate from 0\.001 to 100000"):
        plan(SURFACE, "min-energy", fps=fps)
    with pytest.raises(UsageError, match="expected a frame rate"):
        Planning().outlook(SURFACE, fps, None)


@pytest.mark.parametrize("text", ["latency_ms=1e308", "energy_mj=5e-324", "power_mw=1e9", "latency_ms=1e-9"])
def test_a_limit_that_makes_no_sense_is_refused_with_those_that_do(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected \w+=NUMBER, with a number from 0\.001 to 1\d+$"):
        plan(SURFACE, text)
