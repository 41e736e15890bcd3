# SPDX-License-Identifier: Apache-2.0
"""The product from Python: load, predict, plan and draw in five lines, without a daemon."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import jetdvfs
from jetdvfs.daemon.errors import InputError, TargetNotAttainable, UsageError
from jetdvfs.daemon.notebook import BoardSurface
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.surface import Surface
from jetdvfs.tests.support.paths import REFERENCE

MODEL = REFERENCE / "squeezenet1_0.pt"
IMAGE = "1x3x224x224"


@pytest.fixture(scope="module")
def surface() -> Iterator[BoardSurface]:
    yield jetdvfs.load_profile("agx-xavier-sim").surface(jetdvfs.decompose(MODEL, IMAGE))


def test_five_lines_load_predict_plan_and_draw(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    program = f"""
import jetdvfs
surface = jetdvfs.load_profile("agx-xavier-sim").surface(jetdvfs.decompose({str(MODEL)!r}, {IMAGE!r}))
plan = surface.plan("latency_ms=20", confidence=0.95)
surface.plot(plan).figure.savefig("plan.png")
print(plan)
"""
    # Without a compiler the package says so by a warning.
    done = subprocess.run(
        [sys.executable, "-W", "ignore::RuntimeWarning", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("<plan for latency_ms=20 with 0.95 confidence: ")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_loaded_prints_itself_in_one_line(surface: BoardSurface) -> None:
    network = jetdvfs.decompose(MODEL, [IMAGE])
    for thing in (network, jetdvfs.load_profile("agx-xavier-sim"), surface, surface.plan("min-edp", fps=15)):
        assert repr(thing).startswith("<") and repr(thing).endswith(">") and "\n" not in repr(thing)
        assert len(repr(thing)) < 200
    assert "simulated" in repr(surface), "the profile was measured on a simulated board"
    assert f"{len(network.launches)} launches" in repr(network)


def test_a_surface_predicts_what_the_command_line_predicts(surface: BoardSurface, tmp_path: Path) -> None:
    saved = tmp_path / "surface.npz"
    main = "import sys; from jetdvfs.daemon.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ("predict", str(MODEL), "--input", IMAGE, "--profile", "agx-xavier-sim", "--save", str(saved))
    subprocess.run([sys.executable, "-c", main, *arguments], check=True, capture_output=True, timeout=120)
    other = Surface.load(saved)
    assert np.array_equal(surface.latency_ms, other.latency_ms)
    assert np.array_equal(surface.energy_mj, other.energy_mj)


def test_a_plan_keeps_its_target_or_says_what_can_be_had(surface: BoardSurface) -> None:
    chosen = surface.plan("latency_ms=20", confidence=0.95)
    assert surface.quantile(0.95).at(chosen.configuration).latency_ms <= 20
    with pytest.raises(TargetNotAttainable, match="the lowest latency is"):
        surface.plan("latency_ms=0.001")
    with pytest.raises(UsageError, match="latency_ms=NUMBER"):
        surface.plan("speed")


def test_a_data_frame_has_a_row_for_each_configuration(surface: BoardSurface) -> None:
    if find_spec("pandas") is None:
        with pytest.raises(
            InputError, match=r"sudo apt-get install python3-pandas, or from a clone: pip install '\.\[notebook\]'"
        ):
            surface.to_dataframe()
        return
    frame = surface.to_dataframe()
    assert len(frame) == surface.grid.size
    row = frame.iloc[len(frame) // 3]
    configuration = type(surface.grid.top)(int(row.cpu_khz), int(row.gpu_hz), int(row.emc_hz))
    assert row.energy_mj == surface.at(configuration).energy_mj


def test_a_surface_is_drawn_on_given_axes(surface: BoardSurface) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    axes = figures.Figure().subplots()
    assert surface.plot(ax=axes) is axes
    assert "simulated" in axes.get_title()


def test_an_unknown_method_profile_or_name_is_refused_in_one_line() -> None:
    profile = jetdvfs.load_profile("agx-xavier-sim")
    with pytest.raises(UsageError, match="valid: timeline, sum"):
        profile.surface(jetdvfs.decompose(MODEL, IMAGE), method="guess")
    with pytest.raises(Exception, match=r"valid: .*agx-xavier-sim"):
        jetdvfs.load_profile("no-such-profile")
    with pytest.raises(AttributeError, match="no attribute 'predict'"):
        jetdvfs.predict  # noqa: B018


def test_a_surface_is_corrected_by_what_was_observed(surface: BoardSurface) -> None:
    top = surface.grid.top
    observed = Observation(top, latency_ms=1.3 * surface.at(top).latency_ms, power_mw=surface.at(top).power_mw, frames=30)
    corrected = surface.correct([observed])
    assert isinstance(corrected, BoardSurface) and corrected.network == surface.network
    assert corrected.at(top).latency_ms == pytest.approx(1.3 * surface.at(top).latency_ms, rel=0.05)
    assert corrected.plan("latency_ms=100").latency_ms > 0
    assert str(corrected.correction).startswith("1 observations of 1 configurations: compute x1")
