# SPDX-License-Identifier: Apache-2.0
"""Campaign on several boards: a Dask cluster with one worker each, as on MIRAGE's boards (SEC '21, section 4.2).

A lost board's random kernels are dealt to the rest.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ....kernels.stored_files import replacing
from ...adapt.measurements import Measurements
from ...errors import MeasurementError
from .campaign import Campaign, CampaignUnit
from .figures import Tables
from .meters.meter import Meter
from .steps import Progress, measure_unit, measurements_of
from .unit_store import UnitStore

MeterMaker: TypeAlias = Callable[[int, int], Meter]
"""Makes a board's meter from the numbers of board and step, on the workers."""

PATIENCE_S = 60.0
"""In s; a longer absence means a lost board."""
_LOOK_S, _POLL_S = 0.5, 0.02


class _Board(Struct):
    """Board in a running campaign; ``running`` is its current step and future."""

    name: str
    node: int
    steps: deque[int] = field(default_factory=deque)
    address: str = ""
    away_since: float = 0.0
    lost: bool = False
    running: tuple[int, Any] | None = None


def run_on_fleet(
    campaign: Campaign,
    client: Any,
    meter: MeterMaker,
    folder: Path | None = None,
    progress: Progress = lambda done, total, text: None,
    patience_s: float = PATIENCE_S,
) -> Measurements:
    """Measure everything not yet in ``folder`` on a ``distributed.Client`` with one worker per node; return all of it.

    ``patience_s`` is the absence after which a board is lost. Raises MeasurementError; finished steps are kept.
    """
    kept = UnitStore(folder, campaign.digest, campaign.about)
    finished = {number: rows for number in range(len(campaign.units)) if (rows := kept.get(number)) is not None}
    fleet = _Fleet(campaign, client, meter, patience_s, set(finished))
    with contextlib.closing(fleet):
        for number, rows in fleet.results():
            kept.put(number, rows)
            finished[number] = rows
            away = f", {len(fleet.lost)} lost" if fleet.lost else ""
            text = f"{len(fleet.boards) - len(fleet.lost)} boards{away}; {fleet.left_s() / 60:.0f} min left"
            progress(len(finished), len(campaign.units), text)
    found = measurements_of(campaign, [finished[number] for number in sorted(finished)])
    boards = {str(board.node): board.name for board in fleet.boards}
    lost = [board.node for board in fleet.lost]
    return replace(found, environment={"meter": "a cluster's workers", "boards": boards, "lost": lost})


