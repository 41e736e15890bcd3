# SPDX-License-Identifier: Apache-2.0
"""The paper's tables: prediction errors, and gains by training on several boards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from math import isfinite

import numpy as np

from ...paper.accuracy import LIMITS, PredictionErrors, mean_of
from ...paper.published import MEANS, NAMES, TABLE_2, TABLE_4, TABLE_5, TABLE_6, TABLE_7, TABLE_8
from ...paper.rotation import Rotation
from ...paper.study import Study
from ...train.tuned_recipes import TunedRecipes
from .sections import MEAN, PAPER, Section, boards_named


def _table_2(study: Study) -> Section:
    assert study.trained is not None
    kinds = [kind for kind in NAMES if kind in study.trained]
    recipes = {
        f"{kind} {target}": model.recipe
        for kind in kinds
        for target in ("time", "power")
        if (model := study.trained[kind].of(target)) is not None
    }
    fields = {"n_estimators": "rounds"}
    rows = []
    for name, (low, high) in TABLE_2.items():
        used = sorted({float(getattr(recipe, fields.get(name, name), 0.0)) for recipe in recipes.values()})
        rows.append((name, f"{low:g} to {high:g}", f"{used[0]:g}" if len(used) == 1 else f"{used[0]:g} to {used[-1]:g}"))
    return Section(
        "table-2",
        "Hyperparameters",
        (
            "The paper's ranges for Bayesian optimisation with Hyperband, and the hyperparameters of this report's models "
            f"were trained with ({len(recipes)} models of the eight kinds).",
            _searched(study.tuned, kinds),
        ),
        ("parameter", "paper's range", "here"),
        tuple(rows),
    )


def _searched(tuned: TunedRecipes | None, kinds: Collection[str]) -> str:
    if tuned is None:
        return "The number of trees was chosen by boards and kernels left out, the rest was set."
    found = [model for kind, targets in tuned.models.items() if kind in kinds for model in targets.values()]
    tried, given_up = sum(model.trials for model in found), sum(model.pruned for model in found)
    return (
        f"Those of {len(found)} models were searched on {tuned.record} by TPE and Hyperband: {tried:,} recipes, "
        f"{given_up:,} of them given up early, and of each model the smallest whose error is within {tuned.loss:.0%} of the "
        "best. The number of trees was chosen again, by boards and kernels left out; the rest was set."
    )


def _kernels(part: str, target: str, unit: str, paper: Mapping[str, PredictionErrors]) -> Callable[[Study], Section]:
    def make(study: Study) -> Section:
        rotation = study.rotation
        assert rotation is not None
        ours: dict[str, PredictionErrors] = {}
        plain: list[float] = []
        rows, alike, nearest = [], [], []
        for kind, theirs in paper.items():
            if (found := rotation.kernels.get((kind, target))) is None:
                continue
            ours[kind] = found.compared.accuracy(found.weighed(kind))
            apart = [
                f"{found.compared.where(mask).accuracy().within[1]:.1f}" if mask.any() else "-"
                for mask in (found.own, ~found.own, np.ones(len(found.own), np.bool_))
            ]
            alike.append(float(apart[-1]))
            if (near := study.others.get((kind, target))) is not None:
                nearest.append(near.accuracy().within[1])
            apart.append("-" if near is None else f"{nearest[-1]:.1f}")
            plain.append(found.plain.accuracy(found.weighed(kind)).within[1])
            counts = f"{rotation.samples[kind, target]:,.0f}" if (kind, target) in rotation.samples else "-"
            rows.append(
                (NAMES[kind], *_beside(ours[kind], theirs), f"{plain[-1]:.1f}", *apart, counts, f"{ours[kind].count:,}")
            )
        means = mean_of([ours[kind] for kind in ours])
        together = f"{np.mean(alike):.1f}"
        others = f"{np.mean(nearest):.1f}" if nearest else "-"
        rows.append(
            (MEAN, *_beside(means, MEANS[part]), f"{np.mean(plain):.1f}", "", "", together, others, "", f"{means.count:,}")
        )
        what = "runtime" if target == "time" else "power"
        notes = [
            _of_what(rotation, what),
            "'Paper's recipe 10%' is of models of raw shapes and clocks with logarithms as labels, trained on the same rows.",
            "As the paper drew them, convolutions count half as networks' own kernels and half as random ones, all other "
            "kernels as random ones alone (where the record has any). The shares within 10% of each, and of all alike, follow.",
        ]
        if rotation.left_out:
            notes += [
                "Random kernels were measured on one board each, so that models know neither the board nor the kernel.",
                "'Others' mean' is how many of networks' kernels lie within 10% of the mean that other boards measured of "
                "the same, at the configurations in common; the rest is that boards differ, which no model of others knows.",
            ]
        if target == "power":
            notes.append("Power is idle power at the configuration plus the kernel's own.")
        return Section(
            part,
            f"Accuracy of kernel-level {what} predictions",
            tuple(notes),
            (
                "kernel",
                *_limits(unit),
                "paper's recipe 10%",
                "own 10%",
                "random 10%",
                "all 10%",
                "others' mean 10%",
                "trained on",
                "judged",
            ),
            tuple(rows),
        )  # fmt: skip

    return make


def _of_what(rotation: Rotation, what: str) -> str:
    within = "per cent of them within 5, 10, 15 and 20%."
    if rotation.left_out:
        boards = boards_named(rotation.left_out)
        return f"Predictions of {what} by models of all boards but one, of kernels on that one, for {boards} in turn; {within}"
    return (
        f"Predictions of {what} on the one board that was measured, of kernels left out with their networks in "
        f"{rotation.parts} parts, by models of the rest; {within} How boards differ is not in it, as it is in the paper's."
    )


def _networks(part: str, what: str, unit: str, paper: Mapping[str, PredictionErrors]) -> Callable[[Study], Section]:
    def make(study: Study) -> Section:
        assert study.rotation is not None
        rows, ours, sums = [], [], []
        for network, found in study.rotation.networks.items():
            compared = getattr(found, what)
            if not compared:
                continue
            timeline, plain = compared["timeline"].accuracy(), compared["sum"].accuracy()
            ours.append(timeline)
            sums.append(plain)
            known = paper.get(network)
            rows.append((network, *_beside(timeline, known), *_error(timeline, None), f"{plain.mean_percent:.1f}"))
        means = mean_of(ours)
        plain = mean_of(sums)
        rows.append((MEAN, *_beside(means, MEANS[part]), *_error(means, MEANS[part]), f"{plain.mean_percent:.1f}"))
        figure = "runtime" if what == "latency" else "energy"
        return Section(
            part,
            f"Accuracy of network-level {figure} predictions",
            (
                f"{_where(study.rotation)}, at the random configurations "
                f"of the record ({means.count // max(len(ours), 1):,} of each network); predicted from models of kernels.",
                "Here host and GPU are a timeline; the paper adds up kernels, which is what the column 'plain sum' has of the "
                "same models (mean error, per cent).",
            ),
            ("network", *_limits(unit), "mean error %", PAPER, "plain sum"),
            tuple(rows),
        )

    return make


def _where(rotation: Rotation) -> str:
    if rotation.left_out:
        return f"Networks on boards left out ({boards_named(rotation.left_out)} in turn)"
    return f"Networks left out in {rotation.parts} parts, on the one board that was measured"


def _table_8(study: Study) -> Section:
    assert study.one_against_many is not None
    rows = []
    for figure in dict.fromkeys(row.figure for row in study.one_against_many):
        own = [row for row in study.one_against_many if row.figure == figure]
        for row in own:
            theirs = TABLE_8[figure].get(row.network)
            cells = [
                cell for at, ours in enumerate(row.with_all) for cell in (_range(*ours), _range(*theirs[at]) if theirs else "-")
            ]
            rows.append((f"{row.network} {figure}", *cells, f"{row.mean[1]:+.0f}", f"{row.mean_as_many[1]:+.0f}"))
        lows, highs = (np.mean([[end[at] for end in row.with_all] for row in own], axis=0) for at in (0, 1))
        means = [f"{np.mean([getattr(row, name)[1] for row in own]):+.0f}" for name in ("mean", "mean_as_many")]
        theirs = TABLE_8[figure]["mean"]
        cells = [
            cell
            for at, (low, high) in enumerate(zip(lows, highs, strict=True))
            for cell in (_range(low, high), _range(*theirs[at]))
        ]
        rows.append((f"{MEAN} {figure}", *cells, *means))
    return Section(
        "table-8",
        "Improvement by training on several boards",
        (
            "A model of one network each, of one board against of all others, both tested on two boards that neither knows: "
            "the least and the largest relative improvement, per cent, over all boards trained on.",
            "With all that the others have, there are more measurements as well. The last column is the mean improvement "
            "within 10% by as many measurements as one board has, drawn from all others: what other boards alone are worth.",
            "Of VGG, nothing is known of the paper's row.",
        ),
        (
            "network", "5%", PAPER, "10%", PAPER, "RMSE", PAPER, "MAE", PAPER, "mean at 10%", "same number at 10%",
        ),
        tuple(rows),
    )  # fmt: skip


def _limits(unit: str) -> Iterator[str]:
    for header in (*(f"{limit:.0f}%" for limit in LIMITS), f"RMSE {unit}", f"MAE {unit}"):
        yield from (header, PAPER)


def _beside(ours: PredictionErrors, theirs: PredictionErrors | None) -> Iterator[str]:
    own = [f"{share:.1f}" for share in ours.within] + [f"{ours.rmse:.3f}", f"{ours.mae:.3f}"]
    paper = ["-"] * len(own)
    if theirs is not None:
        paper = [f"{share:.1f}" for share in theirs.within] + [f"{theirs.rmse:g}", f"{theirs.mae:g}"]
    for pair in zip(own, paper, strict=True):
        yield from pair


def _error(ours: PredictionErrors, theirs: PredictionErrors | None) -> tuple[str, str]:
    paper = f"{theirs.mean_percent:g}" if theirs is not None and isfinite(theirs.mean_percent) else "-"
    return f"{ours.mean_percent:.1f}", paper


def _range(low: float, high: float) -> str:
    return f"{low:.0f} to {high:.0f}"


TABLES: Mapping[str, Callable[[Study], Section]] = {
    "table-2": _table_2,
    "table-4": _kernels("table-4", "time", "ms", TABLE_4),
    "table-5": _kernels("table-5", "power", "W", TABLE_5),
    "table-6": _networks("table-6", "latency", "ms", TABLE_6),
    "table-7": _networks("table-7", "energy", "J", TABLE_7),
    "table-8": _table_8,
}
