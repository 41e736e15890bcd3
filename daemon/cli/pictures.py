# SPDX-License-Identifier: Apache-2.0
"""Pictures of networks, surfaces and plans, by matplotlib without a display."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ...kernels.grid import FrequencyConfiguration
from ...kernels.network import KernelInvocation, Network
from ...kernels.stored_files import replacing
from ...kernels.surface import Surface
from ...kernels.text import needing, printable
from ..arguments import named_file
from ..errors import InputError
from ..planning.plan import Plan, in_time, outlook, pareto_front
from ..planning.targets import TargetFigures
from .output import amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 110
OTHERS = "others"
_GREY = "#999999"
_KIND_COLOURS = {
    "conv2d": "#0072B2",
    "batch_norm": "#E69F00",
    "matmul": "#D55E00",
    "relu": "#009E73",
    "cat": "#CC79A7",
    "max_pool2d": "#56B4E9",
    "add": "#F0E442",
    "adaptive_avg_pool2d": "#000000",
}
_LIGHT = frozenset({"#F0E442", "#56B4E9", "#E69F00"})


def new_figure(width: float, height: float) -> Figure:
    told = os.environ.get("MPLBACKEND")
    os.environ["MPLBACKEND"] = "agg"  # importing matplotlib fails with an unknown backend here
    try:
        with needing("pictures", "plot", InputError):
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
    finally:
        if told is None:
            del os.environ["MPLBACKEND"]
        else:
            os.environ["MPLBACKEND"] = told
    figure: Figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def picture_file(text: str) -> Path:
    path = named_file(text)
    _check_kind(new_figure(1, 1), path)
    if not path.parent.is_dir():
        raise InputError(f"{path}: cannot write the picture ({os.strerror(errno.ENOENT)})")
    return path


def announce_picture(path: Path) -> None:
    print(printable(f"drawn in {path}"), file=sys.stderr)


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a picture in the format of its ending; raises InputError, and keeps an earlier file."""
    _check_kind(figure, Path(path))
    try:
        with replacing(path) as file:
            figure.savefig(file, dpi=DPI, format=Path(path).suffix[1:].lower())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{os.fspath(path)}: cannot write the picture ({reason})") from error


def _check_kind(figure: Figure, path: Path) -> None:
    kinds = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        valid = " or ".join(f".{kind}" for kind in ("png", "svg", "pdf", "jpg") if kind in kinds)
        raise InputError(f"{path}: cannot write the picture: its name must end in {valid}")


def heading(text: str, simulated: bool) -> str:
    return literal(f"{text} (simulated board)" if simulated else text)


def literal(text: str) -> str:
    """Text whose dollars start no formula."""
    return printable(text).replace("$", r"\$")


def colours_of(weights: Mapping[str, float]) -> dict[str, str]:
    """Colour for each kind with enough weight, the same in every picture for usual ones; the rest is grey."""
    ranked = sorted(weights, key=lambda kind: -weights[kind])[: len(_KIND_COLOURS)]
    free = [colour for kind, colour in _KIND_COLOURS.items() if kind not in ranked]
    return {kind: _KIND_COLOURS.get(kind) or free.pop(0) for kind in ranked}


def colour(kind: str, colours: Mapping[str, str]) -> str:
    return colours.get(kind, _GREY)


def ink_on(shade: str) -> str:
    return "black" if shade in _LIGHT else "white"


def legend_kinds(kinds: Iterable[str], colours: Mapping[str, str]) -> list[tuple[str, str]]:
    kinds = list(dict.fromkeys(kinds))
    named = [(kind, colours[kind]) for kind in kinds if kind in colours]
    return named + ([(OTHERS, _GREY)] if len(named) < len(kinds) else [])


_LEAST_LABEL = 0.05
_MOST_MODULES = 24
_CLOSEST_NAMES = 0.011


def draw_network(network: Network, path: str | os.PathLike[str], *, title: str) -> None:
    launches = network.launches
    figure = new_figure(15, 8)
    figure.suptitle(literal(title), fontsize=15, fontweight="bold")
    top, flops, moved = figure.subplots(3, 1, height_ratios=(1, 1.1, 1.1))
    moved.sharex(flops)
    colours = colours_of({kind: sum(launch.bytes for launch in launches if launch.kind == kind) for kind in network.kinds})
    _shares(top, launches, network.kinds, colours)
    work, traffic = [launch.flops for launch in launches], [launch.bytes for launch in launches]
    _along(flops, launches, work, "FLOPs of each launch, in execution order", "FLOP", colours)
    _along(moved, launches, traffic, "bytes of each launch, and the modules they belong to", "B", colours)
    flops.tick_params(labelbottom=False)
    _modules(moved, launches)
    patches = [top.barh([0], [0], color=shade, label=literal(kind)) for kind, shade in legend_kinds(network.kinds, colours)]
    figure.legend(handles=patches, loc="outside lower center", ncols=9, frameon=False)
    save(figure, path)