class _Fleet:
    def __init__(self, campaign: Campaign, client: Any, meter: MeterMaker, patience_s: float, done: set[int]) -> None:
        self._campaign, self._client, self._meter, self._patience_s = campaign, client, meter, patience_s
        names = sorted(worker_names(client))
        if len(names) != len(campaign.size.nodes):
            raise MeasurementError(f"the cluster has {len(names)} workers, the campaign {len(campaign.size.nodes)} boards")
        self.boards = [_Board(name, node) for name, node in zip(names, campaign.size.nodes, strict=True)]
        by_node = {board.node: board for board in self.boards}
        self._left = [number for number in range(len(campaign.units)) if number not in done]
        for number in self._left:
            by_node[campaign.units[number].node].steps.append(number)
        same = Counter((unit.kind, unit.what) for unit in campaign.units)
        self._shared = {number for number, unit in enumerate(campaign.units) if same[unit.kind, unit.what] == 1}
        self._dealt_again: deque[int] = deque()
        self._began, self._finished, self._data = time.monotonic(), 0, None

    @property
    def lost(self) -> list[_Board]:
        return [board for board in self.boards if board.lost]

    def left_s(self) -> float:
        left = sum(len(board.steps) for board in self.boards if not board.lost) + len(self._dealt_again)
        return (time.monotonic() - self._began) / max(self._finished, 1) * left

    def results(self) -> Iterator[tuple[int, Tables]]:
        looked = 0.0
        while True:
            if time.monotonic() - looked > _LOOK_S:
                self._check_boards()
                looked = time.monotonic()
            for board in self.boards:
                self._set_to_work(board)
            working = [board for board in self.boards if board.running is not None]
            if not working and not any(board.steps and not board.lost for board in self.boards):
                return
            time.sleep(_POLL_S)
            for board in working:
                if board.running is not None and board.running[1].cancelled():  # with a worker that held the campaign
                    self._hand_out()
                    self._interrupt(board)
                elif board.running is not None and board.running[1].done():
                    (number, future), board.running = board.running, None
                    tables = self._result(board, future)
                    self._finished += 1
                    yield number, tables

    def close(self) -> None:
        for board in self.boards:
            if board.running is not None:
                board.running[1].cancel(force=True)

    def _check_boards(self) -> None:
        now, there = time.monotonic(), worker_names(self._client)
        if any(there.get(board.name, board.address) != board.address for board in self.boards):
            self._hand_out()
        for board in self.boards:
            address = there.get(board.name, "")
            if address != board.address:
                self._interrupt(board)
                board.address, board.away_since = address, now
            if not address and not board.lost and now - board.away_since > self._patience_s:
                board.lost = True
                self._dealt_again += [number for number in board.steps if number in self._shared]
                board.steps.clear()
        if all(board.lost for board in self.boards):
            raise MeasurementError("no board of the cluster is left; finished steps are kept with --folder")

    def _hand_out(self) -> None:
        self._data = self._client.scatter(self._campaign, broadcast=True, hash=False)

    def _interrupt(self, board: _Board) -> None:
        if board.running is not None:
            number, future = board.running
            future.cancel(force=True)
            board.steps.appendleft(number)
            board.running = None

    def _set_to_work(self, board: _Board) -> None:
        if board.running is not None or board.lost or not board.address:
            return
        steps = board.steps or self._dealt_again
        if steps:
            number = steps.popleft()
            unit = replace(self._campaign.units[number], node=board.node)
            future = self._client.submit(
                measure_on_worker, self._data, number, unit, self._meter, workers=[board.address], pure=False, retries=0
            )
            board.running = number, future

    def _result(self, board: _Board, future: Any) -> Tables:
        try:
            tables: Tables = future.result()
        except MeasurementError as error:
            raise MeasurementError(f"board {board.name}: {error}") from error
        except Exception as error:  # any error on a worker
            raise MeasurementError(f"board {board.name}: its worker failed ({error!r:.200})") from error
        return tables


def files_of_boards(
    client: Any, measure: Callable[[int], bytes], files: Mapping[int, Path], progress: Progress = lambda done, total, text: None
) -> None:
    """Measure boards, by number, as tasks of a ``distributed.Client``, and write the bytes of each to its file.

    A board whose file exists is not measured again. A dead worker's boards are measured by the rest. Raises MeasurementError.
    """
    from distributed import as_completed

    left = [node for node, path in files.items() if not path.exists()]
    nodes = dict(zip(client.map(measure, left, pure=False), left, strict=True))
    for done, future in enumerate(as_completed(list(nodes)), len(files) - len(left) + 1):
        path = files[nodes[future]]
        try:
            with replacing(path) as file:
                file.write(future.result())
        except OSError as error:
            raise MeasurementError(f"{path}: {error.strerror or error}; finished boards are kept") from error
        except Exception as error:  # any error on a worker
            raise MeasurementError(f"board {nodes[future]}: its measurement failed ({error!r:.200})") from error
        future.release()
        progress(done, len(files), f"board {nodes[future]}")


def measure_on_worker(campaign: Campaign, number: int, unit: CampaignUnit, meter: MeterMaker) -> Tables:
    return measure_unit(campaign, number, unit, meter(unit.node, number))


def worker_names(client: Any) -> dict[str, str]:
    found: dict[str, str] = client.run_on_scheduler(_names)
    return found


def _names(dask_scheduler: Any) -> dict[str, str]:
    return {str(worker.name): address for address, worker in dask_scheduler.workers.items()}
