# SPDX-License-Identifier: Apache-2.0
"""Surfaces: points, quantiles, frames, and the file other programs read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.kernels.boundary import Boundary
from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.errors import CostModelError, GridError
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.heat import Heat
from jetdvfs.kernels.surface import Surface
from jetdvfs.tests.support.profiles.analytic import GRID, board, matmul, network, relu


@pytest.fixture
def predicted() -> Surface:
    return surface(network(matmul(1000), relu(kind="cumsum")), board(sigma=0.1, common=0.05))


def test_a_point_holds_the_figures_at_that_configuration(predicted: Surface) -> None:
    at = predicted.at(FrequencyConfiguration(1_000_000, 800_000_000, 1_600_000_000))
    assert at.latency_ms == predicted.latency_ms[1, 2, 1]
    assert at.energy_mj == pytest.approx(at.power_mw * at.latency_ms / 1e3)
    with pytest.raises(GridError, match="GPU 500 MHz is not a frequency of this board; nearest: 400 and 800 MHz"):
        predicted.at(FrequencyConfiguration(1_000_000, 500_000_000, 1_600_000_000))


def test_the_arrays_cannot_be_written_to(predicted: Surface) -> None:
    with pytest.raises(ValueError, match="read-only"):
        predicted.latency_ms[0, 0, 0] = 1


def test_the_median_is_the_prediction_and_quantiles_rise(predicted: Surface) -> None:
    np.testing.assert_allclose(predicted.quantile(0.5).latency_ms, predicted.latency_ms)
    low, high = predicted.quantile(0.05), predicted.quantile(0.95)
    for name in ("latency_ms", "energy_mj", "power_mw"):
        assert (getattr(low, name) < getattr(predicted, name)).all() and (getattr(predicted, name) < getattr(high, name)).all()
    np.testing.assert_allclose(high.latency_ms, predicted.latency_ms * np.exp(1.6448536 * predicted.latency_sigma))
    assert (high.latency_sigma == 0).all()


@pytest.mark.parametrize("probability", [0, 1, -0.5, 95, float("nan")])
def test_a_quantile_is_a_probability(predicted: Surface, probability: float) -> None:
    with pytest.raises(CostModelError, match="expected a probability"):
        predicted.quantile(probability)


def test_energy_per_frame_adds_idle_until_the_next_frame(predicted: Surface) -> None:
    slow = predicted.energy_per_frame_mj(1)
    np.testing.assert_allclose(slow, predicted.energy_mj + predicted.idle_mw * (1000 - predicted.latency_ms) / 1e3)
    np.testing.assert_array_equal(predicted.energy_per_frame_mj(1e6), predicted.energy_mj)  # late frames do not wait
    with pytest.raises(CostModelError, match="positive frame rate"):
        predicted.energy_per_frame_mj(0)


@pytest.fixture
def leaking(predicted: Surface) -> Surface:
    return replace(predicted, leakage_mw=0.25 * predicted.idle_mw, heat=Heat(45.0, 38.0))


def test_power_and_energy_follow_the_temperature(leaking: Surface) -> None:
    twice = leaking.warmed(45 + 38 * np.log(2))
    np.testing.assert_allclose(twice.idle_mw, 1.25 * leaking.idle_mw)
    np.testing.assert_allclose(twice.energy_mj - leaking.energy_mj, 0.25 * leaking.idle_mw * leaking.latency_ms / 1e3)
    np.testing.assert_allclose(twice.power_mw, twice.energy_mj / twice.latency_ms * 1e3)
    np.testing.assert_array_equal(twice.latency_ms, leaking.latency_ms)
    np.testing.assert_allclose(leaking.warmed(45).energy_mj, leaking.energy_mj)
    assert (leaking.warmed(30).energy_mj < leaking.energy_mj).all()


def test_each_configuration_may_have_a_temperature_of_its_own(leaking: Surface) -> None:
    degrees = np.linspace(30, 90, leaking.grid.size).reshape(leaking.grid.shape)
    own = leaking.warmed(degrees)
    assert own.energy_mj[0, 0, 0] == pytest.approx(leaking.warmed(30.0).energy_mj[0, 0, 0])
    assert own.energy_mj[-1, -1, -1] == pytest.approx(leaking.warmed(90.0).energy_mj[-1, -1, -1])


def test_only_known_temperatures_are_taken(leaking: Surface, predicted: Surface) -> None:
    for degrees in (-41.0, 126.0, float("nan")):
        with pytest.raises(CostModelError, match="expected one of a die that works, -40 to 125"):
            leaking.warmed(degrees)
    with pytest.raises(CostModelError, match="not known how its power depends on temperature"):
        predicted.warmed(60)
    with pytest.raises(CostModelError, match="not known"):
        leaking.warmed(60).warmed(70)


def test_a_saved_surface_knows_how_it_leaks(leaking: Surface, tmp_path: Path) -> None:
    leaking.save(tmp_path / "surface.npz")
    np.testing.assert_allclose(Surface.load(tmp_path / "surface.npz").warmed(80).energy_mj, leaking.warmed(80).energy_mj)


def test_the_saved_file_has_the_documented_arrays(predicted: Surface, tmp_path: Path) -> None:
    predicted.save(tmp_path / "surface.npz")
    with np.load(tmp_path / "surface.npz", allow_pickle=False) as arrays:
        assert [arrays[name].tolist() for name in ("cpu_khz", "gpu_hz", "emc_hz")] == [
            list(GRID.cpu_khz), list(GRID.gpu_hz), list(GRID.emc_hz),
        ]  # fmt: skip
        for name in ("latency_ms", "power_mw", "energy_mj", "idle_mw"):
            np.testing.assert_array_equal(arrays[name], getattr(predicted, name))


def test_a_saved_surface_is_read_back_whole(predicted: Surface, tmp_path: Path) -> None:
    predicted.save(tmp_path / "no-ending")
    loaded = Surface.load(tmp_path / "no-ending")
    assert (loaded.grid, loaded.method, loaded.unmodelled) == (predicted.grid, "timeline", predicted.unmodelled)
    assert loaded.unmodelled[0].kind == "cumsum" and loaded.boundary is None
    np.testing.assert_array_equal(loaded.energy_sigma, predicted.energy_sigma)


def test_a_surface_of_a_part_of_a_network_carries_where_it_ends(tmp_path: Path) -> None:
    end = Boundary("torchvision::nms", "line 7", "boxes decide")
    part = surface(replace(network(matmul(1000)), boundary=end), board())
    part.save(tmp_path / "part")
    assert part.quantile(0.9).boundary == Surface.load(tmp_path / "part").boundary == end


def test_what_is_no_surface_file_is_refused(predicted: Surface, tmp_path: Path) -> None:
    predicted.save(tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    (tmp_path / "cut").write_bytes(good[: len(good) // 2])
    (tmp_path / "text").write_text("surface")
    np.savez(tmp_path / "other.npz", cpu_khz=np.arange(3))
    for name in ("cut", "text", "other.npz", "absent"):
        with pytest.raises(CostModelError, match=f"{name}: not a saved surface"):
            Surface.load(tmp_path / name)
    with pytest.raises(CostModelError, match="cannot write the surface"):
        predicted.save(tmp_path / "no" / "folder.npz")


def test_arrays_that_are_no_figures_are_refused(predicted: Surface) -> None:
    with pytest.raises(CostModelError, match="latency_ms holds values that are not finite or not above 0"):
        replace(predicted, latency_ms=predicted.latency_ms * 0)
    with pytest.raises(CostModelError, match="idle_mw has shape"):
        replace(predicted, idle_mw=predicted.idle_mw[0])


def test_a_saved_surface_stays_unpredicted(tmp_path: Path) -> None:
    made = flat_surface(GRID)
    made.save(tmp_path / "flat.npz")
    terms = Surface.load(tmp_path / "flat.npz").terms
    assert terms is not None and made.terms is not None and terms.unpredicted
    assert (terms.compute_sigma, terms.all_sigma) == (made.terms.compute_sigma, made.terms.all_sigma)
