# SPDX-License-Identifier: Apache-2.0
"""Tables for the paper's figures: board variation, sums of kernels, cost of predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ...paper.accuracy import PredictionComparison
from ...paper.overhead import BATCHES
from ...paper.published import FIGURE_5
from ...paper.study import Study
from ...paper.variability import NONE_TESTED, SIGNIFICANCE, BoardSpread, DistributionTests
from .sections import MEAN, PAPER, Section, model_name, where


def _figure_1(study: Study) -> Section:
    assert study.over_grid is not None
    rows = [
        (each.network, f"{len(each.configuration):,}", f"{each.latency_ms.min():.2f}", f"{each.latency_ms.max():.1f}",
         f"{each.times:.1f}")
        for each in study.over_grid
    ]  # fmt: skip
    return Section(
        "figure-1",
        "Effect of the configuration on the runtime",
        (
            "Measured latency in the order of CPU, GPU and memory clock, the median over boards where several measured it.",
            "The paper: the configuration changes the runtime by over 10 times, and not smoothly.",
        ),
        ("network", "configurations", "fastest ms", "slowest ms", "times"),
        tuple(rows),
    )


def _figure_2(study: Study) -> Section:
    places, rows = _spread_rows(study, lambda each: each.range_percent, lambda each: each.over_boards)
    paper = [_PAPER_RANGES.get(row[0], "" if row[0].startswith("all ") else "-") for row in rows]
    return Section(
        "figure-2",
        "How boards differ",
        (
            "From the lowest to the highest of the boards' medians, per cent of the median of medians, at the configurations "
            "that all boards have in common.",
            "Tests: of how many k-sample Anderson-Darling tests (one for each configuration) and of how many two-sample "
            f"Kolmogorov-Smirnov tests (every pair of boards) found different distributions (p below {SIGNIFICANCE:g}). The "
            "paper: for a majority of configurations boards are statistically different.",
            "One observation is a measurement as everywhere in the record, the median of many timings; the paper's are single "
            "runs. In the picture: low white, middle light, high dark.",
        ),
        ("network", *places, PAPER, *_TESTS),
        tuple((*row[:-2], theirs, *row[-2:]) for row, theirs in zip(rows, paper, strict=True)),
    )


_TESTS = ("Anderson-Darling", "Kolmogorov-Smirnov")
_PAPER_RANGES = {
    "vgg16 power": "about 20",
    "shufflenet_v2_x1_0 power": "over 30",
    "shufflenet_v2_x1_0 runtime": "up to 25 (decile)",
}


def _figure_3(study: Study) -> Section:
    places, rows = _spread_rows(study, lambda each: each.within_percent, lambda each: each.within_boards)
    return Section(
        "figure-3",
        "How one board differs from itself",
        (
            "From the lower to the upper decile of each board's observations about its own median, per cent, all boards "
            "together.",
            "Tests: each board's first half of observations against its second.",
            "The paper: much less than boards differ from each other. In the picture: low white, middle light, high dark.",
        ),
        ("network", *places, *_TESTS),
        tuple(rows),
    )


def _spread_rows(
    study: Study, percent: Callable[[BoardSpread], float], tested: Callable[[BoardSpread], DistributionTests]
) -> tuple[list[str], list[tuple[str, ...]]]:
    assert study.spreads is not None
    places = [f"{place} %" for place in dict.fromkeys(where(study.grid, each.configuration) for each in study.spreads)]
    rows: list[tuple[str, ...]] = []
    for figure in dict.fromkeys(each.figure for each in study.spreads):
        own = [each for each in study.spreads if each.figure == figure]
        for network in dict.fromkeys(each.network for each in own):
            mine = [each for each in own if each.network == network]
            rows.append((f"{network} {figure}", *(f"{percent(each):.1f}" for each in mine), *_found(map(tested, mine))))
        rows.append((f"all {figure}", *("" for _ in places), *_found(map(tested, own))))
    return places, rows


def _found(differences: Iterable[DistributionTests]) -> tuple[str, str]:
    together = NONE_TESTED
    for each in differences:
        together = together.plus(each)
    anderson_darling, kolmogorov_smirnov = (
        f"{found} of {count}" if count else "-" for count, found in (together.anderson_darling, together.kolmogorov_smirnov)
    )
    return anderson_darling, kolmogorov_smirnov


def _figure_4(study: Study) -> Section:
    assert study.observed is not None and study.rotation is not None
    rows = []
    for each in study.observed:
        fixed = study.rotation.fixed.get(each.network)
        if fixed is None:
            continue
        columns = [fixed.latency["timeline"], fixed.latency["sum"], each.selected, each.all_kernels]
        if fixed.energy and each.selected_j and each.all_j:
            columns += [fixed.energy["timeline"], fixed.energy["sum"], each.selected_j, each.all_j]
        errors = [f"{_signed(compared):+.1f}" for compared in columns]
        rows.append((each.network, *errors, *("-" for _ in range(8 - len(errors))), f"{each.unmeasured:.0%}"))
    return Section(
        "figure-4",
        "Predictions and sums of observed kernels",
        (
            "Median relative error of predictions of a network on a held-out board, and of the sum of its kernels as "
            "they were observed there, of the eight kinds and of all, at the configurations that boards have in common.",
            "Kernels of which nothing was measured are counted as launches not measured.",
        ),
        (
            "network", "runtime: timeline %", "plain sum %", "eight kinds observed %", "all observed %",
            "energy: timeline %", "plain sum %", "eight kinds observed %", "all observed %", "not measured",
        ),
        tuple(rows),
    )  # fmt: skip


def _figure_5(study: Study) -> Section:
    assert study.specialised is not None and study.rotation is not None
    rows = []
    means: dict[str, list[tuple[float, float]]] = {}
    for network, figures in study.specialised.items():
        found = study.rotation.networks.get(network)
        if found is None:
            continue
        cells: list[str] = []
        for figure, compared in (("runtime", found.latency), ("energy", found.energy)):
            if figure not in figures or not compared:
                cells += ["-", "-"]
                continue
            pair = (compared["timeline"].accuracy().mean_percent, figures[figure].accuracy().mean_percent)
            means.setdefault(figure, []).append(pair)
            cells += [f"{number:.1f}" for number in pair]
        rows.append((network, *cells))
    cells = []
    for figure in ("runtime", "energy"):
        cells += [f"{number:.1f}" for number in np.mean(means[figure], axis=0)] if figure in means else ["-", "-"]
    rows.append((MEAN, *cells))
    rows.append((PAPER, *(f"{number:.2f}" for figure in ("runtime", "energy") for number in FIGURE_5[figure])))
    return Section(
        "figure-5",
        "The cost of generality",
        (
            "Mean error, per cent, of predictions from models of kernels, and of models that know one network each and nothing "
            "but the clocks; both on boards left out.",
            "Models of one network are of the record's own configurations of that network on all other boards.",
        ),
        ("network", "runtime: kernels", "one network", "energy: kernels", "one network"),
        tuple(rows),
    )


def _figure_6(study: Study) -> Section:
    assert study.overheads is not None
    rows = [
        (model_name(each),
         *(f"{number:.3g}" for number in np.quantile(each.relative, (0.1, 0.5, 0.9))), f"{each.batch_us[0]:.1f}")
        for each in study.overheads
    ]  # fmt: skip
    return Section(
        "figure-6",
        "Relative overhead of a prediction",
        (
            "Time of one prediction by itself over the runtime that is predicted, of random kernels at random configurations: "
            "lower decile, median, upper decile. Timed on the machine that made this report, by the code that the daemon runs; "
            "the paper timed on the Jetson's own processor.",
        ),
        ("model", "10%", "median", "90%", "us each"),
        tuple(rows),
    )


def _figure_7(study: Study) -> Section:
    assert study.overheads is not None
    rows = [
        (model_name(each), *(f"{us:.2f}" for us in each.batch_us),
         f"{each.sweep_us:.4f}")
        for each in study.overheads
    ]  # fmt: skip
    return Section(
        "figure-7",
        "Predictions made together",
        (
            "Microseconds per prediction in batches of this size; last, for a kernel predicted at all "
            f"{study.grid.size:,} configurations of the grid at once, as plans are made.",
            "The paper: more than ten times less at 20 at once, up to a hundred times at 100.",
        ),
        ("model", *map(str, BATCHES), "whole grid"),
        tuple(rows),
    )


def _signed(compared: PredictionComparison) -> float:
    return float(np.median(100.0 * (compared.predicted / compared.observed - 1.0)))


_FIGURES = (_figure_1, _figure_2, _figure_3, _figure_4, _figure_5, _figure_6, _figure_7)
FIGURES: Mapping[str, Callable[[Study], Section]] = {f"figure-{number}": made for number, made in enumerate(_FIGURES, 1)}
