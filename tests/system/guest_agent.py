# SPDX-License-Identifier: Apache-2.0
"""Runs the commands that the tests send to a guest; the guest's own Python runs this file alone."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

while not (ports := [*Path("/dev").glob("vport*p1")]):
    time.sleep(0.1)
with ports[0].open("r+b", buffering=0) as port:
    port.write(b"ready\n")
    received = b""
    while True:
        data = port.read(1 << 16)
        if not data:
            time.sleep(0.1)
            continue
        received += data
        while b"\n" in received:
            line, _, received = received.partition(b"\n")
            done = subprocess.run(json.loads(line), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            reply = memoryview(json.dumps([done.returncode, done.stdout, done.stderr]).encode() + b"\n")
            while reply:
                reply = reply[port.write(reply) :]
