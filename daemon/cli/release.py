# SPDX-License-Identifier: Apache-2.0
"""Give up a lease: one's own, or, as root, anybody's. ``jetdvfs status`` lists them."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..client import Client

HELP = "give up a lease"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lease", metavar="ID", help="as shown by jetdvfs status")
    parser.add_argument("--socket", type=Path, metavar="PATH", help="default: $JETDVFS_SOCKET or /run/jetdvfs/jetdvfs.sock")


def run(args: argparse.Namespace) -> int:
    with Client(args.socket) as client:
        client.release(args.lease)
    return 0
