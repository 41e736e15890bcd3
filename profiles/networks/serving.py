# SPDX-License-Identifier: Apache-2.0
"""Surfaces by a profile's predictor of whole networks, beside those that its kernels make.

A profile may have one (:mod:`.installing` adds it). It is asked for by :data:`~..bundle.methods.NETWORK`; all other methods are
the kernel-level ones. Prediction needs NumPy alone.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from ...kernels.cost.execution import NOTHING_BESIDE, Beside, check_execution
from ...kernels.errors import CostModelError
from ...kernels.network import Network
from ...kernels.surface import Surface
from ..board import BOARDS_DIR
from ..bundle.bundle import Bundle
from ..bundle.files import PREDICTOR, read_checked
from ..bundle.manifest import PredictorEntry
from ..bundle.methods import NETWORK
from ..errors import BundleError, RecordError
from .graph import graph_of
from .predictors.estimator import Estimator
from .predictors.loading import load
from .record import device_levels


def predictor_of(bundle: Bundle) -> tuple[Estimator, PredictorEntry]:
    """A profile's predictor of whole networks, and what its manifest says of it.

    Raises:
        BundleError: there is none, or it is damaged or of another release.
    """
    entry = bundle.manifest.predictor
    if entry is None:
        raise BundleError(
            f"profile {bundle.manifest.name} has no predictor of whole networks; 'jetdvfs profile predictor' gives it one"
        )
    data = read_checked(bundle.path / PREDICTOR, bundle.manifest.checksums[PREDICTOR])
    try:
        found = load(io.BytesIO(data), PREDICTOR)
    except RecordError as error:
        raise BundleError(f"profile {bundle.manifest.name}: {error}") from error
    if found.metrics != entry.metrics:
        raise BundleError(f"profile {bundle.manifest.name}: {PREDICTOR} predicts {found.metrics}, not {entry.metrics}")
    return found, entry


def network_surface(
    network: Network,
    bundle: Bundle,
    *,
    execution: str | None = None,
    beside: Beside = NOTHING_BESIDE,
    boards: Path = BOARDS_DIR,
) -> Surface:
    """Latency, power and energy of one inference at every configuration, by the profile's predictor of whole networks.

    Its deviations are those found on families of networks that it had not learnt from, the same everywhere.

    Args:
        execution, beside: as for :func:`jetdvfs.kernels.cost.model.surface`; it has learnt nothing but networks by themselves,
            executed call by call.
        boards: the folder of board descriptions.

    Raises:
        BundleError: as :func:`predictor_of`.
        ModelError: there is no graph of the network.
        CostModelError: it is asked for what it has not learnt, or predicts values that are not finite.
    """
    if check_execution(execution, network) != "eager" or beside != NOTHING_BESIDE:
        raise CostModelError(f"method {NETWORK}: learnt from networks executed call by call; valid: eager, with nothing beside")
    estimator, entry = predictor_of(bundle)
    cost, chip = bundle.cost, bundle.manifest.described(boards).chip
    found = estimator.sweep(graph_of(network), device_levels(chip, cost.grid), chip.dram_gib)
    figures = dict(zip(estimator.metrics, found, strict=True))
    latency_ms = figures["latency_ms"]
    energy_mj = figures.get("energy_mj", latency_ms / 1e3)  # next to nothing where power was not measured, as of kernels
    return Surface(
        grid=cost.grid,
        latency_ms=latency_ms,
        power_mw=energy_mj / latency_ms * 1e3,
        energy_mj=energy_mj,
        idle_mw=cost.idle_mw.astype(np.float64),
        latency_sigma=np.full(cost.grid.shape, entry.latency_sigma),
        energy_sigma=np.full(cost.grid.shape, entry.energy_sigma),
        method=NETWORK,
        boundary=network.boundary,
        leakage_mw=np.zeros(()) if cost.leakage_mw is None else cost.leakage_mw.astype(np.float64),
        heat=cost.heat,
    )
