# SPDX-License-Identifier: Apache-2.0
"""Write the daemon's varlink interfaces.

    python docs/interfaces.py

``daemon/wire/calls.py`` becomes ``docs/jetdvfs.varlink`` and ``docs/admin.varlink``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from jetdvfs.daemon.wire.calls import ADMIN, PUBLIC
from jetdvfs.daemon.wire.definition import definition

FOLDER = Path(__file__).resolve().parent
#: The daemon gives lists of its own; they change without a change of the interface.
LISTS = {"targets": "as listed by `jetdvfs plan --help`"}


def definitions() -> Mapping[Path, str]:
    interfaces = {"jetdvfs": PUBLIC, "admin": ADMIN}
    return {FOLDER / f"{name}.varlink": definition(replace(one, lists=LISTS)) for name, one in interfaces.items()}


if __name__ == "__main__":
    for path, text in definitions().items():
        path.write_text(text, encoding="utf-8")
