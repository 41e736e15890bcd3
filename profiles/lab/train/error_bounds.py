# SPDX-License-Identifier: Apache-2.0
"""Bounds for unseen networks, from errors on held-out families and boards.

Errors of one board or network are correlated, so pooled errors cannot give a bound. Quantiles are taken per network over
boards, configurations and frames; 19 of 20 networks keep the bound as often as stated. Their families
(:func:`.listed_networks.calibrating_networks`) serve neither training nor evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ....kernels.cost.board import UNSCALED, BoardCost
from ....kernels.cost.model import assemble, kernel_costs, surface
from ....kernels.cost.region import ModelPair
from ....kernels.cost.totals import NO_SHARES, BottleneckShares
from ....kernels.execution import check_execution
from ....kernels.network import Network
from ....kernels.surface import LEVELS, Surface, Tail, Tails
from ...adapt.network_errors import NetworkMeasurement
from ...bundle.bundle import Bundle, load_bundle
from ...bundle.manifest import UNSEEN_BOARD, UNSEEN_FAMILY, BoundsEntry
from ...bundle.writing import write_manifest
from ...errors import MeasurementError
from ...reference import reference_names, reference_network
from ...twin.silicon.silicon import check_version
from ..measure.meters.simulated import twin_meter
from .common_error import squared_parts
from .evaluation import FRAMES, evaluated, measure_network, with_frames
from .listed_networks import calibrating_networks, left_out_networks
from .making import copy_bundle
from .production import EVALUATION_NODES, evaluate_simulated

NODES = tuple(range(100, 132))
"""Simulated boards for fitting bounds. Many are needed, since a board's error is common to its configurations."""

CONFIGURATIONS = 10
_KEPT_BY = 19 / 20  # of networks: of 25, all but one
_LEAST_NETWORKS = 8
_LEAST_SIGMA, _LEAST_SCALE = 0.01, 1e-4
_MOST_EXCEEDING = 4000  # as many as a fit of two numbers needs
_MOST_SHAPE = 0.5


Figure: TypeAlias = Literal["latency", "energy"]


_FIGURES: tuple[Figure, Figure] = ("latency", "energy")
_NAMES = {"latency": ("latency_ms", "latency_sigma"), "energy": ("energy_mj", "energy_sigma")}


class _NetworkErrors(Struct, frozen=True, eq=False):
    """Components of a network's errors in latency or energy, over the flat grid.

    Attributes:
        own, guessed: variance of its kernels' own errors, and of guessed kernels.
        parts: squared shares of host, computation and memory traffic, (3, configurations).
    """

    predicted: NDArray[np.float64]
    own: NDArray[np.float64]
    guessed: NDArray[np.float64]
    parts: NDArray[np.float64]


def fit_bounds(cost: BoardCost, measured: Sequence[NetworkMeasurement], kept_by: float = _KEPT_BY) -> BoardCost:
    """Cost with uncertainties and tails of unseen networks. Raises MeasurementError.

    Args:
        measured: whole networks, of families and boards in neither training nor evaluation; frames show single errors.
        kept_by: share of the networks that keep a bound as often as stated.
    """
    networks = {item.network.digest: item.network for item in measured}
    if len(networks) < _LEAST_NETWORKS:
        raise MeasurementError(
            f"bounds: {len(networks)} networks of families that the profile does not know; expected {_LEAST_NETWORKS} or more"
        )
    seen = {digest: _seen(network, cost) for digest, network in networks.items()}
    (own_ms, latency, common_ms), (own_mj, energy, common_mj) = (_explained(seen, measured, figure) for figure in _FIGURES)
    fitted = replace(
        cost,
        own_scale=ModelPair(own_ms, own_mj),
        latency_shares=latency,
        energy_shares=energy,
        sigma_latency=common_ms,
        sigma_energy=common_mj,
        tails=None,
    )
    made = {digest: surface(network, fitted) for digest, network in networks.items()}
    tails = [_tail(made, measured, figure, kept_by) for figure in _FIGURES]
    return replace(fitted, tails=Tails(tails[0], tails[1], _jitter(measured)))


def _seen(network: Network, cost: BoardCost) -> dict[Figure, _NetworkErrors]:
    bare = replace(
        cost, latency_shares=NO_SHARES, energy_shares=NO_SHARES, sigma_latency=0.0, sigma_energy=0.0, own_scale=UNSCALED
    )
    costs, way = kernel_costs(network, bare), check_execution(None, network)
    whole, guessed = (
        assemble(network, one, costs, "timeline", way) for one in (bare, replace(bare, own_scale=ModelPair(0.0, 0.0)))
    )
    parts = squared_parts(network, bare, costs)
    found: dict[Figure, _NetworkErrors] = {}
    for figure, of_shares in zip(_FIGURES, parts, strict=True):
        name, sigma = _NAMES[figure]
        of_all, of_guesses = (getattr(one, sigma).ravel() ** 2 for one in (whole, guessed))
        found[figure] = _NetworkErrors(getattr(whole, name).ravel(), of_all - of_guesses, of_guesses, of_shares)
    return found


def _explained(
    seen: dict[str, dict[Figure, _NetworkErrors]], measured: Sequence[NetworkMeasurement], figure: Figure
) -> tuple[float, BottleneckShares, float]:
    """Non-negative least squares of squared errors: kernel scale, shares, common term."""
    from scipy.optimize import nnls

    rows, squares = [], []
    for item in measured:
        found, at = seen[item.network.digest][figure], item.index
        weight = 1 / np.sqrt(len(at))
        error = np.log(_measured(item, figure) / found.predicted[at])
        rows.append(weight * np.stack([found.own[at], *found.parts[:, at], np.ones(len(at))], axis=1))
        squares.append(weight * (error**2 - found.guessed[at]))
    own, host, compute, memory, common = np.sqrt(nnls(np.concatenate(rows), np.concatenate(squares))[0])
    return float(own), BottleneckShares(float(host), float(compute), float(memory)), max(float(common), _LEAST_SIGMA)


