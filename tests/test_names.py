# SPDX-License-Identifier: Apache-2.0
"""Names of classes: one meaning each in the whole tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_no_class_name_means_two_things() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for package in ("daemon", "kernels", "profiles"):
        for path in sorted((ROOT / package).rglob("*.py")):
            names = {node.name for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ClassDef)}
            for name in names:
                places[name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
