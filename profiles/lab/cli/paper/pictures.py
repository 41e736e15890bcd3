# SPDX-License-Identifier: Apache-2.0
"""Pictures of a report, by table and figure of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .....daemon.cli.pictures import literal, new_figure
from ...paper.accuracy import LIMITS, PredictionErrors
from ...paper.overhead import BATCHES
from ...paper.published import NAMES, TABLE_4, TABLE_5, TABLE_6, TABLE_7, TABLE_8
from ...paper.study import Study
from ...paper.variability import BoardSpread
from .sections import model_name, where

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, THEIRS, THIRD = "#0072B2", "#BBBBBB", "#E69F00"
_PLACES = ("#FFFFFF", "#9ecae1", "#0072B2")
_SINGLE, _DOUBLE = 3.4, 6.2  # heights in inches
_WIDTH = 11.0
_DECILES = (10, 90)
_POINTS = 120


def draw(part: str, study: Study) -> Figure | None:
    return _DRAWN[part](study) if part in _DRAWN else None


def _kernels(target: str, paper: Mapping[str, PredictionErrors]) -> Callable[[Study], Figure]:
    def picture(study: Study) -> Figure:
        assert study.rotation is not None
        found = {kind: rows for kind in NAMES if (rows := study.rotation.kernels.get((kind, target))) is not None}
        figure = new_figure(_WIDTH, _SINGLE)
        bars, curves = figure.subplots(1, 2, width_ratios=(3, 2))
        ours = [rows.compared.accuracy(rows.weighed(kind)).within[1] for kind, rows in found.items()]
        _beside(bars, [NAMES[kind] for kind in found], ours, [paper[kind].within[1] for kind in found])
        for kind, rows in found.items():
            errors, weight = rows.compared.error_percent, rows.weighed(kind)
            order = np.argsort(errors)
            curves.plot(errors[order], 100 * np.cumsum(weight[order]) / weight.sum(), label=NAMES[kind], linewidth=1.2)
        _limits(curves)
        return figure

    return picture


def _networks(what: str, paper: Mapping[str, PredictionErrors]) -> Callable[[Study], Figure]:
    def picture(study: Study) -> Figure:
        assert study.rotation is not None
        found = {name: compared for name, rows in study.rotation.networks.items() if (compared := getattr(rows, what))}
        figure = new_figure(_WIDTH, _SINGLE)
        bars, curves = figure.subplots(1, 2, width_ratios=(3, 2))
        theirs = [paper[name].within[1] if name in paper else 0.0 for name in found]
        timeline, plain = ([found[name][method].accuracy().within[1] for name in found] for method in ("timeline", "sum"))
        _beside(bars, list(found), timeline, theirs, plain)
        for name, compared in found.items():
            errors = np.sort(compared["timeline"].error_percent)
            curves.plot(errors, 100 * np.arange(1, len(errors) + 1) / len(errors), label=literal(name), linewidth=1.2)
        _limits(curves)
        return figure

    return picture


def _beside(
    axes: Axes, names: Sequence[str], ours: Sequence[float], theirs: Sequence[float], third: Sequence[float] = ()
) -> None:
    at, width = np.arange(len(names)), 0.8 / (3 if third else 2)
    axes.bar(at - 0.4 + width / 2, ours, width, color=OURS, label="here")
    if third:
        axes.bar(at - 0.4 + 1.5 * width, third, width, color=THIRD, label="here, plain sum")
    axes.bar(at + 0.4 - width / 2, theirs, width, color=THEIRS, label="paper")
    axes.set_xticks(at, [literal(name) for name in names], rotation=30, ha="right", fontsize=8)
    axes.set_ylim(0, 100)
    axes.set_ylabel("predictions within 10% (%)")
    _plain(axes)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _limits(axes: Axes) -> None:
    axes.set_xlim(0, 40)
    axes.set_ylim(0, 100)
    for limit in LIMITS:
        axes.axvline(limit, color="#cccccc", linewidth=0.6, zorder=0)
    axes.set_xlabel("relative error below (%)")
    axes.set_ylabel("predictions (%)")
    _plain(axes)
    axes.legend(frameon=False, fontsize=7, loc="lower right")


def _table_8(study: Study) -> Figure:
    assert study.one_against_many is not None
    figure = new_figure(_WIDTH, _SINGLE)
    for axes, name in zip(figure.subplots(1, 2), ("runtime", "power"), strict=True):
        own = [row for row in study.one_against_many if row.figure == name]
        for at, row in enumerate(own):
            ranges = [(row.with_all.mae, OURS, 0.18)]
            if row.network in TABLE_8[name]:
                ranges.append((TABLE_8[name][row.network].mae, THEIRS, -0.18))
            for (low, high), shade, shift in ranges:
                axes.plot([low, high], [at + shift] * 2, color=shade, linewidth=5, solid_capstyle="butt")
            axes.plot([row.mean[3]], [at + 0.18], "|", color="black", markersize=8)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(own)), [literal(row.network) for row in own], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel(f"improvement of {name}'s mean absolute error (%)")
        _plain(axes)
    handles = [axes.plot([], [], color=shade, linewidth=5, label=label)[0] for shade, label in _HERE_AND_THERE]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return figure


_HERE_AND_THERE = ((OURS, "here: least to largest, and the mean"), (THEIRS, "paper: least to largest"))


def _figure_1(study: Study) -> Figure:
    assert study.over_grid is not None
    figure = new_figure(_WIDTH, _SINGLE + 0.6)
    axes = figure.subplots()
    for each in study.over_grid:
        some = slice(None, None, len(each.configuration) // _POINTS + 1)  # as the paper, not every configuration
        axes.plot(each.configuration[some], each.latency_ms[some], label=literal(each.network), linewidth=0.8)
    axes.set_yscale("log")
    axes.set_xlabel("configuration, in the order of CPU, GPU and memory clock")
    axes.set_ylabel("runtime (ms)")
    _plain(axes)
    axes.legend(frameon=False, fontsize=7, ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def _figure_2(study: Study) -> Figure:
    """As in the paper: median and most variable runtime; least and most variable power."""
    assert study.spreads is not None
    chosen: list[tuple[str, str]] = []
    for name, ranks in (("runtime", (0.5, 1.0)), ("power", (0.0, 1.0))):
        own = [each for each in study.spreads if each.figure == name]
        networks = list(dict.fromkeys(each.network for each in own))
        widest = {one: max(each.range_percent for each in own if each.network == one) for one in networks}
        ranked = sorted(networks, key=widest.__getitem__)
        chosen += dict.fromkeys((name, ranked[round(rank * (len(ranked) - 1))]) for rank in ranks if ranked)
    figure = new_figure(_WIDTH, _DOUBLE)
    panels = figure.subplots(2, 2, squeeze=False).ravel()
    for axes, (name, network) in zip(panels, chosen, strict=False):
        mine = [each for each in study.spreads if (each.figure, each.network) == (name, network)]
        nodes = list(mine[0].boards)
        for position, each in enumerate(mine):
            at = np.arange(len(nodes)) + 0.27 * (position - (len(mine) - 1) / 2)
            _boxes(axes, [each.boards[node] for node in nodes], at, 0.22, _shade(position, len(mine)))
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_xticks(range(len(nodes)), [str(node) for node in nodes], fontsize=8)
        axes.set_title(f"{literal(network)}, {name}: {_references(study, mine)}", fontsize=8)
        axes.set_xlabel("board")
        axes.set_ylabel("from the median of medians (%)", fontsize=8)
        _plain(axes)
    for axes in panels[len(chosen) :]:
        axes.set_axis_off()
    return figure


def _references(study: Study, mine: Sequence[BoardSpread]) -> str:
    unit, scale = ("ms", 1.0) if mine[0].figure == "runtime" else ("W", 1e3)
    return ", ".join(f"{where(study.grid, each.configuration)} {each.reference / scale:.3g} {unit}" for each in mine)


def _figure_3(study: Study) -> Figure:
    assert study.spreads is not None
    names = list(dict.fromkeys(each.figure for each in study.spreads))
    figure = new_figure(_WIDTH, _SINGLE)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False).ravel(), names, strict=True):
        own = [each for each in study.spreads if each.figure == name]
        networks = list(dict.fromkeys(each.network for each in own))
        places = list(dict.fromkeys(each.configuration for each in own))
        for position, place in enumerate(places):
            mine = [each for each in own if each.configuration == place]
            at = np.array([networks.index(each.network) for each in mine]) + 0.27 * (position - (len(places) - 1) / 2)
            pooled = [np.concatenate(list(each.within.values())) for each in mine]
            _boxes(axes, pooled, at, 0.22, _shade(position, len(places)))
        axes.set_xticks(range(len(networks)), [literal(one) for one in networks], rotation=30, ha="right", fontsize=8)
        axes.set_ylabel(f"{name}: from the board's own median (%)", fontsize=8)
        _plain(axes)
    return figure


def _figure_4(study: Study) -> Figure:
    assert study.observed is not None and study.rotation is not None
    rows = [each for each in study.observed if each.network in study.rotation.fixed]
    powered = any(each.selected_j for each in rows)
    figure = new_figure(_WIDTH, _DOUBLE if powered else _SINGLE)
    names = ("runtime", "energy")[: 2 if powered else 1]
    for axes, name in zip(figure.subplots(len(names), 1, squeeze=False).ravel(), names, strict=True):
        for position, shade in enumerate((OURS, THIRD, "#FFFFFF", "#555555")):
            values = []
            for each in rows:
                fixed = study.rotation.fixed[each.network]
                predicted = fixed.latency if name == "runtime" else fixed.energy
                sums = (each.selected, each.all_kernels) if name == "runtime" else (each.selected_j, each.all_j)
                compared = (predicted.get("timeline"), predicted.get("sum"), *sums)[position]
                values.append(100 * (compared.predicted / compared.observed - 1) if compared else np.zeros(0))
            _boxes(axes, values, np.arange(len(rows)) + 0.2 * (position - 1.5), 0.16, shade)
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_xticks(range(len(rows)), [literal(each.network) for each in rows], rotation=20, ha="right", fontsize=8)
        axes.set_ylabel(f"{name}: relative error (%)", fontsize=8)
        _plain(axes)
    labels = ("predicted (timeline)", "predicted (plain sum)", "eight kinds observed", "all kernels observed")
    _legend(figure, zip(labels, (OURS, THIRD, "#FFFFFF", "#555555"), strict=True))
    return figure


def _figure_5(study: Study) -> Figure:
    assert study.specialised is not None and study.rotation is not None
    figure = new_figure(_WIDTH, _DOUBLE)
    for axes, name in zip(figure.subplots(2, 1), ("runtime", "energy"), strict=True):
        networks = [one for one in study.specialised if one in study.rotation.networks and name in study.specialised[one]]
        for position, shade in enumerate((OURS, "#FFFFFF")):
            values = []
            for one in networks:
                rows = study.rotation.networks[one]
                generic = (rows.latency if name == "runtime" else rows.energy).get("timeline")
                compared = generic if position == 0 else study.specialised[one][name]
                values.append(compared.error_percent if compared else np.zeros(0))
            _boxes(axes, values, np.arange(len(networks)) + 0.3 * (position - 0.5), 0.26, shade)
        axes.set_xticks(range(len(networks)), [literal(one) for one in networks], rotation=20, ha="right", fontsize=8)
        axes.set_ylabel(f"{name}: relative error (%)", fontsize=8)
        axes.set_ylim(bottom=0)
        _plain(axes)
    _legend(figure, (("models of kernels", OURS), ("a model of each network", "#FFFFFF")))
    return figure


def _figure_6(study: Study) -> Figure:
    assert study.overheads is not None
    figure = new_figure(_WIDTH, _SINGLE)
    axes = figure.subplots()
    kinds = list(dict.fromkeys(each.kind for each in study.overheads))
    for position, (target, shade) in enumerate((("time", OURS), ("power", "#FFFFFF"))):
        own = [each for each in study.overheads if each.target == target]
        at = np.array([kinds.index(each.kind) for each in own]) + 0.3 * (position - 0.5)
        _boxes(axes, [each.relative for each in own], at, 0.26, shade)
    axes.set_yscale("log")
    axes.axhline(1, color="black", linewidth=0.6)
    axes.set_xticks(range(len(kinds)), [NAMES[kind] for kind in kinds], fontsize=8)
    axes.set_ylabel("time of one prediction / runtime")
    _plain(axes)
    _legend(figure, (("model of runtime", OURS), ("model of power", "#FFFFFF")))
    return figure


def _figure_7(study: Study) -> Figure:
    assert study.overheads is not None
    figure = new_figure(_WIDTH, _SINGLE)
    axes = figure.subplots()
    whole = study.grid.size
    slowest = sorted(study.overheads, key=lambda each: -float(np.median(each.relative)))[:4]
    for each in slowest:
        (line,) = axes.plot(BATCHES, each.batch_us, "o-", label=model_name(each), markersize=3)
        axes.plot([BATCHES[-1], whole], [each.batch_us[-1], each.sweep_us], ":", color=line.get_color())
        axes.plot([whole], [each.sweep_us], "s", color=line.get_color(), markersize=5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("predictions made at once (squares: a kernel over the whole grid)")
    axes.set_ylabel("us per prediction")
    _plain(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure


_FIGURES = (_figure_1, _figure_2, _figure_3, _figure_4, _figure_5, _figure_6, _figure_7)
_DRAWN: Mapping[str, Callable[[Study], Figure]] = {
    "table-4": _kernels("time", TABLE_4),
    "table-5": _kernels("power", TABLE_5),
    "table-6": _networks("latency", TABLE_6),
    "table-7": _networks("energy", TABLE_7),
    "table-8": _table_8,
    **{f"figure-{number}": draw for number, draw in enumerate(_FIGURES, 1)},
}


def _boxes(axes: Axes, values: Sequence[NDArray[np.float64]], at: NDArray[Any], width: float, shade: str) -> None:
    axes.boxplot(
        list(values),
        positions=at.tolist(),
        widths=width,
        whis=_DECILES,
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": shade, "linewidth": 0.6},
        medianprops={"color": "black" if shade != "#555555" else "white", "linewidth": 1.0},
        whiskerprops={"linewidth": 0.6},
        capprops={"linewidth": 0.6},
    )


def _shade(position: int, count: int) -> str:
    return _PLACES[position if count == len(_PLACES) else -1]


def _legend(figure: Figure, entries: Iterable[tuple[str, str]]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=shade, edgecolor="black", linewidth=0.6, label=label) for label, shade in entries]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, fontsize=8)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
