# SPDX-License-Identifier: Apache-2.0
"""Sums of observed kernels compared with their network (MIRAGE, SEC '21, section 6.2, Figure 4)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ....kernels.network import Network
from ...adapt.measurements import MeasurementRows, Measurements
from ...errors import MeasurementError
from .accuracy import PredictionComparison
from .published import NAMES
from .rotation import middle, total_mw


class NetworkOnBoards(Struct, frozen=True):
    """One network on every board at the shared configurations.

    Attributes:
        selected, all_kernels: kernel times, of the eight kinds and of all, and its own, in ms.
        selected_j, all_j: likewise energy in J; None without measured power.
        unmeasured: share of its launches without measured kernels.
    """

    network: str
    selected: PredictionComparison
    all_kernels: PredictionComparison
    selected_j: PredictionComparison | None
    all_j: PredictionComparison | None
    unmeasured: float


def observed(record: Measurements) -> list[NetworkOnBoards]:
    """Networks with kernels at the shared configurations. Raises MeasurementError without any."""
    number = {kernel.signature: what for what, kernel in reversed(list(enumerate(record.invocations)))}
    times, powers = (middle(record.tables[f"fixed_kernel_{unit}"]) for unit in ("ms", "mw"))
    ms = _by_place(times)
    mw = _by_place(_whole(record, times, powers)) if len(powers) else {}
    found = []
    for what, network in enumerate(record.networks):
        whole = middle(_of(record.tables["fixed_network_ms"], what))
        drawn = middle(_of(record.tables["fixed_network_mw"], what))
        if not len(whole) or not network.launches or not ms:
            continue
        powered = bool(mw) and np.array_equal(whole.configuration, drawn.configuration)
        mj = {place: time * mw[place] / 1e6 for place, time in ms.items()} if powered else {}
        energy_j = whole.value * drawn.value / 1e6 if powered else whole.value
        selected, rest = tuple(NAMES), None

        def compared(of: dict[Any, float], truth: NDArray[np.float64], kinds: tuple[str, ...] | None) -> PredictionComparison:
            return PredictionComparison(_sums(network, whole, number, of, kinds), truth, whole.node)  # noqa: B023 - called at once

        found.append(
            NetworkOnBoards(
                network.name,
                compared(ms, whole.value, selected),
                compared(ms, whole.value, rest),
                compared(mj, energy_j, selected) if powered else None,
                compared(mj, energy_j, rest) if powered else None,
                float(np.mean([launch.signature not in number for launch in network.launches])),
            )
        )
    if not found:
        raise MeasurementError(
            "the record has no kernels observed at the same configurations as the networks, as 'jetdvfs-lab collect' makes of "
            "several boards"
        )
    return found


def _sums(
    network: Network, whole: MeasurementRows, number: dict[Any, int], of: dict[Any, float], kinds: tuple[str, ...] | None
) -> NDArray[np.float64]:
    counts = Counter(
        number[launch.signature]
        for launch in network.launches
        if launch.signature in number and (kinds is None or launch.kind in kinds)
    )
    places = zip(whole.node.tolist(), whole.configuration.tolist(), strict=True)
    return np.array(
        [sum(count * of.get((what, node, at), 0.0) for what, count in counts.items()) for node, at in places], np.float64
    )


def _whole(record: Measurements, times: MeasurementRows, above: MeasurementRows) -> MeasurementRows:
    """Power while kernels run, in mW. A kernel too short to show power takes the median of its kind."""
    board, kinds = record.described, [kernel.kind for kernel in record.invocations]
    own = _by_place(above)
    of_kind: dict[Any, list[float]] = {}
    for (what, node, at), value in own.items():
        of_kind.setdefault((kinds[what], node, at), []).append(value)
    typical = {key: float(np.median(values)) for key, values in of_kind.items()}
    idle = {int(node): total_mw(record, {int(node)}, board) for node in np.unique(times.node)}
    values = [
        idle[node][at] + own.get((what, node, at), typical.get((kinds[what], node, at), 0.0))
        for what, node, at in zip(times.what.tolist(), times.node.tolist(), times.configuration.tolist(), strict=True)
    ]
    return MeasurementRows(times.what, times.node, times.configuration, np.array(values))


def _by_place(rows: MeasurementRows) -> dict[Any, float]:
    places = zip(rows.what.tolist(), rows.node.tolist(), rows.configuration.tolist(), strict=True)
    return dict(zip(places, rows.value.tolist(), strict=True))


def _of(rows: MeasurementRows, what: int) -> MeasurementRows:
    return rows.where(rows.what == what)
