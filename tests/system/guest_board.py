# SPDX-License-Identifier: Apache-2.0
"""Serves a guest's simulated board as plain files in the folder named; the guest's own Python runs this file alone.

The daemon waits half a second for a file, and FUSE may take longer in an emulation. Sensors move seldom: copying them into
files ten times a second would take half of the processor.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.profiles.twin.tree import folder

folder._REFRESH_S = 2.0
with serve(simulated_board("agx-xavier", 12), Path(sys.argv[1]), "folder"):
    Path("/run/board-is-ready").touch()
    signal.pause()
