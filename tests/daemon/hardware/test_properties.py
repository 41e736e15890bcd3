# SPDX-License-Identifier: Apache-2.0
"""Whatever the start, the requests, the refusals and the kills: the board ends as requested or as it was found."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from jetdvfs.daemon.errors import DaemonError
from jetdvfs.daemon.hardware.clocks.driver import Clusters
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.boards.hardware_kernel import CPU, CPUFREQ, EMC, GPU, XAVIER, FakeClock, Kernel, Killed

GRID = XAVIER.grid
configurations = st.builds(
    FrequencyConfiguration, st.sampled_from(GRID.cpu_khz), st.sampled_from(GRID.gpu_hz), st.sampled_from(GRID.emc_hz)
)


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """A kernel of either sort whose clocks somebody has already set somehow."""
    kernel = Kernel(rules=draw(st.sampled_from(["4.9", "5.10"])), gpu_userspace=draw(st.booleans()))
    for low, high, levels in (
        (f"{CPU}/scaling_min_freq", f"{CPU}/scaling_max_freq", GRID.cpu_khz),
        (f"{GPU}/min_freq", f"{GPU}/max_freq", GRID.gpu_hz),
    ):
        limits = sorted(draw(st.tuples(st.sampled_from(levels), st.sampled_from(levels))))
        kernel.take(low, str(limits[0]))
        kernel.take(high, str(limits[1]))
    kernel.take(f"{CPU}/scaling_governor", draw(st.sampled_from(["schedutil", "performance", "userspace"])))
    kernel.take(f"{GPU}/governor", draw(st.sampled_from(kernel.store[f"{GPU}/available_governors"].split())))
    kernel.take(f"{EMC}/rate", str(draw(st.sampled_from(GRID.emc_hz))))
    kernel.take(f"{EMC}/state", draw(st.sampled_from("01")))
    kernel.take(f"{EMC}/mrq_rate_locked", draw(st.sampled_from("01")))
    return kernel


def state(kernel: Kernel) -> dict[str, str]:
    """What somebody has set: limits, governors, the lock, and the clock where one is fixed under them."""
    names = ["scaling_governor", "scaling_min_freq", "scaling_max_freq", "scaling_setspeed"]
    paths = [f"{CPU}/{name}" for name in names] + [f"{GPU}/{name}" for name in ("governor", "min_freq", "max_freq")]
    paths += [f"{EMC}/mrq_rate_locked", f"{EMC}/state"]
    if kernel.store[f"{EMC}/mrq_rate_locked"] == "1":
        paths.append(f"{EMC}/rate")
    if kernel.store[f"{GPU}/governor"] == "userspace":
        paths.append(f"{GPU}/userspace/set_freq")
    # A GPU that nobody has given a frequency yet has none to go back to.
    return {path: kernel._read(path).decode() for path in paths if kernel._read(path) != b"undefined"}


def includes(now: dict[str, str], found: dict[str, str]) -> bool:
    return {path: now.get(path) for path in found} == found


@st.composite
def troubles(draw: st.DrawFn) -> tuple[str, int]:
    """What goes wrong during one request, and at which of its writes."""
    return draw(st.sampled_from(["nothing", "refuse once", "refuse from then on", "kill"])), draw(st.integers(0, 7))


def clock_held_up_by_its_limit() -> Kernel:
    """Somebody's CPU frequency lies below their own lower limit: the file shows the limit."""
    kernel = Kernel()
    kernel.take(f"{CPU}/scaling_governor", "userspace")
    kernel.take(f"{CPU}/scaling_setspeed", "1190400")
    kernel.take(f"{CPU}/scaling_min_freq", "1267200")
    return kernel


LOWEST = FrequencyConfiguration(115200, 114750000, 204000000)