def _shares(axes: Axes, launches: tuple[KernelInvocation, ...], kinds: dict[str, int], colours: dict[str, str]) -> None:
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
    axes.set_title("composition", loc="left", fontsize=11)


def _along(
    axes: Axes, launches: tuple[KernelInvocation, ...], values: list[int], name: str, unit: str, colours: dict[str, str]
) -> None:
    shades = [colour(launch.kind, colours) for launch in launches]
    axes.bar(np.arange(len(values)), values, width=1.0 if len(values) > 150 else 0.85, color=shades)
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.set_title(name, loc="left", fontsize=11)
    axes.yaxis.set_major_formatter(lambda value, _: amount(value, unit))
    axes.grid(axis="y", alpha=0.3)


def _modules(axes: Axes, launches: tuple[KernelInvocation, ...]) -> None:
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
    runs = []
    start = 0
    for name, own in groupby(".".join(launch.scope.split(".")[:depth]) for launch in launches):
        count = len(list(own))
        runs.append((start, start + count, name))
        start += count
    return runs


_FRONT, _CHOICE, _TOP, _TARGET, _CLOUD = "#000000", "#D55E00", "#0072B2", "#CC79A7", "cividis"
_BAND = (0.05, 0.95)
_FAR = 3  # a limit this many times above every prediction would only flatten the panel


def draw_trade_off(surface: Surface, plan: Plan | None, axes: Axes | None, *, title: str, simulated: bool) -> Axes:
    """Draw the trade-off on the axes, or on new ones of ``matplotlib.pyplot``; return them."""
    if axes is None:
        with needing("pictures", "plot", InputError):
            from matplotlib import pyplot
        axes = pyplot.subplots(figsize=(9, 6), layout="constrained")[1]
    _trade_off(axes, _scene(surface, plan))
    axes.set_title(heading(title, simulated))
    axes.legend(fontsize=9)
    return axes


class _PictureContent(Struct, frozen=True, eq=False):
    surface: Surface
    figures: TargetFigures
    low: TargetFigures
    high: TargetFigures
    centre: FrequencyConfiguration
    plan: Plan | None

    @property
    def index(self) -> tuple[int, int, int]:
        return self.surface.grid.index(self.centre)

    @property
    def energy_label(self) -> str:
        return "energy per frame, mJ" if self.plan and self.plan.fps else "energy per inference, mJ"

    def limits(self, figure: str) -> list[tuple[str, float]]:
        bound = self.plan.target.bound if self.plan else None
        limits = [("target", bound.limit)] if bound and bound.figure == figure else []
        return limits + ([("period", 1e3 / self.plan.fps)] if self.plan and self.plan.fps and figure == "latency_ms" else [])


def draw_surface(
    surface: Surface, path: str | os.PathLike[str], *, title: str, simulated: bool, plan: Plan | None = None
) -> None:
    above = heading(title, simulated)
    if plan:
        goal = f"target {plan.target}" + (f" at {plan.fps:g} frames/s" if plan.fps else "")
        goal += f", confidence {plan.confidence:g}" if plan.confidence else ""
        above = f"{heading(f'{title}: {goal}', simulated)}\n{literal(plan.saving)}"
    scene = _scene(surface, plan)
    figure = new_figure(15.5, 8.2)
    panels = figure.add_gridspec(3, 3, width_ratios=(1, 1, 1.55), height_ratios=(1, 1, 0.13))
    figure.suptitle(above, fontsize=14, fontweight="bold")
    for column, (values, name) in enumerate(
        ((scene.figures.latency_ms, "latency, ms"), (scene.figures.energy_mj, scene.energy_label))
    ):
        _heat_map(figure, figure.add_subplot(panels[0, column]), scene, values, name)
    _cpu_panel(figure.add_subplot(panels[1, 0]), scene, "latency_ms", "latency, ms")
    _cpu_panel(figure.add_subplot(panels[1, 1]), scene, "energy_mj", scene.energy_label)
    trade_off = figure.add_subplot(panels[:2, 2])
    _trade_off(trade_off, scene)
    legend = figure.add_subplot(panels[2, :])
    legend.axis("off")
    legend.legend(*trade_off.get_legend_handles_labels(), loc="center", ncol=6, fontsize=9.5, columnspacing=1.6, frameon=False)
    save(figure, path)


