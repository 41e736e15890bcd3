# SPDX-License-Identifier: Apache-2.0
"""Serve a simulated board on a directory: its sysfs, debugfs and device tree, with an application port next to it.

The daemon runs on it as on a board: `jetdvfsd --root DIR`. SIGINT and SIGTERM end and unmount it.

examples:
  jetdvfs twin try
  jetdvfs twin serve --board agx-orin-64gb --mount /tmp/orin
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import sys
from pathlib import Path

from ....daemon import arguments
from ....daemon.errors import UsageError
from ....kernels.engine.fusing import ENGINE_TYPES, engine_of
from . import demo, trying
from .arguments import add_backend, add_perturbed, add_simulated_board, add_tables

TAKES_COMMAND = True


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    serve = actions.add_parser("serve", help="serve a simulated board until interrupted", description=__doc__)
    add_simulated_board(serve)
    board, replay = arguments.titled(serve, "simulated board"), arguments.titled(serve, "replay")
    serve.add_argument("--mount", required=True, type=Path, metavar="DIR", help="an empty directory, or one to be made")
    board.add_argument(
        "--seed", type=arguments.whole(0), default=0, metavar="N", help="which individual of this board (default: 0)"
    )
    board.add_argument("--jetpack", default="", metavar="N", help="which JetPack it runs (default: its description's)")
    board.add_argument("--firmware", default="", metavar="NAME", help="which firmware it has (default: the present one)")
    board.add_argument("--mode", default="", metavar="NAME", help="which power mode it boots with (default: its description's)")
    board.add_argument(
        "--headless", action="store_true", help="no desktop has used the GPU: its clock's files are not there yet"
    )
    board.add_argument(
        "--battery-wh", type=float, metavar="WH", help="battery of this capacity in watt hours (default: the mains)"
    )
    board.add_argument(
        "--state", default="", metavar="NAME[,NAME]", help="a state in which users have found boards (docs/lab.md)"
    )
    add_perturbed(board)
    serve.add_argument(
        "--as",
        dest="compiled",
        choices=tuple(ENGINE_TYPES),
        default="",
        help="engines run applications' networks, built of the launches that the framework would make: in single precision, "
        "in half (engine-half) or in 8 bits (engine-int8); predict and plan --as say the same of the model (default: the "
        "framework does)",
    )
    replay.add_argument(
        "--replay", default="", metavar="PROGRAM", help="time and power of this program on a real board (--data)"
    )
    add_tables(replay, "measured tables for --replay")
    add_backend(serve)
    serve.add_argument("--bench", type=Path, metavar="PATH", help="socket of the application port (default: DIR.bench)")
    serve.add_argument("--json", action="store_true", help="say in JSON when ready")
    summary = "a simulated board, the daemon and a shell in one command"
    trying.configure(actions.add_parser("try", help=summary, description=trying.__doc__))
    demo.configure(actions.add_parser("demo", help="run the whole product on a simulated board", description=demo.__doc__))


def run(args: argparse.Namespace) -> int:
    if args.action == "try":
        return trying.run(args)
    if args.action == "demo":
        return demo.run(args)
    if args.command:
        raise UsageError("twin serve takes no command; jetdvfs twin try -- CMD runs one on a simulated board")
    ended = _told_of_the_end()
    from ...adapt.application import application_port
    from ..application_port import ApplicationPort
    from ..serve import serve
    from ..simulated_board import simulated_board
    from ..states import put_into

    if bool(args.replay) != bool(args.data) or (args.table and not args.data):
        raise UsageError("twin serve: --replay PROGRAM and --data DIR go together, and --table FILE with them")
    if args.replay and args.compiled:
        raise UsageError("twin serve: --as goes without --replay, whose frames have measured times")
    if args.battery_wh is not None and (args.replay or not 0 < args.battery_wh <= 1e5):
        raise UsageError("twin serve: --battery-wh takes more than 0 and at most 100000, and goes without --replay")
    if args.replay:
        from ..measured.tables import find_table
        from ..replayed_board import replay_board

        board = replay_board(find_table(args.data, args.board, args.replay, args.table))
    else:
        engine, dtype = engine_of(args.compiled)
        board = simulated_board(
            args.board,
            args.seed,
            jetpack=args.jetpack,
            firmware=args.firmware,
            mode=args.mode,
            desktop=not args.headless,
            perturbed=args.perturbed,
            engine=engine,
            dtype=dtype,
            battery_wh=args.battery_wh,
        )
    put_into(board, args.state)
    mount = args.mount.absolute()
    with serve(board, mount, args.backend) as serving:
        port = ApplicationPort(board, args.bench.absolute() if args.bench else application_port(mount))
        with contextlib.closing(port):
            if args.json:
                ready = {
                    "board": args.board,
                    "seed": args.seed,
                    "perturbed": args.perturbed,
                    "as": args.compiled or "eager",
                    "jetpack": board.description.jetpack,
                    "mount": str(mount),
                    "backend": serving.backend,
                    "bench": str(port.path),
                    "notice": serving.notice,
                    "simulated": True,
                }
                print(json.dumps(ready), flush=True)
            else:
                silicon = f"another silicon ({args.perturbed}), " if args.perturbed else ""
                engines = "with engines, " if args.compiled else ""
                notice = f" ({serving.notice})" if serving.notice else ""
                print(
                    f"simulated {args.board} with JetPack {board.description.jetpack}, individual {args.seed}, "
                    f"{silicon}{engines}on {mount} by {serving.backend}{notice}; "
                    f"application port {port.path}",
                    flush=True,
                )
            ended_by = signal.Signals(ended.recv(1)[0]).name
    print(f"twin serve: ended by {ended_by}", file=sys.stderr)
    return 0


def _told_of_the_end() -> socket.socket:
    """Socket that receives the number of SIGINT or SIGTERM from any thread.

    With Python handlers installed, libfuse installs none.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    return reader
