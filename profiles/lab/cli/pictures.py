# SPDX-License-Identifier: Apache-2.0
"""Pictures of studies and replays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....daemon.cli.pictures import OTHERS, colour, colours_of, heading, ink_on, legend_kinds, literal, new_figure, save
from ..paper.characterization import NetworkRun

if TYPE_CHECKING:
    from ..compare.loop import LoopResult

_LEAST_LABEL = 0.045


def draw_study(runs: Sequence[NetworkRun], path: str | os.PathLike[str], *, title: str, simulated: bool) -> None:
    """Draw one stacked bar per network, in parts of its inference time. Raises InputError."""
    figure = new_figure(14, 2.6 + 0.46 * len(runs))
    figure.suptitle(heading(title, simulated), fontsize=14, fontweight="bold")
    axes = figure.subplots()
    kinds = list(dict.fromkeys(kind for run in runs for kind in run.kernel_ms))
    weights = {kind: sum(run.share(kind) for run in runs) for kind in kinds}
    kinds.sort(key=lambda kind: -weights[kind])
    colours = colours_of(weights)
    for row, run in enumerate(runs):
        left = 0.0
        for kind in kinds:
            share, shade = run.share(kind), colour(kind, colours)
            axes.barh(row, share, left=left, color=shade, edgecolor="white", linewidth=0.5)
            if share >= _LEAST_LABEL:
                axes.text(left + share / 2, row, f"{share:.0%}", ha="center", va="center", fontsize=9, color=ink_on(shade))
            left += share
        if left < 1:
            axes.barh(row, 1 - left, left=left, color="none", edgecolor="#999999", hatch="///", linewidth=0.0)
    widest = max(1.0, *(run.all_ms / run.time_ms for run in runs))
    labels = axes.secondary_yaxis("right")
    labels.set_yticks(range(len(runs)), [f"{run.time_ms:.3g} ms" for run in runs])
    labels.tick_params(length=0)
    axes.axvline(1, color="black", linewidth=1.2)
    axes.set_yticks(range(len(runs)), [literal(run.label) for run in runs])
    axes.invert_yaxis()
    axes.set_xlim(0, widest * 1.005)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("share of the inference time (right: its length); each kernel timed by itself")
    named = [(kind if kind != OTHERS else "other kinds", shade) for kind, shade in legend_kinds(kinds, colours)]
    handles = [axes.barh([0], [0], color=shade, label=literal(kind)) for kind, shade in named]
    handles.append(axes.barh([0], [0], color="none", edgecolor="#999999", hatch="///", label="no kernel runs"))
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False)
    save(figure, path)


_PANELS = (
    ("regret", "energy above the best of the table"),
    ("latency_error", "error of time, within the deadline"),
    ("power_error", "error of power, within the deadline"),
)


def draw_replays(runs: Sequence[LoopResult], path: str | os.PathLike[str], *, simulated: bool) -> None:
    """Draw median and 90th percentile of each table's programs and targets. Raises InputError."""
    figure = new_figure(15, 5)
    title = (
        "Networks that a profile predicted" if simulated else "Programs without predictions, on replayed tables of real boards"
    )
    figure.suptitle(heading(title, simulated), fontsize=14)
    for axes, (name, label) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
        for table in dict.fromkeys(run.table for run in runs):
            own = [run for run in runs if run.table == table]
            stops = list(own[0].after)
            figures = np.array([[getattr(run.after[stop], name) for stop in stops] for run in own])
            (line,) = axes.plot(stops, np.median(figures, axis=0), marker="o", label=literal(table))
            axes.plot(stops, np.quantile(figures, 0.9, axis=0), color=line.get_color(), linewidth=0.8, linestyle=":")
        axes.set_xlabel("observed configurations (dotted: 90th percentile)")
        axes.set_ylabel(label)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_ylim(0, 0.3)
        axes.set_xticks(stops)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    save(figure, path)
