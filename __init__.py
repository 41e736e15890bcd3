# SPDX-License-Identifier: Apache-2.0
"""jetdvfs: an on-device DVFS runtime for NVIDIA Jetson boards.

An application talks to the daemon through two names, which load nothing beyond the standard library::

    from jetdvfs import Client, qos

In a notebook, without a daemon, two more predict and plan; they load what they need when they are first used::

    surface = jetdvfs.load_profile("agx-xavier-sim").surface(jetdvfs.decompose("model.pt", "1x3x224x224"))
    surface.plan("latency_ms=20")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .daemon import qos as qos
    from .daemon.notebook import decompose as decompose
    from .daemon.notebook import load_profile as load_profile
    from .daemon.wire.client import Client as Client

__version__ = "1.0.0"
__all__ = ["Client", "__version__", "decompose", "load_profile", "qos"]

# What is loaded when it is first asked for: the module that has it.
_LAZY = {"Client": ".daemon.wire.client", "decompose": ".daemon.notebook", "load_profile": ".daemon.notebook"}


def __getattr__(name: str) -> Any:
    if name == "qos":
        return importlib.import_module(".daemon.qos", __name__)
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
