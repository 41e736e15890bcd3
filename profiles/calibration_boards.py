# SPDX-License-Identifier: Apache-2.0
"""Which simulated boards are compared with measurements, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from . import calibration_agx_orin, calibration_orin_nano, calibration_tx2, calibration_xavier
from .calibration import Report
from .twin.silicon_chip import list_chips, load_chip

COMPARISONS: Mapping[str, Callable[[Path], Report]] = {
    part.BOARD: part.compare for part in (calibration_tx2, calibration_orin_nano, calibration_agx_orin, calibration_xavier)
}


def uncalibrated() -> dict[str, str]:
    """The simulated chips that are compared with nothing, and what their files say of that."""
    return {name: load_chip(name).calibrated_on for name in list_chips() if name not in COMPARISONS}
