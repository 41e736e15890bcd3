# SPDX-License-Identifier: Apache-2.0
"""How much of a board's idle power grows with temperature, from idle power measured at several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ....kernels.grid import FrequencyGrid
from ....kernels.heat import Heat
from ...adapt.measurements import Rows
from .host_fit import powers_of_clocks

_FOLDS_C = (10.0, 200.0)


def fit_leakage(
    rows: Rows, temperatures_c: Sequence[float], idle_mw: NDArray[np.float32], reference_c: float, grid: FrequencyGrid
) -> tuple[NDArray[np.float32], Heat] | None:
    """Leakage over the grid at the reference temperature, in mW, and how it grows; None where nothing was measured.

    Leakage is a sum of powers of the three clocks, none of them negative, whose part in a measurement grows exponentially with
    temperature; both by least squares of relative errors, over all boards together.

    Args:
        rows: idle power, ``what`` being the position of the temperature.
        idle_mw: idle power over the grid at the reference temperature.
    """
    if not len(rows):
        return None
    from scipy.optimize import minimize_scalar, nnls

    degrees = np.asarray(temperatures_c, np.float64)[rows.what]
    terms, everywhere = powers_of_clocks(rows.configuration, grid), powers_of_clocks(np.arange(grid.size), grid)
    expected = idle_mw.ravel()[rows.configuration].astype(np.float64)
    more = rows.value / expected - 1

    def fitted(fold_c: float) -> tuple[NDArray[np.float64], float]:
        growth = Heat(reference_c, fold_c).growth(degrees)
        weights, residual = nnls(terms * (growth / expected)[:, None], more)
        return weights, float(residual)

    fold_c = float(minimize_scalar(lambda fold: fitted(fold)[1], bounds=_FOLDS_C, method="bounded").x)
    leakage_mw = np.minimum(everywhere @ fitted(fold_c)[0], idle_mw.ravel())
    return np.asarray(leakage_mw.reshape(grid.shape), np.float32), Heat(reference_c, round(fold_c, 3))
