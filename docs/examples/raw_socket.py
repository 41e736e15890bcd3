# SPDX-License-Identifier: Apache-2.0
"""The daemon's socket without a library, as from another language.

    python docs/examples/raw_socket.py CPU_KHZ GPU_HZ EMC_HZ

Each message is one JSON object and a zero byte. Methods are in ``docs/jetdvfs.varlink``; a connection's lease ends with it.
(``LoadModel`` takes the model file as a descriptor, by ``SCM_RIGHTS``.)
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any


def call(daemon: socket.socket, method: str, **parameters: Any) -> Any:
    daemon.sendall(json.dumps({"method": f"io.jetdvfs.{method}", "parameters": parameters}).encode() + b"\0")
    answer = b""
    while not answer.endswith(b"\0"):
        received = daemon.recv(65536)
        if not received:
            sys.exit("the daemon hung up")
        answer += received
    reply = json.loads(answer[:-1])
    if "error" in reply:
        sys.exit(f"{reply['error']}: {reply['parameters']}")
    return reply["parameters"]


wanted = dict(zip(("cpu_khz", "gpu_hz", "emc_hz"), map(int, sys.argv[1:4]), strict=True))
with socket.socket(socket.AF_UNIX) as daemon:
    daemon.connect(os.environ.get("JETDVFS_SOCKET", "/run/jetdvfs/jetdvfs.sock"))
    print(call(daemon, "Status")["status"]["title"])
    held = call(daemon, "Hold", configuration=wanted, reason="an example")
    print("in effect:", held["applied"]["effective"], "verified" if held["applied"]["verified"] else held["applied"]["notes"])
    call(daemon, "Release", lease=held["lease"])
