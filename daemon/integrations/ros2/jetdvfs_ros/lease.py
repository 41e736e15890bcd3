# SPDX-License-Identifier: Apache-2.0
"""A lease of a ROS 2 node, by its parameters, services and lifecycle.

::

    class Detector(LifecycleNode):
        def __init__(self):
            super().__init__("detector")
            self.clocks = NodeLease(self)               # declares the parameters, offers ~/hold and ~/release

        def on_activate(self, state):
            self.clocks.hold()
            return super().on_activate(state)

        def on_deactivate(self, state):
            self.clocks.release()
            return super().on_deactivate(state)

        def on_image(self, message):
            boxes = self.infer(message).cpu()           # waits for the GPU
            self.clocks.frame(message.header.stamp)     # since the image was taken
            ...

Parameters: ``jetdvfs.model``, ``jetdvfs.inputs`` (as on the command line), ``jetdvfs.target``, ``jetdvfs.fps`` (0: none),
``jetdvfs.socket`` (empty: the daemon's own). Without a daemon the node runs the same.
"""

from __future__ import annotations

from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from std_srvs.srv import Trigger

from jetdvfs import qos

_EVERY_S = 1.0


class NodeLease:
    """Clocks of one ``rclpy`` node, with or without a lifecycle; ``hold`` replaces ``jetdvfs.qos.hold``."""

    def __init__(self, node: Any, hold: Any = qos.hold) -> None:
        self._node, self._hold = node, hold
        self._lease: Any = None
        self._frames = 0
        self._last_ms = 0.0
        for name, value in (("model", ""), ("inputs", [""]), ("target", "min-energy"), ("fps", 0.0), ("socket", "")):
            node.declare_parameter(f"jetdvfs.{name}", value)
        self._services = [
            node.create_service(Trigger, "~/hold", self._on_hold),
            node.create_service(Trigger, "~/release", self._on_release),
        ]
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._timer = node.create_timer(_EVERY_S, self.diagnose)

    @property
    def held(self) -> bool:
        return self._lease is not None and bool(self._lease.held)

    def hold(self) -> str:
        """Take the lease by the present parameters, replacing an earlier one; return its state in words."""
        self.release()
        inputs = [text for text in self._said("inputs") if text]
        lease = self._hold(
            self._said("model") or None,
            inputs,
            self._said("target"),
            fps=self._said("fps") or None,
            socket_path=self._said("socket") or None,
            reason=f"ROS 2 node {self._node.get_fully_qualified_name()}",
            app=self._node.get_name(),
            required=False,
            on_change=self._node.get_logger().warning,
        )
        lease.__enter__()
        self._lease = lease
        return self._stands()

    def release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.__exit__(None, None, None)

    def frame(self, stamp: Any) -> None:
        """Report a frame that is done now, by the stamp of the message that it began with. Never waits."""
        now = self._node.get_clock().now().nanoseconds
        self.report((now - (stamp.sec * 1_000_000_000 + stamp.nanosec)) / 1e6)

    def report(self, latency_ms: float) -> None:
        if latency_ms >= 0:
            self._frames += 1
            self._last_ms = latency_ms
            if self._lease is not None:
                self._lease.report(latency_ms)

    def diagnose(self) -> None:
        status = DiagnosticStatus()
        status.name = f"{self._node.get_name()}: clocks"
        status.hardware_id = "jetdvfs"
        status.level = DiagnosticStatus.OK if self.held or self._lease is None else DiagnosticStatus.WARN
        status.message = self._stands()
        values = {"frames": self._frames, "last_ms": f"{self._last_ms:.3f}"}
        if self.held and self._lease.applied:
            values |= self._lease.applied["effective"]
        status.values = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
        message = DiagnosticArray()
        message.header.stamp = self._node.get_clock().now().to_msg()
        message.status = [status]
        self._publisher.publish(message)

    def destroy(self) -> None:
        self.release()
        self._node.destroy_timer(self._timer)
        for service in self._services:
            self._node.destroy_service(service)

    def _said(self, name: str) -> Any:
        return self._node.get_parameter(f"jetdvfs.{name}").value

    def _stands(self) -> str:
        if self._lease is None:
            return "not held"
        return (
            f"held for {self._said('target')}"
            if self.held
            else f"not held: {self._lease.error or 'no answer from the daemon yet'}"
        )

    def _on_hold(self, _: Any, response: Any) -> Any:
        try:
            response.message = self.hold()
            response.success = self.held
        except Exception as error:  # a service must always answer
            response.success, response.message = False, str(error)
        return response

    def _on_release(self, _: Any, response: Any) -> Any:
        response.success, response.message = self._lease is not None, self._stands()
        self.release()
        return response
