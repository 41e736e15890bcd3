# SPDX-License-Identifier: Apache-2.0
"""Diagnostics, with the members that their definitions have."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar


@dataclass
class KeyValue:
    key: str = ""
    value: str = ""


@dataclass
class DiagnosticStatus:
    OK: ClassVar[bytes] = b"\0"
    WARN: ClassVar[bytes] = b"\1"
    level: bytes = b"\0"
    name: str = ""
    message: str = ""
    hardware_id: str = ""
    values: list[KeyValue] = field(default_factory=list)


@dataclass
class DiagnosticArray:
    header: Any = field(default_factory=SimpleNamespace)
    status: list[DiagnosticStatus] = field(default_factory=list)
