# SPDX-License-Identifier: Apache-2.0
"""A picture of a decomposed network: what it is made of by kind, and where in it the work and the traffic are."""

from __future__ import annotations

import os
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.network import KernelInvocation, Network
from .figures import colour, colours_of, ink_on, legend_kinds, literal, new_figure, save
from .output import amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST_LABEL = 0.05
_MOST_MODULES = 24
_CLOSEST_NAMES = 0.011


def draw_network(network: Network, path: str | os.PathLike[str], *, title: str) -> None:
    """Draw a network.

    Args:
        network: it launches something at least.
        path: the picture to write; its ending says the format.
        title: what stands above it.

    Raises:
        InputError: matplotlib is missing, or the picture cannot be written.
    """
    launches = network.launches
    figure = new_figure(15, 8)
    figure.suptitle(literal(title), fontsize=15, fontweight="bold")
    top, flops, moved = figure.subplots(3, 1, height_ratios=(1, 1.1, 1.1))
    moved.sharex(flops)
    colours = colours_of({kind: sum(launch.bytes for launch in launches if launch.kind == kind) for kind in network.kinds})
    _shares(top, launches, network.kinds, colours)
    _along(flops, launches, [launch.flops for launch in launches], "FLOPs of each launch, in execution order", "FLOP", colours)
    _along(
        moved,
        launches,
        [launch.bytes for launch in launches],
        "bytes of each launch, and the modules they belong to",
        "B",
        colours,
    )
    flops.tick_params(labelbottom=False)
    _modules(moved, launches)
    patches = [top.barh([0], [0], color=shade, label=literal(kind)) for kind, shade in legend_kinds(network.kinds, colours)]
    figure.legend(handles=patches, loc="outside lower center", ncols=9, frameon=False)
    save(figure, path)


def _shares(axes: Axes, launches: tuple[KernelInvocation, ...], kinds: dict[str, int], colours: dict[str, str]) -> None:
    """Three stacked bars: the kinds' shares of launches, FLOPs and bytes."""
    rows = (
        ("launches", [1] * len(launches), f"{len(launches)}"),
        ("FLOPs", [launch.flops for launch in launches], amount(sum(launch.flops for launch in launches), "FLOP")),
        ("bytes", [launch.bytes for launch in launches], amount(sum(launch.bytes for launch in launches), "B")),
    )
    for row, (_, weights, _) in enumerate(rows):
        left, whole = 0.0, sum(weights)
        for kind in (*colours, *(kind for kind in kinds if kind not in colours)):
            own = sum(weight for weight, launch in zip(weights, launches, strict=True) if launch.kind == kind)
            share = own / whole if whole else 0.0
            axes.barh(row, share, left=left, color=colour(kind, colours), edgecolor="white", linewidth=0.6)
            if share >= _LEAST_LABEL:
                label, ink = f"{literal(kind)}\n{share:.0%}", ink_on(colour(kind, colours))
                axes.text(left + share / 2, row, label, ha="center", va="center", fontsize=9, color=ink)
            left += share
    axes.set_yticks(range(3), [f"{name}\n{whole}" for name, _, whole in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_title("what it is made of", loc="left", fontsize=11)


def _along(
    axes: Axes, launches: tuple[KernelInvocation, ...], values: list[int], name: str, unit: str, colours: dict[str, str]
) -> None:
    """One bar per launch, in execution order."""
    shades = [colour(launch.kind, colours) for launch in launches]
    axes.bar(np.arange(len(values)), values, width=1.0 if len(values) > 150 else 0.85, color=shades)
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.set_title(name, loc="left", fontsize=11)
    axes.yaxis.set_major_formatter(lambda value, _: amount(value, unit))
    axes.grid(axis="y", alpha=0.3)


def _modules(axes: Axes, launches: tuple[KernelInvocation, ...]) -> None:
    """The modules under the launches they make: as deep as there is room for their names."""
    runs = _runs(launches, 1)
    for depth in (2, 3, 4):
        deeper = _runs(launches, depth)
        runs = deeper if len(deeper) <= _MOST_MODULES else runs
    axes.set_xticks([])
    named = -1.0
    for first, end, name in runs:
        axes.axvline(first - 0.5, color="black", linewidth=0.6, alpha=0.35)
        middle = (first + end - 1) / 2
        if (middle - named) / len(launches) < _CLOSEST_NAMES:
            continue
        named = middle
        wide = (end - first) / len(launches) > 0.006 * len(name)
        axes.text(
            middle, -0.03, literal(name), transform=axes.get_xaxis_transform(), fontsize=8, va="top",
            ha="center" if wide else "right", rotation=0 if wide else 45,
        )  # fmt: skip


def _runs(launches: tuple[KernelInvocation, ...], depth: int) -> list[tuple[int, int, str]]:
    """Launches of one module after each other, modules taken to a depth: the first, the one after the last, the module."""
    runs = []
    start = 0
    for name, own in groupby(".".join(launch.scope.split(".")[:depth]) for launch in launches):
        count = len(list(own))
        runs.append((start, start + count, name))
        start += count
    return runs
