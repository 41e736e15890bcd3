# SPDX-License-Identifier: Apache-2.0
"""Programs of a simulated board, their configuration, and the last mode."""

from __future__ import annotations

import errno
import json
import re
import sys
from collections.abc import Callable

from ...board import BoardDescription, ModeSet, PowerMode
from ..faults import Faults
from ..tree.attributes import Attribute, Link, Nodes, constant, refusal, whole_number
from .modes_file import THOR_MASK, render
from .nvpmodel import CONF, STATUS
from .system import REBOOT_FILE, TOOLS_FILE

PROGRAMS = {"nvpmodel": "/usr/sbin/nvpmodel", "jetson_clocks": "/usr/bin/jetson_clocks"}
_SCRIPT = """\
#!{python} -I
# Simulated: works on the board below whose root it lies.
import os.path
import sys
from jetdvfs.profiles.twin.tools.{name} import main
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0]))))
sys.exit(main(sys.argv[1:], root))
"""


class ToolFiles:
    """Programs and their files; ``reboots`` counts permitted ones."""

    def __init__(
        self, board: BoardDescription, modes: ModeSet, mode: PowerMode, faults: Faults, gpu_busy: Callable[[], bool]
    ) -> None:
        self.reboots = 0
        self._board = board
        self._modes = modes
        self._masks = mode.masks
        self._faults = faults
        self._gpu_busy = gpu_busy
        self._mode = mode.id

    def _set_status(self, text: str) -> None:
        told = re.match(r"pmode:(\d+)\b", text)
        if told is None:
            raise refusal(errno.EINVAL)
        self._mode = int(told[1])

    def _set_mask(self, text: str) -> None:
        # The mask acts when the GPU's firmware starts, which it has done.
        if whole_number(text) != self._masks["gpu_pg_mask"]:
            raise refusal(errno.EBUSY)

    def _reboot(self, text: str) -> None:
        self.reboots += 1

    def _told(self) -> str:
        tools = {tool: sorted(how) for tool, how in self._faults.tools.items()}
        return json.dumps({**tools, "gpu_busy": self._gpu_busy()})

    def nodes(self) -> Nodes:
        modes = self._modes
        conf = f"/etc/nvpmodel/{modes.conf}"
        yield conf, constant(render(self._board, modes))
        yield CONF, Link(conf)
        yield "/var/lib/nvpmodel/conf_file_path", constant(conf)
        yield STATUS, Attribute(lambda: f"pmode:{self._mode:04d}", self._set_status)
        for name, path in PROGRAMS.items():
            script = _SCRIPT.format(python=sys.executable, name=name).encode()
            yield path, Attribute(lambda script=script: script, mode=0o755, fixed=True)  # type: ignore[misc]
        if "gpu_pg_mask" in self._masks:
            yield THOR_MASK, Attribute(lambda: self._masks["gpu_pg_mask"], self._set_mask)
        yield TOOLS_FILE, Attribute(self._told)
        yield REBOOT_FILE, Attribute(None, self._reboot)
