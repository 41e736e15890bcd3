# SPDX-License-Identifier: Apache-2.0
"""Fan behind its PWM, 0 to 255: by hwmon since JetPack 5, and by JetPack 4's driver."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..attributes import Attribute, Link, Nodes, constant, refusal, whole_number

_FULL_PWM = 255
_FULL_RPM = 5000


def _pwm(text: str) -> int:
    value = whole_number(text)
    if value > _FULL_PWM:
        raise refusal(errno.EINVAL)
    return value


class SimulatedFan:
    """A fan.

    Args:
        pwm: at boot.
        curve: (degrees Celsius, PWM), rising; empty without control. It is a service's since JetPack 5 (nvfancontrol), the
            kernel's under JetPack 4.
    """

    def __init__(self, pwm: int, curve: Sequence[tuple[float, int]] = ()) -> None:
        self.pwm = pwm
        self.automatic = bool(curve)
        self._curve = tuple(curve)

    @property
    def rpm(self) -> int:
        return round(_FULL_RPM * self.pwm / _FULL_PWM)

    def follow(self, temperature_c: float) -> None:
        if self.automatic and self._curve:
            degrees, pwm = zip(*self._curve, strict=True)
            self.pwm = round(float(np.interp(temperature_c, degrees, pwm)))


def fan_files(fan: SimulatedFan, section: Mapping[str, Any]) -> Nodes:
    def set_pwm(text: str) -> None:
        fan.pwm = _pwm(text)

    return _hwmon_files(fan, section, set_pwm) if "hwmon" in section else _legacy_files(fan, str(section["legacy"]), set_pwm)


def _hwmon_files(fan: SimulatedFan, section: Mapping[str, Any], set_pwm: Callable[[str], None]) -> Nodes:
    """Files since JetPack 5: hwmon node, and node of the speed, if any."""
    hwmon, tachometer, enabled = str(section["hwmon"]), section.get("tachometer"), 1

    def set_enable(text: str) -> None:
        nonlocal enabled
        if (value := whole_number(text)) > 1:
            raise refusal(errno.EINVAL)
        enabled = value

    yield f"{hwmon}/name", constant("pwmfan")
    yield f"{hwmon}/pwm1", Attribute(lambda: fan.pwm, set_pwm)
    yield f"{hwmon}/pwm1_enable", Attribute(lambda: enabled, set_enable)
    yield f"/sys/class/hwmon/{posixpath.basename(hwmon)}", Link(hwmon)
    if tachometer:
        yield f"{tachometer}/name", constant("pwm_tach")
        yield f"{tachometer}/rpm", Attribute(lambda: fan.rpm)
        yield f"/sys/class/hwmon/{posixpath.basename(tachometer)}", Link(tachometer)


def _legacy_files(fan: SimulatedFan, folder: str, set_pwm: Callable[[str], None]) -> Nodes:
    """Files under JetPack 4: ``target_pwm`` drives the fan while ``temp_control`` is 0."""

    def set_control(text: str) -> None:
        fan.automatic = whole_number(text) != 0

    yield f"{folder}/target_pwm", Attribute(lambda: fan.pwm, set_pwm)
    yield f"{folder}/cur_pwm", Attribute(lambda: fan.pwm)
    yield f"{folder}/temp_control", Attribute(lambda: int(fan.automatic), set_control)
    yield f"{folder}/pwm_cap", constant(_FULL_PWM)
    yield f"{folder}/tach_enable", constant(1)
    yield f"{folder}/rpm_measured", Attribute(lambda: fan.rpm)