def _tail(made: Mapping[str, Surface], measured: Sequence[NetworkMeasurement], figure: Figure, kept_by: float) -> Tail:
    by_network: dict[str, list[NDArray[np.float64]]] = {digest: [] for digest in made}
    for item in measured:
        predicted, sigma = (getattr(made[item.network.digest], name).ravel()[item.index] for name in _NAMES[figure])
        by_network[item.network.digest].append(_errors(item, figure, predicted, sigma))
    errors = [np.concatenate(parts) for parts in by_network.values()]
    quantiles = np.quantile([np.quantile(each, LEVELS) for each in errors], kept_by, axis=0, method="higher")
    return _with_peaks(quantiles, np.concatenate(errors))


def _jitter(measured: Sequence[NetworkMeasurement]) -> Tail:
    """Tail of single frames above their median; zero without frames."""
    kept = [item.frames_ms for item in measured if item.frames_ms is not None]
    ratios = [np.log(frames_ms / np.median(frames_ms, axis=1, keepdims=True)).ravel() for frames_ms in kept]
    every = np.concatenate(ratios) if ratios else np.zeros(1)
    return _with_peaks(np.quantile(every, LEVELS), every)


def _with_peaks(quantiles: NDArray[np.float64], every: NDArray[np.float64]) -> Tail:
    from scipy.stats import genpareto

    quantiles = np.maximum.accumulate(np.maximum(quantiles, 0.0))
    excess = every[every > quantiles[-1]] - quantiles[-1]
    if not len(excess):
        return Tail(tuple(quantiles.tolist()), 0.0, _LEAST_SCALE)
    excess = np.random.default_rng(0).choice(excess, min(len(excess), _MOST_EXCEEDING), replace=False)
    shape, _, scale = genpareto.fit(excess, floc=0.0)
    if not 0 <= shape <= _MOST_SHAPE:  # the same mean, and no lighter than an exponential one
        shape = min(max(shape, 0.0), _MOST_SHAPE)
        scale = float(excess.mean()) * (1 - shape)
    return Tail(tuple(np.round(quantiles, 5).tolist()), round(float(shape), 4), max(round(float(scale), 5), _LEAST_SCALE))


def _errors(
    item: NetworkMeasurement, figure: Figure, predicted: NDArray[np.float64], sigma: NDArray[np.float64]
) -> NDArray[np.float64]:
    if figure == "energy":
        return np.asarray(np.log(_measured(item, figure) / predicted) / sigma)
    frames_ms = item.latency_ms[:, None] if item.frames_ms is None else item.frames_ms
    return np.asarray(np.log(frames_ms / predicted[:, None]) / sigma[:, None]).ravel()


def _measured(item: NetworkMeasurement, figure: Figure) -> NDArray[np.float64]:
    if figure == "latency":
        return item.latency_ms
    if item.energy_mj is None:
        raise MeasurementError(f"bounds: power of network {item.network.name} was not measured")
    return item.energy_mj


def _command(name: str) -> str:
    return f"jetdvfs-lab train {name} --out {name}-bounded"


def bound(bundle: Bundle, directory: Path, seed: int, progress: Callable[[int, int, str], None]) -> Bundle:
    """Measure networks on simulated boards, fit a finished bundle's bounds, and write it. Raises TwinError."""
    manifest, cost = bundle.manifest, bundle.cost
    check_version(manifest.silicon_version, manifest.board)
    networks, measured = calibrating_networks(), []
    for number, node in enumerate(NODES):
        progress(number, len(NODES), f"board {node}: {len(networks)} networks")
        meter = twin_meter(manifest.board, node, seed + 3)
        for position, network in enumerate(networks):
            choice = seed + 100 * node + position
            taken = measure_network(network, cost.grid, manifest.rails, meter, CONFIGURATIONS, choice)
            measured.append(with_frames(taken, cost.grid, meter, FRAMES))
    progress(len(NODES), len(NODES), "fitting")
    fitted = fit_bounds(cost, measured)
    assert fitted.tails is not None
    tails = fitted.tails
    entry = BoundsEntry(
        fitted.own_scale, tails.latency, tails.energy, tails.frames, NODES, tuple(network.name for network in networks)
    )
    told = replace(
        manifest,
        latency_shares=fitted.latency_shares,
        energy_shares=fitted.energy_shares,
        sigma_latency=fitted.sigma_latency,
        sigma_energy=fitted.sigma_energy,
        bounds=entry,
        command=manifest.command if directory == bundle.path else f"{manifest.command}; {_command(manifest.name)}",
    )
    copy_bundle(bundle, directory)
    write_manifest(directory, told, manifest.checksums)
    bounded = load_bundle(directory)
    # Its evaluation is of its present bounds.
    known = [reference_network(name) for name in reference_names()]
    again = {
        UNSEEN_BOARD: evaluated(evaluate_simulated(bounded, known, EVALUATION_NODES), EVALUATION_NODES),
        UNSEEN_FAMILY: evaluated(evaluate_simulated(bounded, left_out_networks(), EVALUATION_NODES), EVALUATION_NODES),
    }
    complete = write_manifest(directory, replace(told, evaluation={**manifest.evaluation, **again}), manifest.checksums)
    return replace(bounded, manifest=complete)
