# SPDX-License-Identifier: Apache-2.0
"""Adding to a finished bundle what its board's engines cost, its models left as they are.

Networks are run by the simulated silicon's own engine and listed as the front end lists engines (``decompose --as engine``), so
that factors have in them what the two do otherwise. Factors are fitted to networks and boards that the profile knows,
uncertainty to boards that it does not, and to families that it does not as well. The reference networks are among those by
which it is judged, because two of them show how far lists may lie from an engine: TensorRT makes one of convolutions side by
side, where the silicon's engine keeps them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....kernels.cost.board import BoardCost
from ....kernels.engine.fusing import ENGINE_TYPES
from ....kernels.network import Network
from ...adapt.measurements import Rows
from ...adapt.network_errors import NetworkMeasurement
from ...bundle.bundle import Bundle, load_bundle
from ...bundle.manifest import UNSEEN_BOARD_ENGINE, BoundsEntry, EnginesEntry
from ...bundle.writing import write_manifest
from ...reference import reference_names, reference_network
from ...twin.silicon.silicon import check_version
from ..measure.meters.engine import engine_meter, listed
from .bounding import NODES, fit_bounds
from .engine_fit import fit_rates, fit_start, unchanged
from .evaluation import FRAMES, measure_network, with_frames
from .listed_networks import calibrating_networks, left_out_networks, trained_networks
from .production import EVALUATION_NODES, evaluate_simulated, evaluated
from .writing import copy_bundle, write_with_host

FITTED_NODES = 3
"""So many of the boards that the profile was trained on have their engines measured."""
JUDGED_NODES = NODES[:12]
"""The boards by whose errors the uncertainty is fitted."""
CONFIGURATIONS = 8
_KEPT_BY = 1.0  # all of them: what an engine makes of a network is of one piece, and off for all of it alike
_EACH = 4  # of the networks that profiles are trained on, every fourth
_STARTS = 12  # configurations at which each network's start is timed


def add_engines(bundle: Bundle, directory: Path, seed: int, progress: Callable[[int, int, str], None]) -> Bundle:
    """Measure engines on simulated boards, fit what they cost, and write the bundle with that.

    Args:
        directory: a new folder, or the bundle's own.

    Raises:
        TwinError: the silicon that it was trained on is not here, or has no engines.
    """
    manifest, cost = bundle.manifest, bundle.cost
    check_version(manifest.silicon_version, manifest.board)
    known = [reference_network(name) for name in reference_names()]
    fitted = [*known, *trained_networks()[::_EACH]]
    judging = [*known, *calibrating_networks()]
    nodes = manifest.nodes[:FITTED_NODES]
    steps, done = len(nodes) * (1 + len(ENGINE_TYPES)) + len(JUDGED_NODES) * len(ENGINE_TYPES), 0

    def told(text: str) -> None:
        nonlocal done
        progress(done, steps, text)
        done += 1

    def measured(networks: Sequence[Network], on: Sequence[int], compiled: str, frames: int) -> Iterator[NetworkMeasurement]:
        views = [listed(network, compiled) for network in networks]
        for node in on:
            told(f"board {node}: {len(networks)} networks as {compiled}")
            meter = engine_meter(manifest.board, node, seed + 4, compiled)
            for position, (network, view) in enumerate(zip(networks, views, strict=True)):
                choice = seed + 100 * node + position
                taken = measure_network(network, cost.grid, manifest.rails, meter, CONFIGURATIONS, choice)
                yield replace(with_frames(taken, cost.grid, meter, frames) if frames else taken, network=view)

    def starts() -> Iterator[tuple[Rows, NDArray[np.int64]]]:
        random = np.random.default_rng([seed, 6])
        for node in nodes:
            told(f"board {node}: starts of engines")
            for compiled in ENGINE_TYPES:
                meter = engine_meter(manifest.board, node, seed + 4, compiled)
                for network in known:
                    flat = random.choice(cost.grid.size, min(_STARTS, cost.grid.size), replace=False)
                    at = [cost.grid.configuration(np.unravel_index(index, cost.grid.shape)) for index in flat]
                    us = 1e3 * meter.host_time_ms(meter.silicon.prepared(network).calls, at)
                    launches = np.full(len(flat), len(listed(network, compiled).launches))
                    yield Rows(np.zeros(len(flat), np.int64), np.full(len(flat), node), flat, us), launches

    rows, launches = zip(*starts(), strict=True)
    cost = replace(cost, host=fit_start(cost.host, Rows.joined(list(rows)), np.concatenate(launches), cost.grid))
    rates = {dtype: fit_rates(cost, [*measured(fitted, nodes, way, 0)]) for way, dtype in ENGINE_TYPES.items()}
    running: BoardCost = replace(cost, engines=replace(unchanged(), rates=rates)).run_by("engine")
    seen = [item for way in ENGINE_TYPES for item in measured(judging, JUDGED_NODES, way, FRAMES)]
    progress(steps, steps, "fitting")
    bounded = fit_bounds(running, seen, _KEPT_BY)
    assert bounded.tails is not None
    tails, names = bounded.tails, tuple(network.name for network in judging)
    entry = EnginesEntry(
        rates=rates,
        bounds=BoundsEntry(bounded.own_scale, tails.latency, tails.energy, tails.frames, JUDGED_NODES, names),
        latency_shares=bounded.latency_shares,
        energy_shares=bounded.energy_shares,
        sigma_latency=bounded.sigma_latency,
        sigma_energy=bounded.sigma_energy,
        nodes=nodes,
        networks=tuple(network.name for network in fitted),
    )
    command = f"jetdvfs-lab train {manifest.name} --out {manifest.name}-engines"
    said = manifest.command if directory == bundle.path else f"{manifest.command}; {command}"
    copy_bundle(bundle, directory)
    write_with_host(directory, replace(manifest, engines=entry, command=said), cost.host)
    again = load_bundle(directory)
    records = {}
    for compiled, name in UNSEEN_BOARD_ENGINE.items():
        errors = evaluate_simulated(again, [*known, *left_out_networks()], EVALUATION_NODES, compiled=compiled)
        records[name] = evaluated(errors, EVALUATION_NODES)
    complete = replace(again.manifest, evaluation={**manifest.evaluation, **records})
    return replace(again, manifest=write_manifest(directory, complete, again.manifest.checksums))
