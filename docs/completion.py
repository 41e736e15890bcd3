# SPDX-License-Identifier: Apache-2.0
"""Write shell completion of ``jetdvfs`` and ``jetdvfsd`` for bash, zsh and fish, with shtab.

    python docs/completion.py FOLDER

FOLDER has the layout of ``/usr/share``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import shtab

from jetdvfs.daemon import service
from jetdvfs.daemon.cli.verbs import JETDVFS, module_of, parser_with
from jetdvfs.daemon.planning import targets
from jetdvfs.profiles.board import list_boards
from jetdvfs.profiles.bundle.finding import SHIPPED, find_bundles

PLACES = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/site-functions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}
#: Shipped profiles, and installed ones at completion time, without the cost of starting Python.
PROFILES = (
    f"printf '%s\\n' {' '.join(find_bundles([SHIPPED]))}; find ~/.local/share/jetdvfs/bundles /var/lib/jetdvfs/bundles "
    + ("-mindepth 1 -maxdepth 1 -printf '%f\\n' 2>/dev/null")
)


def arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from arguments(sub)


def complete(parser: argparse.ArgumentParser, shell: str) -> str:
    for action in arguments(parser):
        metavar = str(action.metavar)
        if action.dest == "board" or (action.dest, metavar) == ("name", "NAME"):
            action.choices = list_boards()
        elif "--target" in action.option_strings:
            action.choices = [str(target.example()) for target in targets.target_classes()]
        elif action.dest == "profile":
            action.complete = shtab.cmd(PROFILES)  # type: ignore[attr-defined]
        elif metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif metavar in ("MODEL", "PATH") or metavar.startswith("FILE"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))


def main(folder: Path) -> None:
    for shell, place in PLACES.items():
        for program in ("jetdvfs", "jetdvfsd"):
            verbs = {name: module_of(name) for name in JETDVFS.verbs}
            parser = service._parser() if program == "jetdvfsd" else parser_with(JETDVFS, verbs)[0]
            path = folder / place.format(program)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(complete(parser, shell), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
