# SPDX-License-Identifier: Apache-2.0
"""Boards in states that their users found them in: what the commands say of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.daemon.cli.web.status_follower import point
from jetdvfs.daemon.errors import DaemonError
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.profiles.twin.states import put_into
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.verbs import run, run_in, run_json


@contextmanager
def found(folder: Path, name: str, states: str, jetpack: str = "") -> Iterator[Board]:
    twin = simulated_board(name, jetpack=jetpack)
    put_into(twin, states)
    with serve(twin, folder / "board", "folder"):
        yield Board(twin, folder / "board")


def findings(folder: Path, board: Board, check: str) -> list[dict[str, Any]]:
    """What doctor says of one thing."""
    config = folder / "empty.yaml"
    config.touch()
    done = run_in(folder, "doctor", "--root", board.root, "--config", config, "--socket", folder / "none.sock", "--json")
    return [one for one in json.loads(done.stdout)["checks"] if one["check"] == check]


@pytest.mark.parametrize(
    ("name", "missing", "read"),
    [
        ("orin-nano-8gb", "VDD_IN", "VDD_CPU_GPU_CV"),
        ("agx-orin-64gb", "VDDQ_VDD2_1V8AO", "VDD_GPU_SOC"),
    ],
)
def test_power_without_one_of_its_rails_is_unknown_wherever_it_is_shown(
    name: str, missing: str, read: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with found(tmp_path, name, "total-rail-missing") as board, Daemon(board, tmp_path) as daemon:
        with daemon.client() as client:
            assert eventually(lambda: read in client.status()["rails_mw"])
            status = client.status()
            said = f"power rails {missing} cannot be read: power and energy are unknown"
            assert eventually(lambda: said in client.status()["degraded"])
        assert missing not in status["rails_mw"] and missing in status["energy_rails"]
        assert point(status, 0.0)["power_mw"] is None
        socket = ("--socket", str(daemon.socket))
        (power,) = [line for line in run(capsys, "status", *socket)[1].splitlines() if line.startswith("power ")]
        assert power.startswith(f"power      unknown ({missing}); ") and read in power
        (power,) = [line for line in run(capsys, "top", "--once", *socket)[1].splitlines() if line.startswith("power  ")]
        assert power.startswith(f"power  unknown ({missing}) ") and read in power
        samples = run_json(capsys, "status", "--prometheus", *socket)["jetdvfs_power_watts"]
        assert missing not in {sample["rail"] for sample in samples}
        done = run_in(tmp_path, "measure", "--root", board.root, "--", "sleep", "0.4")
        assert f"energy unknown ({missing}), from " in done.stderr
        assert f"power rails {missing} cannot be read: power and energy are unknown" in done.stderr
        measured = json.loads(run_in(tmp_path, "measure", "--json", "--root", board.root, "--", "sleep", "0.4").stderr)
        assert measured["energy_mj"] is None and read in measured["rails"]


def test_setup_refuses_a_board_whose_power_is_unknown_before_it_promises_anything(tmp_path: Path) -> None:
    with found(tmp_path, "orin-nano-8gb", "total-rail-missing") as board:
        done = run_in(tmp_path, "setup", "--dry-run", "--root", board.root)
        assert done.returncode == 3 and "would take" not in done.stdout
        assert "power rails VDD_IN cannot be read: a profile needs them" in done.stderr
        (said,) = findings(tmp_path, board, "power rails")
        assert said["said"] == "power rails VDD_IN cannot be read: power and energy are unknown"


def test_a_thor_without_its_carriers_monitor_sums_its_module_rails_and_keeps_a_ceiling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = ["VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"]
    with found(tmp_path, "agx-thor", "no-ina238") as board, Daemon(board, tmp_path) as daemon:
        with daemon.client() as client:
            assert eventually(lambda: set(parts) <= client.status()["rails_mw"].keys())
            status = client.status()
            assert status["energy_rails"] == parts
            said = f"are the sum of {', '.join(parts)}"
            assert eventually(lambda: any(said in reason for reason in client.status()["degraded"]))
            assert f" W ({'+'.join(parts)}); " in run(capsys, "status", "--socket", str(daemon.socket))[1]
            with client.hold(None, configuration="max", ceiling_c=90.0):
                assert "hotter than 90 C" in client.status()["budget"]["reason"]
        setup = run_in(tmp_path, "setup", "--dry-run", "--json", "--root", board.root)
        assert setup.returncode == 0 and json.loads(setup.stdout)["rails"] == parts
        measured = json.loads(run_in(tmp_path, "measure", "--json", "--root", board.root, "--", "sleep", "0.4").stderr)
        assert measured["energy_mj"] == pytest.approx(sum(measured["rails"][rail]["energy_mj"] for rail in parts))
        assert any("are the sum of" in note for note in measured["notes"])
        assert any("are the sum of" in one["said"] for one in findings(tmp_path, board, "power rails"))


@pytest.mark.parametrize("state", ["gpu-max-freq-zero", "gpu-limits-not-available"])
def test_a_limit_that_says_nothing_does_not_hide_the_board(
    state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with found(tmp_path, "nano", state, "4") as board:
        shown = run_json(capsys, "board", "--root", str(board.root))
        assert shown["clocks"]["cpu_khz"]["levels"][-1] == 1479000 and "POM_5V_IN" in shown["rails_mw"]
        done = run_in(tmp_path, "setup", "--dry-run", "--root", board.root)
        assert done.returncode == 0 and "emc 10 of 10 levels" in done.stdout
        assert findings(tmp_path, board, "limits") == []


@pytest.mark.parametrize(
    ("states", "advised"),
    [
        ("no-debugfs", True),
        ("no-debugfs,no-memory-clock", True),
        ("debugfs-without-bpmp,no-memory-clock", False),
        ("debugfs-of-mainline,no-memory-clock", False),
    ],
)
def test_mounting_debugfs_is_advised_only_where_it_is_not_mounted(states: str, advised: bool, tmp_path: Path) -> None:
    with found(tmp_path, "orin-nano-8gb", states) as board:
        told = [*findings(tmp_path, board, "debugfs"), *findings(tmp_path, board, "board")]
        (said,) = [one for one in told if "memory clock" in one["said"]]
    assert (said["remedy"] == "sudo mount -t debugfs none /sys/kernel/debug") is advised
    assert ("bpmp" in said["said"].partition(";")[0]) is not advised


def test_power_modes_of_another_module_are_listed_as_such(tmp_path: Path) -> None:
    with found(tmp_path, "orin-nano-8gb", "conf-of-another-module") as board:
        lines = run_in(tmp_path, "board", "modes", "--root", board.root).stdout.splitlines()
        (said,) = findings(tmp_path, board, "power mode")
    assert lines[0] == "note: /etc/nvpmodel/nvpmodel_p3701_0000.conf is written for another module, p3701-0000"
    assert [line[4:].split(" cores")[0].split()[-1] for line in lines[1:]] == ["6", "4", "6", "6"]
    assert said["verdict"] == "note" and "is written for another module, p3701-0000" in said["said"]


def test_an_enabled_service_that_runs_jetson_clocks_is_named_whatever_its_name(tmp_path: Path) -> None:
    with found(tmp_path, "orin-nano-8gb", "jetson-clocks-at-boot") as board:
        (said,) = findings(tmp_path, board, "other services")
        with Daemon(board, tmp_path) as daemon, daemon.client():
            assert "jetson-perf.service sets clocks, too: it is enabled and runs jetson_clocks" in daemon.log.read_text()
    assert said["verdict"] == "wrong" and said["said"].startswith("jetson-perf.service sets clocks, too")
    assert said["remedy"] == "sudo systemctl disable --now jetson-perf.service"


def test_levels_beyond_the_described_ones_and_a_clock_that_is_only_capped_are_told_apart(tmp_path: Path) -> None:
    with found(tmp_path, "nano", "more-cpu-levels", "4") as board:
        shown = run_in(tmp_path, "setup", "--dry-run", "--root", board.root).stdout
    assert "cpu 17, more than the described 15, levels, gpu 12 of 12 levels" in shown
    with found(tmp_path, "orin-nano-8gb", "no-debugfs", "6") as board:
        assert "EMC  3199.00 MHz at most, not measured  cap" in run_in(tmp_path, "board", "--root", board.root).stdout


def test_a_module_without_a_description_has_its_clocks_held_and_is_told_to_be_one(tmp_path: Path) -> None:
    with found(tmp_path, "agx-orin-64gb", "undescribed-module") as board:
        shown = run_in(tmp_path, "board", "--root", board.root)
        assert "of another kind" in shown.stdout and "p3701-0009 is not described" in shown.stdout
        done = run_in(tmp_path, "setup", "--dry-run", "--root", board.root)
        assert done.returncode == 3 and "p3701-0009 is not described; --board NAME takes it" in done.stderr
        with Daemon(board, tmp_path) as daemon, daemon.client() as client:
            status = client.status()
            assert (status["board"], status["profile"]) == ("p3701-0009", None)
            assert any("its files are read as those of agx-orin-" in reason for reason in status["degraded"])
            with client.hold(configuration=(1190400, 612000000, 2133000000)) as lease:
                assert lease.applied is not None and lease.applied["verified"]
            with pytest.raises(DaemonError, match="profile"):
                client.predict(client.load(REFERENCE / "resnet18.pt", ["1x3x224x224"]))


def test_a_late_gpu_and_a_locked_memory_clock_are_states_in_which_clocks_are_held(tmp_path: Path) -> None:
    low = (1190400, 612000000, 2133000000)
    with (
        found(tmp_path, "orin-nano-8gb", "late-gpu,emc-locked", "7") as board,
        Daemon(board, tmp_path) as daemon,
        daemon.client() as client,
        client.hold(configuration=low) as lease,
    ):
        assert lease.applied is not None and lease.applied["notes"] == ["GPU clock: 612 MHz is set when its files come"]
        assert (board.clocks.cpu_khz, board.clocks.emc_hz) == (1190400, 2133000000)
        board.write("sys/devices/platform/gpu.0/railgate_enable", 0)
        assert eventually(lambda: board.clocks.gpu_hz == 612000000)


def why(capsys: pytest.CaptureFixture[str], daemon: Daemon) -> list[str]:
    code, out, _ = run(capsys, "status", "--why", "--socket", str(daemon.socket))
    assert code == 0
    return out.splitlines()


def test_cooling_devices_that_lower_clocks_are_named_though_no_zone_has_a_passive_trip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with found(tmp_path, "agx-thor", "throttle-alerts") as board, Daemon(board, tmp_path) as daemon:
        with daemon.client() as client:
            alerts = ["cooling device gpu-throttle-alert is at 1 of 2", "cooling device cpufreq-cpu0 is at 12 of 48"]
            assert eventually(lambda: client.status()["throttled"] == alerts)
            assert eventually(lambda: "gpu-throttle-alert is at 1 of 2" in daemon.log.read_text())
        lines = why(capsys, daemon)
        gpu, emc = (next(at for at, line in enumerate(lines) if line.startswith(name)) for name in ("GPU", "EMC"))
        assert f"     {alerts[0]}" in lines[gpu:emc] and f"     {alerts[1]}" in lines[:gpu]


def test_what_keeps_a_clock_down_is_said_in_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "jetdvfsd.yaml"
    config.write_text("floors: off\nlimits: {cpu_khz: {max: 1190400}}\n")
    with found(tmp_path, "orin-nano-8gb", "") as board, Daemon(board, tmp_path, "--config", str(config)) as daemon:
        gpu = next(path for path in board.twin.description.section("gpu")["devfreq"] if (board.root / path[1:]).exists())
        board.write(f"{gpu[1:]}/max_freq", 816000000)
        with daemon.client() as client:
            assert any("no lease is held: governor schedutil chooses" in line for line in why(capsys, daemon))
            with client.hold(configuration=(960000, 612000000, 2133000000), app="viewer") as lease:
                lines = why(capsys, daemon)
    assert "     at most 1190.4 MHz: limits.cpu_khz.max of the configuration" in lines
    assert f"     at most 960 MHz: lease {lease.id} of viewer holds it there (configuration)" in lines
    assert "     at most 816 MHz: the clock's upper limit, set by a person, a service or heat" in lines
    assert next(line for line in lines if line.startswith("GPU")) == "GPU  612.0 MHz"


def test_the_power_mode_that_caps_a_clock_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin = simulated_board("agx-orin-64gb", mode="MODE_30W")
    board = Board(twin, tmp_path / "board")
    with serve(twin, board.root, "folder"), Daemon(board, tmp_path) as daemon, daemon.client():
        assert any("at most 612 MHz: power mode 2 MODE_30W" in line for line in why(capsys, daemon))


def test_doctor_says_what_is_assumed_of_a_board_that_is_described_like_another(tmp_path: Path) -> None:
    with found(tmp_path, "igx-orin", "", "6") as board:
        shown = run_in(tmp_path, "doctor", "--root", board.root).stdout
        assert "NVIDIA IGX Orin is described like agx-orin-industrial; unknown of its own: axes.cpu_khz, axes.gpu_hz" in shown


@pytest.mark.parametrize(
    ("name", "state", "jetpack", "shown", "unmeasured"),
    [
        ("orin-nano-8gb", "no-debugfs", "6", "EMC 3199.0 MHz at most", {"emc_hz": "at most"}),
        ("orin-nano-8gb", "gpu-clock-unreadable", "6", "GPU unknown, EMC ", {"gpu_hz": "unknown"}),
    ],
)
def test_status_says_what_is_known_of_a_clock_that_is_not_measured(
    tmp_path: Path, name: str, state: str, jetpack: str, shown: str, unmeasured: dict[str, str]
) -> None:
    with found(tmp_path, name, state, jetpack) as board, Daemon(board, tmp_path) as daemon, daemon.client() as client:
        assert client.status()["unmeasured"] == unmeasured
        assert shown in run_in(tmp_path, "status", "--socket", daemon.socket).stdout.splitlines()[2]
        prometheus = run_in(tmp_path, "status", "--prometheus", "--socket", daemon.socket).stdout
        (axis,) = unmeasured
        assert f'jetdvfs_clock_hertz{{clock="{axis.partition("_")[0]}"}}' not in prometheus


@pytest.mark.parametrize(
    ("name", "state", "jetpack", "engines"),
    [
        ("agx-thor", "", "7", {"gpu-nvd-0": 0}),
        ("orin-nano-8gb", "codecs-busy", "6", {"vic": 729600000, "nvdec": 998400000, "nvjpg": 0}),
        ("nano", "", "4", {}),
    ],
)
def test_status_shows_the_clocks_of_codec_and_vision_units(
    tmp_path: Path, name: str, state: str, jetpack: str, engines: dict[str, int]
) -> None:
    with found(tmp_path, name, state, jetpack) as board, Daemon(board, tmp_path) as daemon, daemon.client() as client:
        # A GPU is switched off some time after it was last used.
        assert eventually(lambda: client.status()["engines_hz"] == engines)
        shown = run_in(tmp_path, "status", "--socket", daemon.socket).stdout
        assert ("engines    " in shown) == bool(engines)
        assert "codecs-busy" not in state or "engines    vic 730 MHz, nvdec 998 MHz, nvjpg off" in shown
