# SPDX-License-Identifier: Apache-2.0
"""The real daemon on a board that replays a measured table: what it holds is what frames then take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.twin.measured.tables import load_tables
from jetdvfs.profiles.twin.replayed_board import replay_board
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.profiles.analytic import network, relu
from jetdvfs.tests.support.profiles.measured_table import latency_ms, write_table

HELD = (FrequencyConfiguration(2201600, 1300500000, 2133000000), FrequencyConfiguration(729600, 510000000, 3199000000))


def test_a_held_configuration_takes_what_was_measured_there(tmp_path: Path) -> None:
    (table,) = load_tables(tmp_path, [write_table(tmp_path, board="agx-orin-64gb")])
    twin = replay_board(table)
    board = Board(twin, tmp_path / "board")
    with serve(twin, board.root, "folder"), Daemon(board, tmp_path) as daemon, daemon.client() as client:
        for configuration in HELD:
            with client.hold(configuration=configuration):
                # A plain folder tells the board what was written a moment later.
                held = configuration[:2]
                assert eventually(lambda held=held: board.clocks[:2] == held), board.clocks
                stream = twin.infer(network(relu()), frames=8)
            expected = latency_ms(configuration.cpu_khz / 1e3, configuration.gpu_hz / 1e6)
            assert 1e3 * np.median(stream.latencies_s) == pytest.approx(expected, rel=0.05)
