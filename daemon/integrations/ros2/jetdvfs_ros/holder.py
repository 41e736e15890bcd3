# SPDX-License-Identifier: Apache-2.0
"""A lifecycle node that holds clocks while it is active: ``ros2 run jetdvfs_ros holder``."""

from __future__ import annotations

from typing import Any

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.lifecycle import LifecycleNode

from .lease import NodeLease


class HolderNode(LifecycleNode):
    """Holds from activation to deactivation."""

    def __init__(self) -> None:
        super().__init__("jetdvfs")
        self.clocks = NodeLease(self)

    def on_activate(self, state: Any) -> Any:
        self.clocks.hold()
        return super().on_activate(state)

    def on_deactivate(self, state: Any) -> Any:
        self.clocks.release()
        return super().on_deactivate(state)

    def on_shutdown(self, state: Any) -> Any:
        self.clocks.release()
        return super().on_shutdown(state)


def main() -> None:
    rclpy.init()
    node = HolderNode()
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass  # an interrupt, or the launch file's signal at its end
    finally:
        node.clocks.destroy()
        node.destroy_node()
        rclpy.try_shutdown()
