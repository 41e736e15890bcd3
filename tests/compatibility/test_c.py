# SPDX-License-Identifier: Apache-2.0
"""An application in C of release 1.0: compiled with its own header, and with today's, it runs with today's daemon."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.tests.support.daemons.board_daemon import Daemon
from jetdvfs.tests.support.stable import INTEGRATIONS, STORED
from jetdvfs.tests.support.stable_board import MODEL, stable_board

APPLICATION = """
#include "jetdvfs.h"
int main(int count, char **words) {
    static const char *const inputs[] = {"1x3x224x224", NULL};
    jetdvfs_client daemon;
    jetdvfs_network network;
    jetdvfs_wish wish = {0}, clocks = {0};
    int code = jetdvfs_connect(&daemon, count > 2 ? words[1] : NULL);
    if (!code) code = jetdvfs_load(&daemon, words[2], inputs, &network);
    wish.network = &network;
    wish.target = "latency_ms=20";
    wish.fps = 30;
    wish.confidence = 0.9;
    wish.reason = wish.app = "test";
    if (!code) code = jetdvfs_hold(&daemon, &wish);
    printf("%d %s%ld launches, %d, lease %d, clocks %d\\n", code, daemon.error, network.launches, jetdvfs_held(&daemon),
           daemon.lease[0] != 0, daemon.cpu_khz > 0 && daemon.gpu_hz > 0 && daemon.emc_hz > 0 && daemon.verified);
    jetdvfs_frame_begin(&daemon);
    printf("frame %d\\n", jetdvfs_frame_end(&daemon) >= 0);
    jetdvfs_report(&daemon, 12.5);
    printf("released %d, %lu frames, %lu dropped\\n", jetdvfs_release(&daemon), daemon.frames, daemon.dropped);
    clocks.cpu_khz = 1190400;
    clocks.gpu_hz = 675750000;
    clocks.emc_hz = 1600000000;
    printf("held %d\\n", jetdvfs_hold(&daemon, &clocks));
    clocks.cpu_khz = 1;
    printf("refused %d\\n", jetdvfs_hold(&daemon, &clocks) == JETDVFS_USAGE && daemon.error[0]);
    jetdvfs_close(&daemon);
    return daemon.timeout_ms < 0 || JETDVFS_INPUT + JETDVFS_NO_DAEMON != 9;
}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with stable_board(tmp_path_factory.mktemp("board")) as (_, daemon):
        yield daemon


@pytest.mark.parametrize("headers", [STORED, INTEGRATIONS / "c"], ids=["header of 1.0", "header of today"])
def test_an_application_of_1_0_runs(headers: Path, daemon: Daemon, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "application.c").write_text(APPLICATION)
    command: list[str | Path] = [compiler, "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-I", headers]
    subprocess.run([*command, "application.c", "-o", "application"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "application", daemon.socket, MODEL], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [
        "0 64 launches, 1, lease 1, clocks 1",
        "frame 1",
        "released 0, 2 frames, 0 dropped",
        "held 0",
        "refused 1",
    ]
    assert done.returncode == 0
