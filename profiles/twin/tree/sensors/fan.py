# SPDX-License-Identifier: Apache-2.0
"""Fan behind its PWM, 0 to 255: by hwmon since JetPack 5, and by JetPack 4's driver."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..attributes import Attribute, Link, constant, refusal, whole_number

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


class HwmonFan:
    """Files of the fan since JetPack 5: hwmon node, and node of its speed, if any."""

    def __init__(self, fan: SimulatedFan, hwmon: str, tachometer: str | None = None) -> None:
        self._fan = fan
        self._enabled = True
        self._hwmon = hwmon
        self._tachometer = tachometer

    def _set_pwm(self, text: str) -> float:
        self._fan.pwm = _pwm(text)
        return 0.0

    def _set_enable(self, text: str) -> float:
        value = whole_number(text)
        if value > 1:
            raise refusal(errno.EINVAL)
        self._enabled = bool(value)
        return 0.0

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        yield f"{self._hwmon}/name", constant("pwmfan")
        yield f"{self._hwmon}/pwm1", Attribute(lambda: str(self._fan.pwm), self._set_pwm)
        yield f"{self._hwmon}/pwm1_enable", Attribute(lambda: str(int(self._enabled)), self._set_enable)
        yield f"/sys/class/hwmon/{posixpath.basename(self._hwmon)}", Link(self._hwmon)
        if self._tachometer:
            yield f"{self._tachometer}/name", constant("pwm_tach")
            yield f"{self._tachometer}/rpm", Attribute(lambda: str(self._fan.rpm))
            yield f"/sys/class/hwmon/{posixpath.basename(self._tachometer)}", Link(self._tachometer)


class LegacyFan:
    """Files of the fan under JetPack 4: ``target_pwm`` drives it while ``temp_control`` is 0."""

    def __init__(self, fan: SimulatedFan, folder: str) -> None:
        self._fan = fan
        self._folder = folder

    def _set_target(self, text: str) -> float:
        self._fan.pwm = _pwm(text)
        return 0.0

    def _set_control(self, text: str) -> float:
        self._fan.automatic = whole_number(text) != 0
        return 0.0

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        fan, folder = self._fan, self._folder
        yield f"{folder}/target_pwm", Attribute(lambda: str(fan.pwm), self._set_target)
        yield f"{folder}/cur_pwm", Attribute(lambda: str(fan.pwm))
        yield f"{folder}/temp_control", Attribute(lambda: str(int(fan.automatic)), self._set_control)
        yield f"{folder}/pwm_cap", constant(_FULL_PWM)
        yield f"{folder}/tach_enable", constant(1)
        yield f"{folder}/rpm_measured", Attribute(lambda: str(fan.rpm))


def fan_files(fan: SimulatedFan, section: Mapping[str, Any]) -> HwmonFan | LegacyFan:
    if "hwmon" in section:
        return HwmonFan(fan, str(section["hwmon"]), section.get("tachometer"))
    return LegacyFan(fan, str(section["legacy"]))
