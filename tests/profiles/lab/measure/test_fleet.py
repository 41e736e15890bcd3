# SPDX-License-Identifier: Apache-2.0
"""A campaign over a cluster with a worker for each board, the boards being simulated."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.measure.campaign import Campaign
from jetdvfs.profiles.lab.measure.fleet import files_of_boards, run_on_fleet
from jetdvfs.profiles.lab.measure.meters.simulated import TwinMeter
from jetdvfs.profiles.lab.measure.one_twin import TwinMeters, one_board_size, plan_twin
from jetdvfs.profiles.lab.measure.steps import measure_unit, measurements_of
from jetdvfs.profiles.reference import reference_network

distributed = pytest.importorskip("distributed", reason="a cluster needs dask and distributed")

BOARD, METERS = "agx-xavier", TwinMeters("agx-xavier", 0)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A cluster of two processes on this machine."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    size = replace(one_board_size(4, 4), nodes=(4, 5), idle_configurations=8, warm_configurations=4)
    return plan_twin(BOARD, [reference_network("resnet18")], size)


def slow_bytes(node: int) -> bytes:
    time.sleep(0.1)
    return f"board {node}".encode()


def no_bytes(node: int) -> bytes:
    raise MeasurementError("the meter does not answer")


def test_many_boards_lose_nothing_to_a_killed_worker_and_are_measured_once(tmp_path: Path) -> None:
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    files, told = {node: tmp_path / f"{node}.txt" for node in range(40)}, list[int]()
    files[7].write_bytes(b"measured before")
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:

        def kill(done: int, total: int, text: str) -> None:
            told.append(done)
            if done == 10:
                os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)

        files_of_boards(client, slow_bytes, files, kill)
        with pytest.raises(MeasurementError, match=r"board 50: its measurement failed .*the meter does not answer"):
            files_of_boards(client, no_bytes, {50: tmp_path / "50.txt"})
    assert told == list(range(2, 41))
    assert {node: path.read_text() for node, path in files.items()} == {
        node: "measured before" if node == 7 else f"board {node}" for node in files
    }
    assert len(list(tmp_path.iterdir())) == 40


def broken(node: int, step: int) -> TwinMeter:
    raise MeasurementError("the meter does not answer")


def test_boards_measure_what_each_would_have_alone(client: Any, campaign: Campaign, tmp_path: Path) -> None:
    told: list[str] = []
    found = run_on_fleet(campaign, client, METERS, tmp_path, lambda done, total, text: told.append(text))
    units = enumerate(campaign.units)
    alone = measurements_of(campaign, [measure_unit(campaign, n, unit, METERS(unit.node, n)) for n, unit in units])
    for name, rows in alone.tables.items():
        for column in ("what", "node", "configuration", "value"):
            assert np.array_equal(getattr(found.tables[name], column), getattr(rows, column))
    assert found.nodes == (4, 5) and found.environment["boards"] == {"4": "0", "5": "1"}
    assert len(told) == len(campaign.units) and "2 boards; " in told[-1]
    again = run_on_fleet(campaign, client, METERS, tmp_path, lambda done, total, text: told.append(text))
    assert len(told) == len(campaign.units) and again.tables["kernel_ms"].value.sum() == found.tables["kernel_ms"].value.sum()


def test_a_share_that_the_cluster_forgets_is_measured_again(
    client: Any, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, forgotten = client.submit, list[Any]()

    def forgetful(*words: Any, **options: Any) -> Any:
        future = submit(*words, **options)
        if len(forgotten) < 2:  # as of a worker that died with the campaign's only copy
            forgotten.append(future)
            future.cancel()
        return future

    monkeypatch.setattr(client, "submit", forgetful)
    found = run_on_fleet(campaign, client, METERS)
    units = enumerate(campaign.units)
    alone = measurements_of(campaign, [measure_unit(campaign, n, unit, METERS(unit.node, n)) for n, unit in units])
    assert len(forgotten) == 2 and found.tables["kernel_ms"].value.sum() == alone.tables["kernel_ms"].value.sum()


def test_a_measurement_that_does_not_come_out_names_the_board(client: Any, campaign: Campaign) -> None:
    with pytest.raises(MeasurementError, match=r"board [01]: the meter does not answer"):
        run_on_fleet(campaign, client, broken)
    three = replace(campaign, size=replace(campaign.size, nodes=(4, 5, 6)))
    with pytest.raises(MeasurementError, match="2 workers, the campaign 3 boards"):
        run_on_fleet(three, client, METERS)


def test_a_dead_workers_share_is_measured_by_the_others(client: Any, campaign: Campaign) -> None:
    """The last of this module's tests: the second board is dead then."""
    pids = client.run(os.getpid)
    victim = next(address for address, name in client.run_on_scheduler(_names).items() if name == "1")

    def kill(done: int, total: int, text: str) -> None:
        if done == 4:
            client.cluster.workers[1].close_gracefully()  # or it would be started again, at times before it is missed
            os.kill(pids[victim], signal.SIGKILL)

    found = run_on_fleet(campaign, client, METERS, None, kill, patience_s=0.5)
    assert found.environment["lost"] == [5]
    random = {what for unit in campaign.units if unit.kind == "kernel_ms" and unit.node == 5 for what in unit.what}
    whole = {what for unit in campaign.units if unit.kind == "kernel_ms" for what in unit.what}
    rows = found.tables["kernel_ms"]
    assert set(rows.what) == whole
    assert random & set(rows.where(rows.node == 4).what)
    with pytest.raises(MeasurementError, match="1 workers, the campaign 2 boards"):
        run_on_fleet(campaign, client, METERS)


def _names(dask_scheduler: Any) -> dict[str, str]:
    return {address: str(worker.name) for address, worker in dask_scheduler.workers.items()}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--boards", "2", "--meter", "cpu"], 2, "--boards: a cluster measures simulated boards"),
        (["--boards", "0"], 2, "--boards 0: expected 1 to 64"),
        (["--boards", "nowhere"], 3, "--boards nowhere: no scheduler of a Dask cluster answers there"),
    ],
)
def test_a_cluster_that_is_none_is_told_in_one_line(
    words: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record.npz"
    assert main(["collect", "resnet18", "--meter", "simulated", "--out", str(record), *words]) == code
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1 and not record.exists()
