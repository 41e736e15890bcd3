# SPDX-License-Identifier: Apache-2.0
"""A picture of the loop on replayed tables: how regret and errors fall with the configurations observed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .figures import heading, literal, new_figure, save

if TYPE_CHECKING:
    from ...planning.replaying import Replay

_PANELS = (
    ("regret", "energy above the best of the table"),
    ("latency_error", "error of time, within the deadline"),
    ("power_error", "error of power, within the deadline"),
)


def draw_replays(runs: Sequence[Replay], path: str | os.PathLike[str], *, simulated: bool) -> None:
    """Draw a line for each table: the median of its programs and targets, and the 90th percentile as a thin one.

    Args:
        runs: what became of each target on each program.
        path: the picture to write; its ending says the format.
        simulated: whether they are on simulated boards, predicted beforehand; the title then says so.

    Raises:
        InputError: matplotlib is missing, or the picture cannot be written.
    """
    figure = new_figure(15, 5)
    title = (
        "Networks that a profile predicted"
        if simulated
        else "Programs that nobody predicted, on replayed tables of real boards"
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
