# SPDX-License-Identifier: Apache-2.0
"""The daemon's process from end to end on a board with three clusters: an AGX Orin, through FUSE or as a plain folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.daemons.board_daemon import Daemon, eventually, served_board

POLICIES = [f"sys/devices/system/cpu/cpufreq/policy{number}" for number in (0, 4, 8)]
GPU = "sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu"
EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
LOW = FrequencyConfiguration(1190400, 612000000, 2133000000)


@pytest.mark.parametrize("backend", ["fuse", "folder"])
def test_a_hold_on_an_orin_sets_every_cluster_and_is_given_back(backend: str, tmp_path: Path) -> None:
    if backend == "fuse" and (obstacle := fuse.missing()):
        pytest.skip(f"needs FUSE: {obstacle}")
    with served_board(tmp_path / "root", backend, "agx-orin-64gb") as board:
        settings = [f"{EMC}/mrq_rate_locked", f"{GPU}/governor", *(f"{policy}/scaling_governor" for policy in POLICIES)]
        before = {path: board.read(path) for path in settings}
        daemon = Daemon(board, tmp_path)
        try:
            with daemon.client() as client:
                status = client.status()
                assert (status["board"], status["degraded"]) == ("agx-orin-64gb", [])
                lease = client.hold(configuration=LOW, reason="camera", app="viewer")
                assert lease.applied is not None and lease.applied["verified"], lease.applied
                assert {board.read(f"{policy}/scaling_cur_freq") for policy in POLICIES} == {"1190400"}
                assert board.clocks == LOW
                assert set(client.status()["rails_mw"]) == {"VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"}
                # Somebody else lowers one cluster: noticed, and named.
                board.write(f"{POLICIES[1]}/scaling_setspeed", 729600)
                assert eventually(
                    lambda: any("729.6 MHz by another program" in reason for reason in client.status()["degraded"])
                )
            # What they set is left to them; all else goes back.
            left = {**before, f"{POLICIES[1]}/scaling_governor": "userspace"}
            assert eventually(lambda: {path: board.read(path) for path in settings} == left)
            assert daemon.stop() == 0, daemon.log.read_text()
        finally:
            daemon.kill()
