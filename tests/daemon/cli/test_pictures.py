# SPDX-License-Identifier: Apache-2.0
"""Pictures of surfaces and plans, rendered."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jetdvfs.daemon.errors import InputError
from jetdvfs.daemon.planning.plan import plan
from jetdvfs.kernels.cost.model import surface
from jetdvfs.tests.support.profiles.analytic import board, conv2d, matmul, network, relu

pytest.importorskip("matplotlib", reason="pictures need matplotlib, pip install '.[plot]'")

from matplotlib.figure import Figure
from matplotlib.image import imread

from jetdvfs.daemon.cli.pictures import draw_surface

SURFACE = surface(network(conv2d(), relu(1 << 18), matmul(300)), board(sigma=0.1, common=0.05))
VERMILLION, BLUE = (0xD5, 0x5E, 0x00), (0x00, 0x72, 0xB2)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were written."""
    figures: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def pixels_of(path: Path, colour: tuple[int, int, int]) -> int:
    return int((np.abs(imread(path)[..., :3] * 255 - colour).max(axis=-1) < 3).sum())


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("latency_ms=3", {}),
        ("energy_mj=100", {}),
        ("power_mw=6000", {}),
        ("min-edp", {}),
        ("power_mw=6000", {"fps": 10}),
        ("latency_ms=3", {"fps": 30, "confidence": 0.95}),
    ],
)
def test_a_plan_is_drawn_with_its_choice_and_the_top_clocks(target: str, options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "plan.png"
    draw_surface(SURFACE, path, title="handmade", simulated=True, plan=plan(SURFACE, target, **options))
    assert imread(path).shape[1] >= 1500
    assert pixels_of(path, VERMILLION) > 300  # the stars
    assert pixels_of(path, BLUE) > 100  # the top clocks


def test_the_picture_says_what_it_shows_in_units(tmp_path: Path, drawn: list[Figure]) -> None:
    chosen = plan(SURFACE, "latency_ms=3", fps=20, confidence=0.9)
    draw_surface(SURFACE, tmp_path / "plan.png", title="handmade on small", simulated=True, plan=chosen)
    (figure,) = drawn
    heading = figure.get_suptitle()
    assert "handmade on small" in heading and "latency_ms=3 at 20 frames/s, confidence 0.9" in heading
    assert "simulated" in heading
    labels = {axes.get_xlabel() for axes in figure.axes} | {axes.get_ylabel() for axes in figure.axes}
    assert labels >= {"latency, ms", "energy per frame, mJ", "GPU clock, MHz", "CPU clock, MHz", "memory clock, MHz"}
    boxes = [box for axes in figure.axes if (box := axes.get_legend())]
    legend = " ".join(text.get_text() for box in boxes for text in box.get_texts())
    assert "target: latency at most 3 ms" in legend and "period 50 ms" in legend and "Pareto front" in legend
    assert "9 in 10 measurements" in legend and "90% stay below" in legend  # the uncertainty, and what the confidence asks for
    assert f"chosen: {chosen.latency_ms:.3g} ms, {chosen.energy_per_frame_mj:.3g} mJ" in legend


def test_a_real_boards_picture_does_not_say_simulated(tmp_path: Path, drawn: list[Figure]) -> None:
    draw_surface(SURFACE, tmp_path / "surface.png", title="handmade on small", simulated=False)
    assert drawn[0].get_suptitle() == "handmade on small"
    assert pixels_of(tmp_path / "surface.png", BLUE) > 100


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"sudo apt-get install python3-matplotlib, or from a clone: pip install '\.\[plot\]'"):
        draw_surface(SURFACE, tmp_path / "surface.png", title="", simulated=False)


def test_a_picture_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write the picture"):
        draw_surface(SURFACE, tmp_path / "no" / "surface.png", title="", simulated=False)
    with pytest.raises(InputError, match="cannot write the picture"):
        draw_surface(SURFACE, tmp_path / "surface.docx", title="", simulated=False)
    (tmp_path / "folder.png" / "in the way").mkdir(parents=True)
    with pytest.raises(InputError, match="cannot write the picture"):
        draw_surface(SURFACE, tmp_path / "folder.png", title="", simulated=False)
    assert [left.name for left in tmp_path.iterdir()] == ["folder.png"]


def test_a_display_that_matplotlib_does_not_know_is_not_asked_for(tmp_path: Path) -> None:
    figures = "from jetdvfs.daemon.cli.pictures import new_figure, save"
    code = f"{figures}; save(new_figure(1, 1), {str(tmp_path / 'empty.png')!r})"
    environment = {**os.environ, "MPLBACKEND": "nonsense"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert (tmp_path / "empty.png").stat().st_size > 100
