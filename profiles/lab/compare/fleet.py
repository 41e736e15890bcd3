# SPDX-License-Identifier: Apache-2.0
"""Study of a simulated fleet: boards of one kind measured on a cluster, merged, trained on, and new boards of that fleet.

Every second board gives a small record, the rest their daemons' observations. Each runs some of the fleet's networks.
"""

from __future__ import annotations

import hashlib
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins
from msgspec.structs import astuple

from ....daemon.leases.learning.observation_store import ObservationStore, ProgramKey
from ....kernels.correction.correct import correct
from ....kernels.correction.observation import Observation
from ....kernels.cost.model import surface
from ....kernels.network import Network
from ....kernels.surface import Surface
from ...adapt.adapting import observations
from ...adapt.measurements import Measurements
from ...adapt.network_errors import mean_error_percent
from ...board import load_board
from ...bundle.bundle import Bundle, load_bundle
from ...twin.silicon.silicon import Silicon
from ..measure.campaign import CampaignSize
from ..measure.fleet import files_of_boards
from ..measure.learned import read_learned
from ..measure.merging import merged
from ..measure.meters.simulated import twin_meter
from ..measure.one_twin import TwinMeters, one_board_size, plan_twin
from ..measure.steps import Progress, run_units
from ..train.evaluation import measure_network, true_surface
from ..train.kernel_models import Recipe
from ..train.making import bundle_from_record
from .plans import TrialCounts, plans_for, try_out, usual_targets

SIZES, COUNTS, MANY = (10, 25, 50, 100, 200), (0, 1, 3, 10), 10_000
"""Boards that are merged and trained on, observations of each network on a new board, and boards of the extrapolation."""
_PROGRAMS, _OBSERVED = 3, 6  # networks of a board, and configurations of each that its daemon observed
_SINGLE_KERNELS = 8
_RECIPES = {"": (Recipe(6, 0.3, min_child_weight=2.0),)}  # a third of the usual trees
_NEW = 10_000  # number of the first new board


