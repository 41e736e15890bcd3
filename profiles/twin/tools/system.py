# SPDX-License-Identifier: Apache-2.0
"""A board's files below a root, for its own programs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

TOOLS_FILE = "/run/jetdvfs-twin/tools"
REBOOT_FILE = "/run/jetdvfs-twin/reboot"
_FOREVER_S = 86400.0
_LOOK_S = 0.05


class ToolSystem:
    def __init__(self, root: str, tool: str) -> None:
        self.root = root.rstrip("/")
        self._tool = tool

    def place(self, path: str) -> Path:
        return Path(f"{self.root}{path}")

    def read(self, path: str) -> str:
        return self.place(path).read_text().strip("\n\0")

    def find(self, path: str) -> str | None:
        try:
            return self.read(path)
        except OSError:
            return None

    def write(self, path: str, value: object) -> None:
        with self.place(path).open("w") as file:
            file.write(f"{value}\n")

    def glob(self, pattern: str) -> list[str]:
        found = Path(f"{self.root}/").glob(pattern.lstrip("/"))
        return sorted((str(path)[len(self.root) :] for path in found), key=lambda path: (len(path), path))

    def misbehaves(self, how: str) -> bool:
        told = json.loads(self.find(TOOLS_FILE) or "{}")
        return how in told.get(self._tool, ())

    def gpu_busy(self) -> bool:
        told = json.loads(self.find(TOOLS_FILE) or "{}")
        return bool(told.get("gpu_busy"))

    def hang(self) -> None:
        sys.stdout.flush()
        time.sleep(_FOREVER_S)

    def wait_for_idle_gpu(self) -> None:
        while self.gpu_busy():
            time.sleep(_LOOK_S)
