# SPDX-License-Identifier: Apache-2.0
"""``jetdvfsd``: starts the resident daemon. Slow modules load once signals are handled."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .system.signals import Signals
from .worker.numerics import ONE_THREAD

if TYPE_CHECKING:
    import argparse


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code. An error at the start is one line on stderr."""
    signals = Signals()
    os.environ.update(ONE_THREAD)

    import asyncio
    import logging
    import warnings

    from .system.journal import TROUBLE, fields, log_handler

    args = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, handlers=[log_handler(sys.stderr)])
    # One line of the log each.
    warnings.formatwarning = lambda message, *_, **__: " ".join(str(message).split())
    logging.captureWarnings(True)

    from ..kernels.errors import KernelsError
    from ..profiles.errors import ProfilesError
    from .errors import DaemonError
    from .resident import Resident
    from .wire.protocol import one_line

    try:
        with Resident(args) as daemon:
            asyncio.run(daemon.serve(signals))
    except (DaemonError, KernelsError, ProfilesError) as error:
        log = logging.getLogger(__name__)
        log.critical("jetdvfsd: %s", one_line(error), extra=fields(TROUBLE, error=type(error).__name__))
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    from pathlib import Path

    from .. import __version__
    from . import arguments

    parser = arguments.OneLineParser(prog="jetdvfsd", description="Set a Jetson's clocks for the targets of applications.")
    parser.add_argument("--version", action="version", version=f"jetdvfsd {__version__}")
    arguments.add_root(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="default: /etc/jetdvfs/jetdvfsd.yaml, if there is one")
    arguments.add_socket(parser)
    arguments.add_state_dir(parser)
    arguments.add_runtime_dir(parser)
    parser.add_argument("--board", metavar="NAME", help="the board's description; default: detected")
    profile_help = (
        "the bundle to predict with; default: the first of this board; on the running system, none that was simulated"
    )
    parser.add_argument("--profile", metavar="NAME|DIR", help=profile_help)
    return parser


if __name__ == "__main__":
    sys.exit(main())
