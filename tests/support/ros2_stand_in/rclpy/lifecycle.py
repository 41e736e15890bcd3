# SPDX-License-Identifier: Apache-2.0
"""A stand-in for rclpy.lifecycle."""

from __future__ import annotations

from typing import Any

from . import Node


class LifecycleNode(Node):
    def on_activate(self, state: Any) -> str:
        return "SUCCESS"

    def on_deactivate(self, state: Any) -> str:
        return "SUCCESS"

    def on_shutdown(self, state: Any) -> str:
        return "SUCCESS"