def _scene(surface: Surface, plan: Plan | None) -> _PictureContent:
    fps, centre = (plan.fps, plan.configuration) if plan else (None, surface.grid.top)
    low, high = (outlook(surface, fps, probability) for probability in _BAND)
    return _PictureContent(surface, outlook(surface, fps), low, high, centre, plan)


def _heat_map(figure: Figure, axes: Axes, scene: _PictureContent, values: NDArray[np.float64], label: str) -> None:
    cpu, gpu, emc = scene.index
    grid = scene.surface.grid
    plane = values[cpu].T
    mesh = axes.pcolormesh(plane, cmap=_CLOUD, norm="log", edgecolors="white", linewidth=0.4)
    bar = figure.colorbar(mesh, ax=axes, pad=0.02)
    _plain_numbers(bar.ax.yaxis, plane.min(), plane.max())
    cpu_mhz, gpu_mhz, emc_mhz = grid.levels_mhz()
    axes.set_xticks(np.arange(len(gpu_mhz)) + 0.5, [f"{level:.0f}" for level in gpu_mhz], rotation=60, fontsize=8)
    axes.set_yticks(np.arange(len(emc_mhz)) + 0.5, [f"{level:.0f}" for level in emc_mhz], fontsize=8)
    axes.set(xlabel="GPU clock, MHz", ylabel="memory clock, MHz", title=f"{label}, at CPU {cpu_mhz[cpu]:.0f} MHz")
    missed = _missed(scene)
    if missed is not None and missed[cpu].any():
        axes.set_title(f"{axes.get_title()}\n(crossed: target missed)", fontsize=11)
        rows, columns = np.nonzero(missed[cpu].T)
        axes.plot(columns + 0.5, rows + 0.5, "x", color="white", markersize=5, markeredgewidth=1.6)
        axes.plot(columns + 0.5, rows + 0.5, "x", color=_TARGET, markersize=4, markeredgewidth=1.0)
    if scene.plan:
        axes.plot(gpu + 0.5, emc + 0.5, "*", color=_CHOICE, markersize=17, markeredgecolor="white")


def _missed(scene: _PictureContent) -> NDArray[np.bool_] | None:
    if scene.plan is None:
        return None
    confidence, fps = scene.plan.confidence, scene.plan.fps
    cautious = outlook(scene.surface, fps, confidence)
    missed = np.zeros(scene.surface.grid.shape, bool)
    if fps:
        missed |= cautious.latency_ms > 1e3 / fps
    if scene.plan.target.bound:
        missed |= getattr(cautious, scene.plan.target.bound.figure) > scene.plan.target.bound.limit
    return missed if missed.any() else None


def _cpu_panel(axes: Axes, scene: _PictureContent, figure: str, label: str) -> None:
    cpu, gpu, emc = scene.index
    grid = scene.surface.grid
    cpu_mhz, gpu_mhz, emc_mhz = grid.levels_mhz()
    line, low, high = (getattr(side, figure)[:, gpu, emc] for side in (scene.figures, scene.low, scene.high))
    axes.fill_between(cpu_mhz, low, high, color=_TOP, alpha=0.18, linewidth=0, label="9 in 10 measurements")
    axes.plot(cpu_mhz, line, color=_TOP, linewidth=1.8, label="predicted")
    if scene.plan and scene.plan.confidence:
        cautious = getattr(outlook(scene.surface, scene.plan.fps, scene.plan.confidence), figure)[:, gpu, emc]
        label_of_it = f"{100 * scene.plan.confidence:.4g}% stay below"
        axes.plot(cpu_mhz, cautious, color=_TOP, linewidth=1.4, linestyle="-.", label=label_of_it)
    limits = [(name, limit) for name, limit in scene.limits(figure) if limit < _FAR * high.max()]
    for name, limit in limits:
        style = ("--", _TARGET, 2.0) if name == "target" else (":", _FRONT, 1.4)
        axes.axhline(limit, linestyle=style[0], color=style[1], linewidth=style[2], label=name)
    if scene.plan:
        axes.plot(cpu_mhz[cpu], line[cpu], "*", color=_CHOICE, markersize=17, markeredgecolor="white", label="chosen")
    highest = max([high.max(), *(limit for _, limit in limits)])
    axes.set_ylim(0, 1.1 * highest if high.max() < 6 * np.median(line) else None)
    axes.set(xlabel="CPU clock, MHz", ylabel=label)
    axes.set_title(f"at GPU {gpu_mhz[gpu]:.0f}, memory {emc_mhz[emc]:.0f} MHz")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, framealpha=0.9)


