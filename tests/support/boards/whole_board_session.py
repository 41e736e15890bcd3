# SPDX-License-Identifier: Apache-2.0
"""What somebody does on a Jetson on which jetdvfs is installed, and what comes of it; as JSON.

    python tests/support/boards/whole_board_session.py FOLDER

To be run by ``whole_board.py``: the product is told of no root, and takes this machine for a board.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CPU = "/sys/devices/system/cpu/cpufreq/policy0"
GPU = "/sys/class/devfreq/17000000.gv11b"
EMC = "/sys/kernel/debug/bpmp/debug/clk/emc"
SETTINGS = [
    f"{CPU}/scaling_governor",
    f"{CPU}/scaling_min_freq",
    f"{GPU}/governor",
    f"{GPU}/max_freq",
    f"{EMC}/mrq_rate_locked",
]
CLOCKS = [f"{CPU}/scaling_cur_freq", f"{GPU}/cur_freq", f"{EMC}/rate"]
_LONGEST_S = 20.0


def jetdvfs(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def settings() -> list[str]:
    return [Path(path).read_text().strip() for path in SETTINGS]


def main(folder: str) -> None:
    told: dict[str, Any] = {"found": settings()}
    daemon = subprocess.Popen([sys.executable, "-m", "jetdvfs.daemon.service", "--state-dir", folder, "--runtime-dir", folder])
    deadline = time.monotonic() + _LONGEST_S
    while jetdvfs("status", "--json").returncode and time.monotonic() < deadline:
        time.sleep(0.1)
    told["held"] = jetdvfs("hold", "--config", "1190400,675750000,1331200000", "--", "cat", *CLOCKS).stdout.split()[-3:]
    told["given_back"] = settings()
    told["mode"] = jetdvfs("board", "mode", "MODE_15W").stdout.strip()
    told["reboot"] = jetdvfs("board", "mode", "MODE_10W").stderr.strip()
    told["board"] = json.loads(jetdvfs("board", "--json").stdout)
    told["status"] = json.loads(jetdvfs("status", "--json").stdout)
    daemon.send_signal(signal.SIGTERM)
    told["ended"] = daemon.wait(_LONGEST_S)
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
