# SPDX-License-Identifier: Apache-2.0
"""A stand-in for rclpy: as much of nodes, and as they are called, as jetdvfs_ros needs. No ROS."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any


class Time:
    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds

    def to_msg(self) -> SimpleNamespace:
        return SimpleNamespace(sec=self.nanoseconds // 10**9, nanosec=self.nanoseconds % 10**9)


class Clock:
    def now(self) -> Time:
        return Time(time.time_ns())


class Node:
    def __init__(self, name: str) -> None:
        self.name = name
        self.parameters: dict[str, Any] = {}
        self.services: dict[str, Any] = {}
        self.published: list[Any] = []
        self.warnings: list[str] = []

    def declare_parameter(self, name: str, value: Any) -> None:
        self.parameters.setdefault(name, value)

    def get_parameter(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(value=self.parameters[name])

    def create_service(self, kind: Any, name: str, callback: Any) -> str:
        self.services[name] = (kind, callback)
        return name

    def destroy_service(self, service: str) -> None:
        del self.services[service]

    def create_publisher(self, kind: Any, topic: str, depth: int) -> SimpleNamespace:
        return SimpleNamespace(publish=self.published.append)

    def create_timer(self, period_s: float, callback: Any) -> Any:
        return callback

    def destroy_timer(self, timer: Any) -> None:
        """Nothing runs."""

    def get_logger(self) -> SimpleNamespace:
        return SimpleNamespace(warning=self.warnings.append)

    def get_clock(self) -> Clock:
        return Clock()

    def get_name(self) -> str:
        return self.name

    def get_fully_qualified_name(self) -> str:
        return f"/{self.name}"

    def call(self, service: str) -> Any:
        """What a caller of one of its services is answered."""
        kind, callback = self.services[service]
        return callback(kind.Request(), kind.Response())