def _trade_off(axes: Axes, scene: _PictureContent) -> None:
    latency, energy = scene.figures.latency_ms, scene.figures.energy_mj
    grid = scene.surface.grid
    gpu_mhz = np.broadcast_to(grid.levels_mhz()[1][:, None], grid.shape)
    cloud = axes.scatter(latency, energy, c=gpu_mhz, cmap=_CLOUD, s=9, alpha=0.55, linewidth=0, rasterized=True)
    axes.figure.colorbar(cloud, ax=axes, pad=0.02, alpha=1).set_label("GPU clock, MHz")
    in_period = in_time(scene.figures, scene.plan.fps if scene.plan else None)
    front = pareto_front(scene.figures, in_period)
    along, low, high = (
        np.array([values[at] for at in front]) for values in (latency, scene.low.energy_mj, scene.high.energy_mj)
    )
    axes.fill_between(along, low, high, color=_FRONT, alpha=0.10, linewidth=0)
    axes.plot(
        along,
        [energy[at] for at in front],
        color=_FRONT,
        linewidth=1.8,
        label=f"Pareto front ({len(front)});\nshaded: 9 in 10 measurements",
    )
    axes.set(xscale="log", yscale="log", xlabel="latency, ms", ylabel=scene.energy_label)
    axes.set_title(f"{grid.size} configurations: latency against energy")
    for axis, values in ((axes.xaxis, latency), (axes.yaxis, energy)):
        _plain_numbers(axis, values.min(), values.max())
    at, top = scene.index, grid.index(grid.top)
    _mark(axes, scene, top, "top clocks", marker="D", color=_TOP, markersize=11)
    if scene.plan is None:
        _mark(axes, scene, front[-1], "least energy", marker="o", color=_CHOICE, markersize=12)
    if scene.plan:
        spread = [
            [[abs(getattr(side, figure)[at] - values[at])] for side in (scene.low, scene.high)]
            for figure, values in (("latency_ms", latency), ("energy_mj", energy))
        ]
        axes.errorbar(latency[at], energy[at], xerr=spread[0], yerr=spread[1], color=_CHOICE, capsize=4, linewidth=1.6)
        axes.autoscale_view()
        axes.autoscale(False)
        _requirements(axes, scene)
        _mark(axes, scene, at, "chosen", marker="*", color=_CHOICE, markersize=24)
    axes.grid(which="both", alpha=0.2)


def _requirements(axes: Axes, scene: _PictureContent) -> None:
    assert scene.plan is not None
    right, top = axes.get_xlim()[1], axes.get_ylim()[1]
    bound, fps = scene.plan.target.bound, scene.plan.fps
    if fps:
        axes.axvline(1e3 / fps, color=_FRONT, linewidth=1.4, linestyle=":", label=f"period {1e3 / fps:.4g} ms")
    if bound is None:
        return
    style: dict[str, Any] = {"color": _TARGET, "linewidth": 2.2, "linestyle": "--"}
    label = f"target: {bound}" + (f",\nmet with {scene.plan.confidence:g} confidence" if scene.plan.confidence else "")
    if bound.figure == "latency_ms":
        axes.axvline(bound.limit, **style, label=label)
        axes.axvspan(bound.limit, right, color=_TARGET, alpha=0.10, linewidth=0)
    elif bound.figure == "energy_mj" or fps:
        limit = bound.limit if bound.figure == "energy_mj" else bound.limit / (fps or 1)
        axes.axhline(limit, **style, label=label)
        axes.axhspan(limit, top, color=_TARGET, alpha=0.10, linewidth=0)
    else:  # without a period, power is the slope of energy over latency
        ends = np.array(axes.get_xlim())
        axes.plot(ends, ends * bound.limit / 1e3, **style, label=label)
        axes.fill_between(ends, ends * bound.limit / 1e3, top, color=_TARGET, alpha=0.10, linewidth=0)


def _mark(axes: Axes, scene: _PictureContent, at: tuple[int, int, int], name: str, **style: Any) -> None:
    latency, energy, clocks = scene.figures.latency_ms[at], scene.figures.energy_mj[at], scene.surface.grid.configuration(at)
    clocks_mhz = " / ".join(f"{clock:.0f}" for clock in clocks.mhz)
    label = f"{name}: {_three_digits(latency)} ms, {_three_digits(energy)} mJ\nCPU/GPU/memory {clocks_mhz} MHz"
    axes.plot(latency, energy, linestyle="none", markeredgecolor="white", label=label, **style)


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _plain_numbers(axis: Any, low: float, high: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    steps = (1, 2, 3, 5, 7) if high / low > 8 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
