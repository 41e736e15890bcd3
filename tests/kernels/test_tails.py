# SPDX-License-Identifier: Apache-2.0
"""How far what is observed lies above what was predicted: observed quantiles, and a Pareto tail beyond."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.surface import LEVELS, Surface, Tail, Tails
from jetdvfs.tests.support.profiles.analytic import board, matmul, network

TAIL = Tail((0.0, 0.2, 0.5, 0.9, 1.5, 2.0), 0.2, 0.8)
JITTER = Tail((0.0, 0.002, 0.004, 0.006, 0.008, 0.01), 0.1, 0.05)
SURFACE = surface(network(matmul()), board(sigma=0.1))


@given(st.floats(0.001, 0.9999), st.floats(0.001, 0.9999))
def test_what_is_surer_is_higher(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert TAIL.quantile(low) <= TAIL.quantile(high)


def test_quantiles_are_those_that_were_observed() -> None:
    assert [TAIL.quantile(level) for level in LEVELS] == pytest.approx(list(TAIL.quantiles))


@pytest.mark.parametrize("shape", [0.0, 0.3])
def test_beyond_the_last_of_them_peaks_follow_their_distribution(shape: float) -> None:
    tail = replace(TAIL, shape=shape)
    random = np.random.default_rng(0).random(400_000)
    excess = -np.log(random) if shape == 0 else (random**-shape - 1) / shape
    for probability in (0.96, 0.99, 0.999):
        exceeding = (2.0 + 0.8 * excess > tail.quantile(probability)).mean() * (1 - LEVELS[-1])
        assert exceeding == pytest.approx(1 - probability, rel=0.1)


def test_a_surface_with_tails_is_bounded_by_them() -> None:
    wide = replace(SURFACE, tails=Tails(TAIL, replace(TAIL, quantiles=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5)), JITTER))
    high = wide.quantile(0.95)
    np.testing.assert_allclose(high.latency_ms, wide.latency_ms * np.exp(2.0 * wide.latency_sigma))
    np.testing.assert_allclose(high.energy_mj, wide.energy_mj * np.exp(0.5 * wide.energy_sigma))
    np.testing.assert_allclose(
        SURFACE.quantile(0.95).latency_ms, SURFACE.latency_ms * np.exp(1.645 * SURFACE.latency_sigma), 1e-4
    )


def test_a_saved_surface_keeps_its_tails() -> None:
    file = io.BytesIO()
    replace(SURFACE, tails=Tails(TAIL, TAIL, JITTER)).save(file)
    file.seek(0)
    assert Surface.load(file).tails == Tails(TAIL, TAIL, JITTER)


@pytest.mark.parametrize(
    ("quantiles", "shape", "scale"),
    [
        ((0.0, 0.2), 0.1, 1.0),
        ((0.0, 0.2, 0.1, 0.9, 1.5, 2.0), 0.1, 1.0),
        ((-1.0, 0.2, 0.5, 0.9, 1.5, 2.0), 0.1, 1.0),
        (TAIL.quantiles, 1.0, 1.0),
        (TAIL.quantiles, -0.1, 1.0),
        (TAIL.quantiles, 0.1, 0.0),
        (TAIL.quantiles, float("nan"), 1.0),
    ],
)
def test_what_is_no_tail_is_refused(quantiles: tuple[float, ...], shape: float, scale: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        Tail(quantiles, shape, scale)


def test_frames_are_late_however_well_their_median_is_known() -> None:
    known = replace(SURFACE, latency_sigma=np.full(SURFACE.grid.shape, 1e-3), tails=Tails(TAIL, TAIL, JITTER))
    for probability in (0.95, 0.999):
        high = known.quantile(probability)
        np.testing.assert_allclose(high.latency_ms, known.latency_ms * np.exp(JITTER.quantile(probability)))
