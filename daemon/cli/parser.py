# SPDX-License-Identifier: Apache-2.0
"""What every verb's parser does besides: help that explains exit codes."""

from __future__ import annotations

import argparse
from typing import Any

from ..arguments import OneLineParser

EXIT_CODES = """exit codes:
  0  done
  2  wrong usage
  3  bad input (unreadable model, unknown operator, only a part of the network listed, wrong profile), or not permitted
  4  target not attainable
  5  the hardware refused or could not be verified
  6  no daemon"""


class Parser(OneLineParser):
    """A parser of the command line, or of one verb of it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
