# SPDX-License-Identifier: Apache-2.0
"""Build the documentation as an offline site: pages with MkDocs, the Python reference with pdoc.

    python docs/website.py

The site is ``build/docs/index.html``; its sources are in ``build/site``, with links rewritten.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
#: Pages with another name on the site than in the repository.
RENAMED = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CHANGELOG.md": "changes.md",
    "daemon/integrations/ros2/README.md": "ros2.md",
}
#: The script that MkDocs Material would load from the network, for the search of pages that are read as files.
ONLINE = "https://unpkg.com/iframe-worker/shim"
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")


def copied() -> list[str]:
    kinds = (".md", ".svg", ".png", ".py", ".yaml", ".yml", ".json", ".varlink")
    parts = ("", "examples", "deploy/daemon", "deploy/grafana", "deploy/prometheus")
    below = [path for part in parts for path in (DOCS / part).iterdir()]
    files = [path for path in below if path.suffix in kinds or path.name == "Containerfile"]
    own = [path for path in files if path.suffix not in (".py", ".yml") or path.parent != DOCS]
    return sorted({*RENAMED, *(str(path.relative_to(ROOT)) for path in own)})


def place(path: str) -> str:
    return RENAMED.get(path) or path.removeprefix("docs/")


def rewritten(text: str, path: str, contents: list[str]) -> str:
    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[1]))
        return place(target) if target in contents else found[1]

    return LINK.sub(link, text)


def write_pages(folder: Path) -> None:
    contents = copied()
    for path in contents:
        target = folder / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".md"):
            text = (ROOT / path).read_text(encoding="utf-8")
            target.write_text(rewritten(text, path, contents), encoding="utf-8")
        else:
            shutil.copy(ROOT / path, target)


def main() -> None:
    from jetdvfs.docs import reference

    pages, site = ROOT / "build" / "site", ROOT / "build" / "docs"
    for folder in (pages, site):
        shutil.rmtree(folder, ignore_errors=True)
    write_pages(pages)
    reference.main(pages / "api")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--config-file", str(DOCS / "mkdocs.yml")]
    subprocess.run(command, check=True)
    shutil.copy(DOCS / "worker.js", site)
    for page in site.glob("*.html"):
        page.write_text(page.read_text(encoding="utf-8").replace(ONLINE, "worker.js"), encoding="utf-8")
    print(site / "index.html")


if __name__ == "__main__":
    main()
