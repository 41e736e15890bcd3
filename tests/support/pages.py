# SPDX-License-Identifier: Apache-2.0
"""Sections of docs/integrate.md as a user follows them: the files they show, and the commands they have one type."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from jetdvfs.tests.support.paths import DOCS, ROOT

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"(?:/\*|#) (\S+\.\w+)(?: \*/)?\n")
INTEGRATIONS = ROOT / "daemon" / "integrations"


class Page:
    """A section followed in a folder: its files are written there, its commands run there one by one."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        self.commands: list[str] = []
        page = (DOCS / "integrate.md").read_text(encoding="utf-8")
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for kind, text in _BLOCK.findall(section):
            if kind == "console":
                lines = re.sub(r"\\\n\s*", "", text).splitlines()
                self.commands += [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
            elif named := _NAME.match(text):
                (folder / named[1]).write_text(text, encoding="utf-8")

    def run(self, command: str, socket: Path | None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run one of its commands as after an installation: with the headers where compilers look."""
        assert command in self.commands, self.commands
        headers = ":".join(str(INTEGRATIONS / folder) for folder in ("c", "gstreamer"))
        env = {**os.environ, "CPATH": headers, "JETDVFS_SOCKET": str(socket or "/nowhere/jetdvfs.sock"), **env}
        return subprocess.run(
            command, shell=True, cwd=self.folder, env=env, capture_output=True, text=True, check=False, timeout=120
        )
