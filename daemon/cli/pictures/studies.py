# SPDX-License-Identifier: Apache-2.0
"""A picture of a workload study: each network's inference time by kernel kind."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ....profiles.studies.characterization import NetworkRun
from .figures import OTHERS, colour, colours_of, heading, ink_on, legend_kinds, literal, new_figure, save

_LEAST_LABEL = 0.045


def draw_study(runs: Sequence[NetworkRun], path: str | os.PathLike[str], *, title: str, simulated: bool) -> None:
    """Draw one stacked bar per network, in parts of its inference time.

    Args:
        runs: the networks.
        path: the picture to write; its ending says the format.
        title: what stands above it.
        simulated: whether the figures are a simulated board's; the title then says so.

    Raises:
        InputError: matplotlib is missing, or the picture cannot be written.
    """
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
