# SPDX-License-Identifier: Apache-2.0
"""The fan, read only: its speed belongs to the board's own fan service."""

from __future__ import annotations

from typing import NamedTuple

from ..files import Files
from .hwmon import find_hwmon

_FULL_PWM = 255
_LEGACY = "/sys/devices/pwm-fan"


class Fan(NamedTuple):
    """How hard the fan is driven, from 0 to 1, and how fast it turns; None where no tachometer tells."""

    drive: float
    rpm: int | None


def read_fan(files: Files) -> Fan | None:
    """The fan as hwmon shows it since JetPack 5, or as JetPack 4's driver does; None where there is none."""
    node, tachometer = find_hwmon(files, "pwmfan"), find_hwmon(files, "pwm_tach")
    pwm = files.find_int(f"{node}/pwm1") if node else files.find_int(f"{_LEGACY}/cur_pwm")
    if pwm is None:
        return None
    if tachometer is not None:
        rpm = files.find_int(f"{tachometer}/rpm")
        return Fan(pwm / _FULL_PWM, files.find_int(f"{tachometer}/fan1_input") if rpm is None else rpm)
    return Fan(pwm / _FULL_PWM, files.find_int(f"{_LEGACY}/rpm_measured"))
