# SPDX-License-Identifier: Apache-2.0
"""Weights that a method's code mentions, also in branches that do not run."""

from __future__ import annotations

import re

from ..operators.values import ScriptObject
from .source import ClassSource, SourceTree

_WORD = re.compile(r"\w+")


def mentioned(root: ScriptObject, method: str, sources: SourceTree) -> set[str]:
    """Names of attributes, with their modules' paths, whose last word is in the text of the method or of one that it calls."""
    words, reached, seen = {method}, [root], {id(root)}
    known = 0
    while known != len(words) + len(reached):
        known = len(words) + len(reached)
        for target in reached:
            owner = sources.find(target.type_name)
            methods = owner.methods if isinstance(owner, ClassSource) else {}
            for name in methods.keys() & words:
                words |= set(_WORD.findall(methods[name].text))
            for name in target.attributes.keys() & words:
                value = target.attributes[name]
                if isinstance(value, ScriptObject) and id(value) not in seen:
                    seen.add(id(value))
                    reached.append(value)
    attributes = {f"{target.path}.{name}".lstrip(".") for target in reached for name in target.attributes.keys() & words}
    return attributes | {f"CONSTANTS.{word}" for word in words}
