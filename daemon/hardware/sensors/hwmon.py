# SPDX-License-Identifier: Apache-2.0
"""hwmon nodes by their driver's name: their numbers follow the order in which drivers load."""

from __future__ import annotations

from ..files import Files

_CLASS = "/sys/class/hwmon/hwmon*"


def find_hwmon(files: Files, name: str) -> str | None:
    """The first node of this name."""
    return next((node for node in files.glob(_CLASS) if files.find_text(f"{node}/name") == name), None)