class FleetBoards(Struct, frozen=True):
    """A fleet; a call with a board's number gives the bytes of that board's record or ``learned.json``."""

    board: str
    perturbed: int
    networks: tuple[Network, ...]
    seed: int = 0

    def name(self, node: int) -> str:
        return f"{node}.{'json' if node % 2 else 'npz'}"

    def __call__(self, node: int) -> bytes:
        some = range(min(_PROGRAMS, len(self.networks)))
        own = [self.networks[(node // 2 + place) % len(self.networks)] for place in some]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / self.name(node)
            if node % 2:
                store = ObservationStore(path, lambda: 0.0, self.board)
                for network in own:
                    seen = self.observed(node, network, _OBSERVED)
                    store.remember(ProgramKey(0, network.digest), seen, name=network.name)
                store.save()
            else:
                size = CampaignSize((node,), {}, 1, 1, 1, 4, 2, 2, 16, power_kernels=8, power_configurations=1)
                self.record(own, size, self.seed + node).save(path)
            return path.read_bytes()

    def record(self, networks: Sequence[Network], size: CampaignSize, seed: int) -> Measurements:
        campaign = plan_twin(self.board, networks, size, seed, perturbed=self.perturbed)
        return run_units(campaign, TwinMeters(self.board, self.seed, self.perturbed))

    def observed(self, node: int, network: Network, count: int) -> Sequence[Observation]:
        board, seed = load_board(self.board), int(network.digest[:8], 16) + node + self.seed
        meter = twin_meter(self.board, node, self.seed, perturbed=self.perturbed)
        taken = measure_network(network, board.grid, board.energy_rails, meter, count, seed)
        return observations(board, [taken])[0][1]

    def true(self, node: int | None, network: Network) -> Surface:
        board, silicon = load_board(self.board), Silicon(node, self.board, perturbed=self.perturbed)
        return true_surface(network, silicon, board.grid, board.energy_rails)


def collected(
    fleet: FleetBoards, boards: int, folder: Path, client: Any, progress: Progress, kill_after: int | None = None
) -> tuple[list[Path], int | None]:
    """Files of the boards, and their number when a worker of this machine was killed: ``kill_after``, if it came to that."""
    files, killed = {node: folder / fleet.name(node) for node in range(boards)}, list[int]()

    def measured(done: int, total: int, text: str) -> None:
        progress(done, total, text)
        if done == kill_after:
            os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)
            killed.append(done)

    files_of_boards(client, fleet, files, measured)
    return list(files.values()), killed[0] if killed else None


class GrowthRow(Struct, frozen=True):
    """Cost by number of boards: processor time in s, and bytes, of the merged record and of the profile."""

    boards: int
    merge_s: float
    record_bytes: int
    train_s: float
    profile_bytes: int


def grown(files: Sequence[Path], sizes: Sequence[int], folder: Path, progress: Progress) -> tuple[list[GrowthRow], Bundle]:
    """Merge and train on the first boards of each number; return also the last profile. Raises MeasurementError."""
    rows = []
    for count in sizes:
        began_s, some, written = time.process_time(), files[:count], folder / f"fleet-{count}.npz"
        record, _ = merged(
            {path.name: Measurements.load(path) for path in some if path.suffix == ".npz"},
            {path.name: read_learned(path) for path in some if path.suffix != ".npz"},
        )
        record.save(written)
        merged_s = time.process_time()
        bundle = _trained(record, written.stem, folder, progress)
        size, trained_s = sum(path.stat().st_size for path in bundle.path.iterdir()), time.process_time()
        rows.append(GrowthRow(count, merged_s - began_s, written.stat().st_size, trained_s - merged_s, size))
    return rows, bundle


def _trained(record: Measurements, name: str, folder: Path, progress: Progress) -> Bundle:
    return bundle_from_record(record, name, "jetdvfs-lab compare fleet", folder / name, progress, tuned=_RECIPES)


class NewBoardRow(Struct, frozen=True):
    """Mean over new boards and networks after some observations of each network.

    Attributes:
        networks: ``known`` to the fleet, or ``unseen``.
        latency_percent, power_percent: mean absolute error over the grid.
        regret, missed: of plans for the usual targets: mean above the best, and share of missed targets.
    """

    profile: str
    networks: str
    observations: int
    latency_percent: float
    power_percent: float
    regret: float
    missed: float


def on_new_boards(
    profiles: Mapping[str, Bundle], fleet: FleetBoards, unseen: Sequence[Network], boards: int, progress: Progress
) -> list[NewBoardRow]:
    """Rows of each profile, for networks known and unseen, after each of :data:`COUNTS`."""
    errors, trials = dict[tuple[str, str, int], list[list[float]]](), dict[tuple[str, str, int], list[Any]]()
    for number, network in enumerate((*fleet.networks, *unseen)):
        kind = "known" if network in fleet.networks else "unseen"
        predicted = {name: surface(network, bundle.cost) for name, bundle in profiles.items()}
        targets = usual_targets(fleet.true(None, network))
        for node in range(_NEW, _NEW + boards):
            progress(number * boards + node - _NEW, (len(fleet.networks) + len(unseen)) * boards, f"new boards: {network.name}")
            true, seen = fleet.true(node, network), fleet.observed(node, network, max(COUNTS))
            for name, before in predicted.items():
                for count in COUNTS:
                    now, key = correct(before, seen[:count]).surface if count else before, (name, kind, count)
                    pairs = (now.latency_ms, true.latency_ms), (now.power_mw, true.power_mw)
                    errors.setdefault(key, []).append([mean_error_percent(*pair) for pair in pairs])
                    plans = zip(targets, plans_for(now, targets), strict=True)
                    trials.setdefault(key, []).extend(try_out(target, plan, true) for target, plan in plans)
    rows = []
    for key, each in sorted(errors.items(), key=lambda one: one[0][1]):
        own, (latency, power) = TrialCounts.of(trials[key]), map(float, np.mean(each, axis=0))
        rows.append(NewBoardRow(*key, latency, power, own.mean_regret, own.missed / max(own.trials, 1)))
    return rows


def studied(
    fleet: FleetBoards, files: Sequence[Path], new_boards: int, folder: Path, unseen: Sequence[Network], progress: Progress
) -> dict[str, Any]:
    """Merge files of boards, and train and evaluate profiles in ``folder``; a JSON document.

    Costs grow with ``powers`` of the number of boards over the larger half of the sizes, and are extrapolated by these and by a
    line. Raises MeasurementError.
    """
    boards, contents = len(files), [path.read_bytes() for path in files]
    growth, of_fleet = grown(files, [*(size for size in SIZES if size < boards), boards], folder, progress)
    alone = fleet.record(fleet.networks, one_board_size(0, _SINGLE_KERNELS), fleet.seed)
    single = _trained(alone, "one-board", folder, progress)
    profiles = {"the shipped": load_bundle(f"{fleet.board}-sim"), "one board's": single, "the fleet's": of_fleet}
    rows = on_new_boards(profiles, fleet, unseen, new_boards, progress)
    return {
        "study": "fleet", "simulated": True, "board": fleet.board, "silicon": of_fleet.manifest.silicon_version,
        "boards": boards, "digest": hashlib.sha256(b"".join(contents)).hexdigest(),
        "file_bytes": [int(np.mean([len(one) for one in contents[kind::2]])) for kind in (0, 1)],
        "spread": to_builtins(of_fleet.manifest.fleet), "networks": [network.name for network in fleet.networks],
        "new_boards": new_boards, "growth": to_builtins(growth), **extrapolated(growth), "rows": to_builtins(rows),
    }  # fmt: skip


def extrapolated(growth: Sequence[GrowthRow]) -> dict[str, Any]:
    rows = np.array([astuple(row) for row in growth[len(growth) // 2 :]], np.float64)
    powers, at_one = np.polyfit(np.log(rows[:, 0]), np.log(rows[:, 1:]), 1)
    more, least = np.polyfit(rows[:, 0], rows[:, 1:], 1)
    by_both = zip((np.exp(at_one) * MANY**powers).tolist(), (least + more * MANY).tolist(), strict=True)
    names = GrowthRow.__struct_fields__[1:]
    return {
        "powers": dict(zip(names, powers.tolist(), strict=True)),
        "extrapolated": {"boards": MANY, **dict(zip(names, by_both, strict=True))},
    }
