# SPDX-License-Identifier: Apache-2.0
"""Arguments of verbs that simulate a board."""

from __future__ import annotations

import argparse
from pathlib import Path

from ....daemon.arguments import folder, whole

BOARD = "agx-xavier"
"""Default simulated board."""


def add_simulated_board(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--board", default=BOARD, metavar="NAME", help=f"which board to simulate (default: {BOARD})")


def add_perturbed(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--perturbed",
        type=whole(0),
        default=0,
        metavar="N",
        help="simulate another silicon behind the same clocks: the Nth chip whose figures are changed at random (default: the "
        "board's own)",
    )


def add_tables(parser: argparse._ActionsContainer, tables: str) -> None:
    parser.add_argument("--data", type=folder, metavar="DIR", help=f"{tables}: their folder, or one anywhere above it")
    parser.add_argument(
        "--table", type=Path, action="append", default=[], metavar="FILE",
        help="mapping of a further table's columns (jetdvfs-lab table guess writes one)",
    )  # fmt: skip


def add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        default="auto",
        choices=("auto", "fuse", "folder"),
        help="how the simulated board's files are served (default: FUSE where it can be had)",
    )
