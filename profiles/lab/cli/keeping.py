# SPDX-License-Identifier: Apache-2.0
"""Where ``jetdvfs-lab collect`` keeps what it has measured until the record is written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..measure.keeping import forget_parts, kept_of_another, parts_folder

if TYPE_CHECKING:
    from ..measure.campaign import Campaign


@contextmanager
def kept_for(args: argparse.Namespace, campaign: Campaign) -> Iterator[Path]:
    """The folder of a campaign's parts: ``--folder``, or one beside ``--out`` that goes when the context ends without an error.

    What is there of other campaigns is told on standard error.
    """
    folder = parts_folder(args.out, args.folder)
    if told := kept_of_another(folder, campaign.digest, campaign.about):
        print(told, file=sys.stderr)
    yield folder
    if args.folder is None:
        forget_parts(folder, campaign.digest)
