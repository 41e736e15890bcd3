# SPDX-License-Identifier: Apache-2.0
"""Power that was read on a warm die, as it were at the temperature that a profile's idle power is of.

A hot chip leaks more. What a profile says of that is added again wherever it serves a warm board, so it must not be in what the
profile is adapted to.
"""

from __future__ import annotations

from dataclasses import replace

from ....kernels.surface import Surface
from .board import Observed


def cooled(seen: Observed, expected: Surface) -> Observed:
    """An observation with its powers at the temperature of a surface; as it is where nobody knows how that depends on it.

    The board is taken to leak the share of its idle power that is expected.

    Args:
        expected: of any network, by the profile that is adapted.
    """
    if expected.heat is None or seen.die_c is None:
        return seen
    at = expected.grid.index(seen.configuration)
    idle_mw, leakage_mw = float(expected.idle_mw[at]), float(expected.leakage_mw[at])
    found_idle_mw, scale = seen.idle_mw, 1.0
    if found_idle_mw is not None and seen.idle_die_c is not None:
        scale = found_idle_mw / (idle_mw + leakage_mw * float(expected.heat.growth(seen.idle_die_c)))
        found_idle_mw = scale * idle_mw
    power_mw = seen.power_mw
    if power_mw is not None:
        power_mw -= scale * leakage_mw * float(expected.heat.growth(seen.die_c))
    return replace(seen, idle_mw=found_idle_mw, power_mw=power_mw)
