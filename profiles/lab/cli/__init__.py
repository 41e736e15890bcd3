# SPDX-License-Identifier: Apache-2.0
"""Command ``jetdvfs-lab``; :mod:`.actions` lists its verbs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....daemon.cli import launch

if TYPE_CHECKING:
    from ....daemon.cli.verbs import Program


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; without ``argv``, end the process with it."""

    def program() -> Program:
        from .actions import LAB

        return LAB

    return launch("jetdvfs-lab", program, argv)
