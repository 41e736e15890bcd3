# SPDX-License-Identifier: Apache-2.0
"""hwmon nodes by driver name, since their numbers follow the load order; and over-current events.

Over-current events cut CPU and GPU clocks without showing in any clock file. Orin and Thor publish the counters about every two
seconds (hwmon ``soctherm_oc``: 1 under-voltage, 2 average current, 3 instantaneous current).
"""

from __future__ import annotations

from typing import NamedTuple

from ..files import Files

_FULL_PWM = 255
_LEGACY = "/sys/devices/pwm-fan"
_NAME = "soctherm_oc"
_SUFFIX = "_event_cnt"
_CLASS = "/sys/class/hwmon/hwmon*"


def find_hwmon(files: Files, name: str) -> str | None:
    return next((node for node in files.glob(_CLASS) if files.find_text(f"{node}/name") == name), None)


def read_over_current(files: Files) -> dict[str, int]:
    """Count of each over-current event since boot, by name (``oc3``)."""
    node = find_hwmon(files, _NAME)
    if node is None:
        return {}
    counts = {name.removesuffix(_SUFFIX): files.find_int(f"{node}/{name}") for name in files.list_names(node) if _counts(name)}
    return {name: count for name, count in counts.items() if count is not None and count >= 0}


def _counts(name: str) -> bool:
    return name.startswith("oc") and name.endswith(_SUFFIX)


class Fan(NamedTuple):
    drive: float
    rpm: int | None


def read_fan(files: Files) -> Fan | None:
    """The fan as hwmon shows it since JetPack 5, or JetPack 4's driver."""
    node, tachometer = find_hwmon(files, "pwmfan"), find_hwmon(files, "pwm_tach")
    pwm = files.find_int(f"{node}/pwm1") if node else files.find_int(f"{_LEGACY}/cur_pwm")
    if pwm is None:
        return None
    if tachometer is not None:
        rpm = files.find_int(f"{tachometer}/rpm")
        return Fan(pwm / _FULL_PWM, files.find_int(f"{tachometer}/fan1_input") if rpm is None else rpm)
    return Fan(pwm / _FULL_PWM, files.find_int(f"{_LEGACY}/rpm_measured"))
