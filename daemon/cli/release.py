# SPDX-License-Identifier: Apache-2.0
"""End a lease: your own or, as root, any. ``jetdvfs status`` lists them.

example: jetdvfs release 1
"""

from __future__ import annotations

import argparse

from .. import arguments
from ..wire.client import Client
from .output import print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lease", metavar="ID", help="as shown by jetdvfs status")
    arguments.add_socket(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    with Client(args.socket) as client:
        client.release(args.lease)
    if args.json:
        print_json({"released": args.lease})
    return 0
