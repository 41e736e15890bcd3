# SPDX-License-Identifier: Apache-2.0
"""jetdvfs: an on-device DVFS runtime for NVIDIA Jetson boards.

An application talks to the daemon through the two names exported here, which load nothing beyond the standard library::

    from jetdvfs import Client, qos
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .daemon import qos as qos
    from .daemon.wire.client import Client as Client

__version__ = "0.1.0"
__all__ = ["Client", "__version__", "qos"]


def __getattr__(name: str) -> Any:
    if name == "Client":
        return importlib.import_module(".daemon.wire.client", __name__).Client
    if name == "qos":
        return importlib.import_module(".daemon.qos", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
