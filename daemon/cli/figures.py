# SPDX-License-Identifier: Apache-2.0
"""What every picture shares: matplotlib without a display, errors in one line, and a colour for each kernel kind.

Colours are of Okabe and Ito's palette, which people with colour blindness tell apart.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...kernels.stored import replacing
from ...kernels.text import needing, printable
from ..arguments import named_file
from ..errors import InputError

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
    """A figure of a size in inches that is drawn in memory, whatever display matplotlib is told to use.

    Raises:
        InputError: matplotlib is missing.
    """
    told = os.environ.get("MPLBACKEND")
    os.environ["MPLBACKEND"] = "agg"  # importing matplotlib fails where this names a backend that it does not know
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
    """Read an argument that names a picture to be written, before there is anything to draw.

    Raises:
        InputError: matplotlib is missing or cannot write such a file, or its folder is missing.
    """
    path = named_file(text)
    _check_kind(new_figure(1, 1), path)
    if not path.parent.is_dir():
        raise InputError(f"{path}: cannot write the picture ({os.strerror(errno.ENOENT)})")
    return path


def say_drawn(path: Path) -> None:
    """Name a picture that was written, on standard error: standard output may be JSON."""
    print(printable(f"drawn in {path}"), file=sys.stderr)


def interactive_axes(width: float, height: float) -> Axes:
    """Axes on a figure that a notebook or a window shows, of a size in inches.

    Raises:
        InputError: matplotlib is missing.
    """
    with needing("pictures", "plot", InputError):
        from matplotlib import pyplot
    axes: Axes = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    return axes


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a picture; the file's ending says the format.

    Raises:
        InputError: it cannot be written; a file of that name is as it was.
    """
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
    """A title that says where its figures come from."""
    return literal(f"{text} (simulated board)" if simulated else text)


def literal(text: str) -> str:
    """A text to be drawn as it stands: matplotlib takes what stands between dollars for a formula."""
    return printable(text).replace("$", r"\$")


def colours_of(weights: Mapping[str, float]) -> dict[str, str]:
    """A colour for each kind that stands out by its weight, the same in every picture for the usual ones; the rest is grey."""
    ranked = sorted(weights, key=lambda kind: -weights[kind])[: len(_KIND_COLOURS)]
    free = [colour for kind, colour in _KIND_COLOURS.items() if kind not in ranked]
    return {kind: _KIND_COLOURS.get(kind) or free.pop(0) for kind in ranked}


def colour(kind: str, colours: Mapping[str, str]) -> str:
    return colours.get(kind, _GREY)


def ink_on(shade: str) -> str:
    """Black or white, whichever is read more easily on a kind's colour."""
    return "black" if shade in _LIGHT else "white"


def legend_kinds(kinds: Iterable[str], colours: Mapping[str, str]) -> list[tuple[str, str]]:
    """What a legend names, in order: each kind with its colour, the grey ones together at the end."""
    kinds = list(dict.fromkeys(kinds))
    named = [(kind, colours[kind]) for kind in kinds if kind in colours]
    return named + ([(OTHERS, _GREY)] if len(named) < len(kinds) else [])
