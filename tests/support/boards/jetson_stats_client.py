# SPDX-License-Identifier: Apache-2.0
"""What the real jetson-stats client says of the board it is on, before and after it has asked for a power mode; as JSON.

python tests/support/boards/jetson_stats_client.py MODE
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jtop import JtopException, jtop

from jetdvfs.daemon.hardware.jetson_stats import SOCKET, connect
from jetdvfs.daemon.hardware.power_modes import changed_masks, find_mode, parse_modes

_LONGEST_S = 60.0


@contextlib.contextmanager
def service() -> Iterator[None]:
    """The service, once it listens."""
    with tempfile.TemporaryFile() as log:
        command, env = [sys.executable, "-m", "jtop", "--force"], {**os.environ, "JTOP_SERVICE": "True"}
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + _LONGEST_S
            while not SOCKET.exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            yield
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode())
            raise
        finally:
            process.terminate()
            process.wait(10)


def connected() -> Any:
    """A connection, once there is one: the socket is there before the service answers."""
    deadline = time.monotonic() + _LONGEST_S
    while True:
        client = jtop(interval=2.0)
        try:
            client.start()
        except JtopException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return contextlib.closing(client)


def observe(client: Any) -> dict[str, Any]:
    return {
        "board": dict(client.board["hardware"]),
        "cpu": [dict(core) for core in client.cpu["cpu"]],
        "gpu": {name: dict(gpu["freq"]) for name, gpu in client.gpu.items()},
        "emc": client.memory.get("EMC"),
        "rails_mw": {name: rail["power"] for name, rail in client.power["rail"].items()},
        "temperatures_c": {name: zone["temp"] for name, zone in client.temperature.items() if zone["online"]},
        "modes": list(client.nvpmodel.models),
        "mode": client.nvpmodel.name,
    }


def main(first: int, second: str) -> None:
    with connected() as client:
        client.ok()
        before = observe(client)
        client.nvpmodel = first
        deadline = time.monotonic() + _LONGEST_S
        while client.ok() and client.nvpmodel.id != first and time.monotonic() < deadline:
            pass
        client.ok()
        after = observe(client)
    # And through the product's own view of the service.
    modes = parse_modes(Path("/etc/nvpmodel.conf").read_text(), len(before["cpu"]))
    mode = find_mode(modes, second)
    masks = changed_masks(find_mode(modes, after["mode"]), mode)
    with connect(longest_s=_LONGEST_S) as stats:
        assert stats is not None
        module, switch = stats.module, stats.switch(mode, masks)
    product = {"module": module, "active": switch.active, "done": switch.done, "needs_reboot": switch.needs_reboot}
    print(json.dumps({"before": before, "after": after, "product": product}))


if __name__ == "__main__":
    with service():
        main(int(sys.argv[1]), sys.argv[2])
