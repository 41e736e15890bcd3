# SPDX-License-Identifier: Apache-2.0
"""Sources of the site that ``make docs`` builds: pages, their links, and the navigation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jetdvfs.docs.website import ONLINE, write_pages
from jetdvfs.tests.support.paths import DOCS

LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    write_pages(tmp_path)
    return tmp_path


def test_every_link_of_the_site_leads_to_a_file_of_it(pages: Path) -> None:
    broken = []
    for page in pages.rglob("*.md"):
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        targets = [link.partition("#")[0] for link in LINK.findall(text) if not link.startswith("http")]
        broken += [f"{page.name}: {target}" for target in targets if target and not (page.parent / target).exists()]
    assert not broken


def test_the_navigation_names_every_page(pages: Path) -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (DOCS / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(str(path.relative_to(pages)) for path in pages.rglob("*.md"))


def test_the_built_site_loads_nothing_from_the_network(tmp_path: Path) -> None:
    build = pytest.importorskip("mkdocs.commands.build", reason="needs mkdocs, as pip install '.[docs]' brings it")
    write_pages(tmp_path / "pages")
    config = pytest.importorskip("mkdocs.config").load_config(
        str(DOCS / "mkdocs.yml"), docs_dir=str(tmp_path / "pages"), site_dir=str(tmp_path / "site"), strict=False
    )
    build.build(config)
    text = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html"))
    assert set(re.findall(r'(?:src=|<link [^>]*href=)"(https?://[^"]+)', text)) <= {ONLINE}
