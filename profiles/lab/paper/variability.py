# SPDX-License-Identifier: Apache-2.0
"""Differences between boards and within one (MIRAGE, SEC '21, sections 2.1 and 3.1, Figures 1 to 3)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ...adapt.measurements import MeasurementRows, Measurements
from ...errors import MeasurementError
from .accuracy import PredictionComparison
from .published import NAMES
from .rotation import DTYPE, total_mw

_TABLES = {"time": "fixed_kernel_ms", "power": "fixed_kernel_mw"}


def means_of_others(record: Measurements, left_out: Sequence[int]) -> Mapping[tuple[str, str], PredictionComparison]:
    """Networks' kernels at the shared configurations, by kind and target ("time" in ms, "power" in W)."""
    board, found = record.described, dict[tuple[str, str], list[PredictionComparison]]()
    for target, table in _TABLES.items():
        for kind in NAMES:
            of_kind = [what for what, call in enumerate(record.invocations) if call.kind == kind and call.dtype == DTYPE]
            rows = record.tables[table].where(np.isin(record.tables[table].what, of_kind))
            for node in left_out:
                mine, others = rows.where(rows.node == node), rows.where(rows.node != node)
                known, place = np.unique(_asked(others, board.grid.size), return_inverse=True)
                mine = mine.where(np.isin(_asked(mine, board.grid.size), known))
                if not len(mine):
                    continue
                means = np.bincount(place, np.maximum(others.value, 0.0)) / np.bincount(place)
                mean = means[np.searchsorted(known, _asked(mine, board.grid.size))]
                value = np.maximum(mine.value, 0.0)
                if target == "power":
                    mean = (mean + total_mw(record, set(record.nodes) - {node}, board)[mine.configuration]) / 1e3
                    value = (value + total_mw(record, {node}, board)[mine.configuration]) / 1e3
                found.setdefault((kind, target), []).append(PredictionComparison(mean, value, mine.node))
    return {key: PredictionComparison.joined(parts) for key, parts in found.items()}


def _asked(rows: MeasurementRows, configurations: int) -> NDArray[np.int64]:
    return rows.what * configurations + rows.configuration


SIGNIFICANCE = 0.01
"""Significance level of the tests."""
TABLES = {"runtime": "fixed_network_ms", "power": "fixed_network_mw"}

Samples = Sequence[NDArray[np.float64]]
_LEAST = 4  # observations of one board that a test is made of


class DistributionTests(Struct, frozen=True):
    """Counts of tests, and of differences: k-sample Anderson-Darling (Scholz and Stephens 1987), two-sample
    Kolmogorov-Smirnov.
    """

    anderson_darling: tuple[int, int]
    kolmogorov_smirnov: tuple[int, int]

    def plus(self, other: DistributionTests) -> DistributionTests:
        pairs = zip(
            (self.anderson_darling, self.kolmogorov_smirnov), (other.anderson_darling, other.kolmogorov_smirnov), strict=True
        )
        return DistributionTests(*((a + c, b + d) for (a, b), (c, d) in pairs))


NONE_TESTED = DistributionTests((0, 0), (0, 0))


class BoardSpread(Struct, frozen=True):
    """One network at one configuration on every board.

    Attributes:
        figure: "runtime" in ms or "power" in mW.
        reference: median of the boards' medians.
        boards: relative differences from it in percent, by board.
        within: relative differences from the board's own median in percent, by board.
        over_boards, within_boards: tests over all boards; and of each board's first half against its second.
    """

    network: str
    figure: str
    configuration: int
    reference: float
    boards: dict[int, NDArray[np.float64]]
    within: dict[int, NDArray[np.float64]]
    over_boards: DistributionTests
    within_boards: DistributionTests

    @property
    def range_percent(self) -> float:
        medians = [float(np.median(each)) for each in self.boards.values()]
        return max(medians) - min(medians)

    @property
    def within_percent(self) -> float:
        """Decile range of observations of one board, over all boards."""
        low, high = np.quantile(np.concatenate(list(self.within.values())), (0.1, 0.9))
        return float(high - low)


def spreads(record: Measurements) -> list[BoardSpread]:
    """Every network at every shared configuration. Raises MeasurementError without any."""
    found = []
    for figure, table in TABLES.items():
        rows = record.tables[table]
        for what, network in enumerate(record.networks):
            own = rows.where(rows.what == what)
            for configuration in np.unique(own.configuration):
                here = own.where(own.configuration == configuration)
                samples = {int(node): here.value[here.node == node] for node in np.unique(here.node)}
                found.append(_spread(network.name, figure, int(configuration), samples))
    if not found:
        raise MeasurementError(
            "the record has no networks observed again and again at the same configurations, as 'jetdvfs-lab collect' makes "
            "of several boards"
        )
    return found


def _spread(network: str, figure: str, configuration: int, samples: dict[int, NDArray[np.float64]]) -> BoardSpread:
    middle = {node: float(np.median(each)) for node, each in samples.items()}
    reference = float(np.median(list(middle.values())))
    enough = [each for each in samples.values() if len(each) >= _LEAST]
    halves = [np.array_split(each, 2) for each in enough if len(each) >= 2 * _LEAST]
    within = NONE_TESTED
    for pair in halves:
        within = within.plus(differing(pair))
    return BoardSpread(
        network,
        figure,
        configuration,
        reference,
        {node: 100.0 * (each / reference - 1.0) for node, each in samples.items()},
        {node: 100.0 * (each / middle[node] - 1.0) for node, each in samples.items()},
        differing(enough) if len(enough) > 1 else NONE_TESTED,
        within,
    )


def differing(samples: Samples) -> DistributionTests:
    pairs = [kolmogorov_smirnov(first, second) < SIGNIFICANCE for first, second in combinations(samples, 2)]
    return DistributionTests((1, int(anderson_darling(samples) < SIGNIFICANCE)), (len(pairs), sum(pairs)))


def anderson_darling(samples: Samples) -> float:
    """p-value from 0.001 to 0.25, the range of its tables; 1 if all observations are equal."""
    from scipy import stats

    if len(np.unique(np.concatenate(list(samples)))) < 2:
        return 1.0
    test: Callable[[Samples], object] = stats.anderson_ksamp
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the probability is off the tables; and that its arguments will change
        found = test(list(samples))
    return float(getattr(found, "pvalue", getattr(found, "significance_level", 1.0)))


def kolmogorov_smirnov(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    from scipy import stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that ties, or many observations, leave it at the asymptotic probability
        return float(stats.ks_2samp(first, second).pvalue)


class LatencyGrid(Struct, frozen=True):
    """A network's median latency over its measured configurations, flat grid indices (n,)."""

    network: str
    configuration: NDArray[np.int64]
    latency_ms: NDArray[np.float64]

    @property
    def times(self) -> float:
        return float(self.latency_ms.max() / self.latency_ms.min())


def over_grid(record: Measurements) -> list[LatencyGrid]:
    """Every network measured as a whole. Raises MeasurementError without any."""
    found = []
    for what, network in enumerate(record.networks):
        rows = record.tables["network_ms"]
        rows = rows.where(rows.what == what)
        if len(rows):
            at = np.unique(rows.configuration)
            found.append(LatencyGrid(network.name, at, _medians(rows, at)))
    if not found:
        raise MeasurementError("the record has no networks that were measured as a whole")
    return found


def _medians(rows: MeasurementRows, at: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.array([np.median(rows.value[rows.configuration == each]) for each in at])
