# SPDX-License-Identifier: Apache-2.0
"""Write the Python reference from docstrings, with pdoc.

    python docs/reference.py [FOLDER]

FOLDER is ``build/docs`` by default, with ``index.html``.
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pdoc import doc, render

import jetdvfs
from jetdvfs.tests.support.references import FACES, ROLE, followed

DOCS = Path(__file__).resolve().parent


def everything_in(namespace: doc.Module | doc.Class) -> Iterator[doc.Doc[Any]]:
    yield namespace
    for member in namespace.members.values():
        if isinstance(member, doc.Class):
            yield from everything_in(member)
        elif not isinstance(member, doc.Module):
            yield member


def as_markdown(text: str, module: str) -> str:
    """Docstring for pdoc: full references, which become links, and no colons that announce code."""
    name = module.removeprefix("jetdvfs").lstrip(".")

    def full(found: re.Match[str]) -> str:
        return f"`{(name and followed(found.group(1), name)) or found.group(1).lstrip('~.')}`"

    return re.sub(r"^::$\n?|(?<=:):$", "", ROLE.sub(full, text), flags=re.MULTILINE)


def first_line(text: str) -> str:
    return text.partition("\n\n")[0].partition("::")[0].replace("\n", " ")


def main(folder: Path) -> None:
    for name in jetdvfs.__all__:
        setattr(jetdvfs, name, getattr(jetdvfs, name))  # they are loaded when asked for, which pdoc does not do
    names = ["jetdvfs", *(f"jetdvfs.{face}" for face in FACES)]
    pages = {name: doc.Module(importlib.import_module(name)) for name in names}
    for name, page in pages.items():
        for thing in everything_in(page):
            thing.docstring = as_markdown(thing.docstring, thing.modulename or name)
    listed = [f"- `{name}`: {first_line(page.docstring)}" for name, page in pages.items() if name != "jetdvfs"]
    pages["jetdvfs"].docstring += "\n".join(["\n\n## Modules to build on\n", *listed, "\n## All modules\n", "![](modules.svg)"])
    # Annotations that exist as text only, for type checkers, are shown as they stand.
    warnings.filterwarnings("ignore", "Error parsing type annotation|Failed to run TYPE_CHECKING code")
    render.configure(docformat="google", footer_text=f"jetdvfs {jetdvfs.__version__}")
    for name, page in pages.items():
        path = folder / f"{name.replace('.', '/')}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render.html_module(page, pages), encoding="utf-8")
    (folder / "index.html").write_text(render.html_index(pages), encoding="utf-8")
    (folder / "search.js").write_text(render.search_index(pages), encoding="utf-8")
    shutil.copy(DOCS / "modules.svg", folder)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS.parent / "build" / "docs"
    main(target)
    print(target / "index.html")
