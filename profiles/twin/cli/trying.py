# SPDX-License-Identifier: Apache-2.0
"""`twin try`: a simulated board, the daemon on it and a shell that finds both, in one command.

Every verb works in the shell, or in the command after `--`, as on a board. All of it ends together. Values are simulated.

examples:
  jetdvfs twin try
  jetdvfs twin try --board orin-nano-8gb -- jetdvfs hold --config 1190.4,612,2133 -- jetdvfs status
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from ....daemon import arguments
from ....daemon.cli.children import ENDING, refused, run_command
from ...board import load_board
from ...bundle.finding import find_bundles, resolve_bundle
from .arguments import add_backend, add_simulated_board
from .demo import DemoBoard

_INTRODUCTION = """simulated {board}, with jetdvfsd on it (profile: {profile}); try:
  jetdvfs status
  jetdvfs hold MODEL --input SHAPE --target latency_ms=20 -- sleep 5
The board's files are in $JETDVFS_ROOT, the daemon answers on $JETDVFS_SOCKET; the end of this shell ends both."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [options] [-- CMD ...]"
    add_simulated_board(parser)
    parser.add_argument("--seed", type=arguments.whole(0), default=0, metavar="N", help="individual of this board (default: 0)")
    parser.add_argument("--profile", default="", metavar="NAME|DIR", help="the daemon's profile (default: BOARD-sim, if there)")
    add_backend(parser)


def run(args: argparse.Namespace) -> int:
    command = args.command or [os.environ.get("SHELL") or "/bin/sh"]
    if (code := refused(command[0], _tell)) is not None:
        return code
    load_board(args.board)  # one that is not there is refused before anything starts
    default = f"{args.board}-sim"
    profile = str(resolve_bundle(args.profile)) if args.profile else default if default in find_bundles() else ""
    with DemoBoard(args.board, args.seed, profile, args.backend) as stage:
        stage.start_daemon()
        os.environ.update(JETDVFS_SOCKET=str(stage.socket), JETDVFS_ROOT=str(stage.root))
        if not args.command:
            print(_INTRODUCTION.format(board=args.board, profile=args.profile or profile or "none"), flush=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        return run_command(command, before, _tell)


def _tell(text: str) -> None:
    print(f"jetdvfs twin try: {text}", file=sys.stderr, flush=True)
