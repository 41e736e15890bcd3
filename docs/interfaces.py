# SPDX-License-Identifier: Apache-2.0
"""Writes ``docs/jetdvfs.varlink`` and ``docs/admin.varlink``.

    python docs/interfaces.py

They are the interfaces of ``daemon/wire/calls.py`` in varlink's language, as the daemon describes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from jetdvfs.daemon.wire.calls import ADMIN, PUBLIC
from jetdvfs.daemon.wire.definition import definition

FOLDER = Path(__file__).resolve().parent
#: The daemon gives lists of its own; they change without a change of the interface.
LISTS = {"targets": "as listed by `jetdvfs plan --help`"}


def definitions() -> Mapping[Path, str]:
    """The text of each file."""
    interfaces = {"jetdvfs": PUBLIC, "admin": ADMIN}
    return {FOLDER / f"{name}.varlink": definition(replace(one, lists=LISTS)) for name, one in interfaces.items()}


if __name__ == "__main__":
    for path, text in definitions().items():
        path.write_text(text, encoding="utf-8")
