# SPDX-License-Identifier: Apache-2.0
"""Somebody else in a ROS 2 graph, with the real ``rclpy``: does what each line of its input says, and answers in JSON.

``configure``, ``activate``, ``deactivate``: the lifecycle of ``/jetdvfs``. ``hold``, ``release``: its services.
``diagnostics``: what it publishes next. ``frame``: what a node publishes that reported one by a message's stamp.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from jetdvfs_ros.lease import NodeLease
from lifecycle_msgs.srv import ChangeState
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_srvs.srv import Trigger

LONGEST_S = 60.0
TRANSITIONS = {"configure": 1, "activate": 3, "deactivate": 4}


class Caller(Node):
    def __init__(self) -> None:
        super().__init__("caller")
        self.seen: list[Any] = []
        self.create_subscription(DiagnosticArray, "/diagnostics", self.seen.append, 10)

    def ask(self, kind: Any, name: str, request: Any) -> Any:
        client = self.create_client(kind, f"/jetdvfs/{name}")
        assert client.wait_for_service(LONGEST_S), f"no service {name}"
        answer = client.call_async(request)
        rclpy.spin_until_future_complete(self, answer, timeout_sec=LONGEST_S)
        return answer.result()

    def diagnostics(self, of: str) -> dict[str, Any]:
        """What a node publishes next."""
        self.seen.clear()
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            rclpy.spin_once(self, timeout_sec=0.5)
            for status in [status for message in self.seen for status in message.status]:
                if status.name == f"{of}: clocks":
                    values = {item.key: item.value for item in status.values}
                    return {"level": status.level[0], "message": status.message, **values}
        raise AssertionError(f"no diagnostics of {of}")


def frame(caller: Caller) -> dict[str, Any]:
    """What is told of a node that reported one frame of 20 ms by the stamp of a message."""
    node = Node("detector")
    clocks = NodeLease(node)
    stamp = node.get_clock().now().to_msg()
    time.sleep(0.02)
    clocks.frame(stamp)
    node.create_timer(0.1, clocks.diagnose)
    spinning = threading.Thread(target=rclpy.spin, args=(node, SingleThreadedExecutor()), daemon=True)
    spinning.start()
    return caller.diagnostics("detector")


def main() -> None:
    rclpy.init(args=[])
    caller = Caller()
    for line in sys.stdin:
        word = line.strip()
        answer: Any
        if word in TRANSITIONS:
            request = ChangeState.Request()
            request.transition.id = TRANSITIONS[word]
            answer = caller.ask(ChangeState, "change_state", request).success
        elif word == "diagnostics":
            answer = caller.diagnostics("jetdvfs")
        elif word == "frame":
            answer = frame(caller)
        else:
            said = caller.ask(Trigger, word, Trigger.Request())
            answer = {"success": said.success, "message": said.message}
        print(json.dumps(answer), flush=True)
    rclpy.try_shutdown()


main()
