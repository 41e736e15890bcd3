# SPDX-License-Identifier: Apache-2.0
"""Modules that load at their first use, so that the daemon starts, and short commands end, without them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Proxy of a module of this name. Safe in several threads: the import system's lock makes each wait for it."""

    def __getattr__(self, name: str) -> Any:
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        return getattr(module, name)


numpy = LazyModule("numpy")
