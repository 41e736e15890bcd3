# SPDX-License-Identifier: Apache-2.0
"""Over-current events, which cut CPU and GPU clocks without showing in any clock file.

The counters (hwmon ``soctherm_oc``: 1 under-voltage, 2 average current, 3 instantaneous current) are published about every
two seconds. They are there on Orin and Thor.
"""

from __future__ import annotations

from ..files import Files
from .hwmon import find_hwmon

_NAME = "soctherm_oc"
_SUFFIX = "_event_cnt"


def read_over_current(files: Files) -> dict[str, int]:
    """How often each over-current event has happened since boot, by its name (``oc3``); empty where nothing counts them."""
    node = find_hwmon(files, _NAME)
    if node is None:
        return {}
    counts = {name.removesuffix(_SUFFIX): files.find_int(f"{node}/{name}") for name in files.list_names(node) if _counts(name)}
    return {name: count for name, count in counts.items() if count is not None and count >= 0}


def _counts(name: str) -> bool:
    return name.startswith("oc") and name.endswith(_SUFFIX)