@settings(max_examples=150, deadline=None)
@example(clock_held_up_by_its_limit(), [(LOWEST, ("refuse from then on", 3)), (LOWEST, ("nothing", 0))])
@example(clock_held_up_by_its_limit(), [(LOWEST, ("refuse from then on", 3)), (LOWEST, ("kill", 0))])
@given(kernel=kernels(), steps=st.lists(st.tuples(configurations, troubles()), min_size=1, max_size=5))
def test_the_end_is_the_request_or_what_was_before(
    kernel: Kernel, steps: list[tuple[FrequencyConfiguration, tuple[str, int]]]
) -> None:
    def limits_are_in_order() -> None:
        for low, high in ((f"{CPU}/scaling_min_freq", f"{CPU}/scaling_max_freq"), (f"{GPU}/min_freq", f"{GPU}/max_freq")):
            assert int(kernel.store[low]) <= int(kernel.store[high])

    kernel.watch = limits_are_in_order
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "baseline.json")
        hardware = Hardware.probe(kernel, FakeClock(), baseline=place)
        found = state(kernel)
        for configuration, (trouble, at) in steps:
            before, count = state(kernel), 0

            def refuse(path: str, value: str, trouble: str = trouble, at: int = at) -> int:
                nonlocal count
                count += 1
                if trouble == "kill" and count == at + 1:
                    raise Killed
                if (trouble == "refuse once" and count == at + 1) or (trouble == "refuse from then on" and count > at):
                    return errno.EINVAL
                return 0

            kernel.refuse = refuse
            try:
                applied = hardware.apply(configuration, "test")
                assert applied.verified
                assert hardware.current() == configuration
            except DaemonError as error:
                offered = all(getattr(configuration, axis) in getattr(hardware.grid(), axis) for axis in configuration._fields)
                if not offered or trouble == "refuse once":
                    assert includes(state(kernel), before), str(error)
                elif "could not" not in str(error) and "not everything" not in str(error):
                    assert includes(state(kernel), before)
            except Killed:
                kernel.refuse = lambda path, value: 0
                hardware = Hardware.probe(kernel, FakeClock(), baseline=place)
                report = hardware.restore()
                assert not report.failed and not report.left
                assert includes(state(kernel), found)
            kernel.refuse = lambda path, value: 0
        report = hardware.restore()
        assert not report.failed and not report.left
        assert includes(state(kernel), found)
        assert not place.exists()


ORIN = load_board("agx-orin-64gb")
POLICIES = tuple(f"{CPUFREQ}/{policy.name}" for policy in ORIN.cpu_policies)
levels = st.sampled_from(ORIN.grid.cpu_khz)
settings_apart = st.tuples(
    st.builds(FrequencyConfiguration, levels, st.sampled_from(ORIN.grid.gpu_hz), st.sampled_from(ORIN.grid.emc_hz)),
    st.dictionaries(st.sampled_from(["policy4", "policy8"]), levels),
    st.sampled_from([(), ("policy4",), ("policy8",), ("policy4", "policy8")]),
    troubles(),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(settings_apart, min_size=1, max_size=5))
def test_clusters_set_apart_end_as_requested_or_as_they_were(
    steps: list[tuple[FrequencyConfiguration, dict[str, int], tuple[str, ...], tuple[str, int]]],
) -> None:
    kernel = Kernel(ORIN, emc=("bpmp",))
    cores = {policy: kernel.store[f"{policy}/affected_cpus"] for policy in POLICIES}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "baseline.json")
        hardware = Hardware.probe(kernel, FakeClock(), baseline=place, clusters=Clusters(apart=True))
        for configuration, clusters, offline, (trouble, at) in steps:
            for policy, cpus in cores.items():
                kernel.store[f"{policy}/affected_cpus"] = "" if policy.endswith(offline or "none") else cpus
            count = 0

            def refuse(path: str, value: str, trouble: str = trouble, at: int = at) -> int:
                nonlocal count
                count += 1
                if trouble == "kill" and count == at + 1:
                    raise Killed
                return errno.EINVAL if trouble == "refuse once" and count == at + 1 else 0

            kernel.refuse = refuse
            try:
                applied = hardware.apply(configuration, "test", clusters)
                assert applied.verified and hardware.current() == configuration
                expected = {name: clusters.get(name, ORIN.grid.cpu_khz[0]) for name in ("policy4", "policy8")}
                assert {name: level.effective for name, level in applied.clusters.items()} == {
                    name: khz for name, khz in expected.items() if name not in offline
                }
            except DaemonError as error:
                assert trouble != "nothing" and "not everything" not in str(error)
            except Killed:
                hardware = Hardware.probe(kernel, FakeClock(), baseline=place, clusters=Clusters(apart=True))
            kernel.refuse = lambda path, value: 0
        for policy, cpus in cores.items():
            kernel.store[f"{policy}/affected_cpus"] = cpus
        report = hardware.restore()
        assert not report.failed and not report.left
        assert {kernel.store[f"{policy}/scaling_governor"] for policy in POLICIES} == {"schedutil"}
        assert kernel.store[f"{ORIN.section('emc')['bpmp']}/mrq_rate_locked"] == "0" and not place.exists()
