# SPDX-License-Identifier: Apache-2.0
"""Words, tics and sentence lengths of all text that people read, against counts that may only fall.

    python tests/support/language.py [--lower]

Text is docstrings, comments, help and messages of the product, and the documents. Limits are in ``language.json`` next to this
file; ``--lower`` writes the present counts where they are lower. Rates and lengths are shown against their goals.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Path(__file__).with_suffix(".json")
PACKAGES = ("kernels", "profiles", "daemon")
DOCUMENTS = ("docs/*.md", "SECURITY.md")
#: Written at length, or generated: their words do not count as the documents' do, their tics do.
APART = ("CHANGELOG.md", "CONTRIBUTING.md", "docs/accuracy.md", "docs/boards.md")
TICS: Mapping[str, str] = {
    "what": r"what\b",
    "nobody": r"(?:nobody|somebody|everybody|anybody|whoever|whatever|whichever)\b",
    "others": r"others\b",
    "beside": r"beside\b",
    "stands": r"(?:stands?|stood)\b",
    "said": r"(?:is|are|was|were|be|been) said\b",
    "as of": r"as of\b",
    "be it": r"be (?:it|they)\b",
    "none": r"(?:there is|there are|are|is) none\b",
    "so many": r"so (?:many|much|long|often)\b",
}
OPENINGS = re.compile(r"(?:What|Whether|How|Where|Whatever)\b")
GOALS = {"what": 2.0, "nobody": 0.2}
LONGEST = {"mean": 18, "90%": 30}
WORDS = {"README": 700, "documents": 15_000, "docstrings": 60_000}
_WORD = re.compile(r"[^\W_]+(?:['’.,-][^\W_]+)*")
_CODE = re.compile(r"```.*?```|``[^`]+``|`[^`]+`", re.DOTALL)
_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\. ))|\s\|\s|\n(?= *\w+: )")
_LOGGED = {"debug", "info", "warning", "error", "exception"}
_SHOWN = {"help", "description", "epilog", "title", "usage"}


class Text(NamedTuple):
    """One piece of text and its kind."""

    kind: str
    text: str


def of_code(path: Path) -> Iterator[Text]:
    """Docstrings, comments, help and messages of a module."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from (Text("docstrings", found) for found in [ast.get_docstring(node)] if found)
            below = [one.value for one in node.body[1:] if isinstance(one, ast.Expr)]
            yield from (Text("docstrings", text) for text in map(_literal, below) if text)
        elif isinstance(node, ast.Call):
            yield from (Text("help", _literal(word.value)) for word in node.keywords if word.arg in _SHOWN)
            if isinstance(node.func, ast.Attribute) and node.func.attr in _LOGGED:
                yield from (Text("messages", _literal(argument)) for argument in node.args[:1])
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from (Text("messages", _literal(argument)) for argument in node.exc.args)
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT and not token.string.startswith(("# SPDX", "# type:", "# noqa", "#!")):
                yield Text("comments", token.string.lstrip("#: "))


def _literal(node: ast.AST) -> str:
    """Text of a string or an f-string; values in it count as a word."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) or "N" for part in node.values)
    if isinstance(node, ast.BinOp):
        return _literal(node.left) + _literal(node.right)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def texts(root: Path) -> Iterator[Text]:
    """All text of a tree."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            yield from of_code(path)
    yield Text("README", (root / "README.md").read_text(encoding="utf-8"))
    apart = {root / name for name in APART}
    for path in sorted({found for pattern in DOCUMENTS for found in root.glob(pattern)} - apart):
        yield Text("documents", path.read_text(encoding="utf-8"))
    yield from (Text("other documents", path.read_text(encoding="utf-8")) for path in sorted(apart) if path.exists())


class Measured(NamedTuple):
    """Words, tics, and words of each sentence of one kind of text."""

    words: int
    tics: Mapping[str, int]
    sentences: list[int]


def measure(pieces: list[str], *, openings: bool = False) -> Measured:
    """Count a kind of text, code as one word; ``openings`` also counts those that begin with a question word."""
    prose = [_CODE.sub(" N ", piece) for piece in pieces]
    tics = {name: sum(len(re.findall(rf"\b{tic}", one, re.IGNORECASE)) for one in prose) for name, tic in TICS.items()}
    if openings:
        tics["openings"] = sum(bool(OPENINGS.match(piece)) for piece in pieces)
    lengths = [len(_WORD.findall(part)) for one in prose for part in _END.split(one)]
    return Measured(sum(len(piece.split()) for piece in pieces), tics, [length for length in lengths if length > 2])


def measured(root: Path) -> dict[str, Measured]:
    """Figures of a tree by kind of text."""
    kinds: dict[str, list[str]] = {}
    for kind, text in texts(root):
        if text:
            kinds.setdefault(kind, []).append(text)
    return {kind: measure(pieces, openings=kind == "docstrings") for kind, pieces in kinds.items()}


def counts(figures: Mapping[str, Measured]) -> dict[str, dict[str, int]]:
    """Counts that may only fall."""
    held = {kind: ({"words": one.words} if kind in WORDS else {}) | dict(one.tics) for kind, one in figures.items()}
    return {kind: dict(sorted(tics.items())) for kind, tics in held.items()}


def risen(now: Mapping[str, Mapping[str, int]], limits: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Counts above their limits, a line each; a README and documents within their goals may grow."""

    def limit(kind: str, name: str) -> int:
        return max(limits.get(kind, {}).get(name, 0), WORDS.get(kind, 0) if name == "words" else 0)

    counted = ((kind, name, count) for kind, tics in now.items() for name, count in tics.items())
    over = ((kind, name, count) for kind, name, count in counted if count > limit(kind, name))
    return [f"{kind}, {name}: {count}, at most {limit(kind, name)}" for kind, name, count in over]


def table(figures: Mapping[str, Measured]) -> Iterator[str]:
    """Figures of each kind, and of all: words, tics per 1,000 words, and words a sentence, with their goals."""
    yield f"{'':17}{'words':>8}{'goal':>8}  " + "".join(f"{name:>8}" for name in (*TICS, *LONGEST))
    everything = [one for kind, one in figures.items() if kind != "other documents"]
    total = Measured(
        sum(one.words for one in everything),
        {name: sum(one.tics[name] for one in everything) for name in TICS},
        [length for one in everything for length in one.sentences],
    )
    for kind, one in (*figures.items(), ("all", total)):
        lengths = sorted(one.sentences) or [0]
        rates = "".join(f"{1000 * one.tics[name] / one.words:>8.2f}" for name in TICS)
        goal = f"{WORDS[kind]:,}" if kind in WORDS else ""
        yield f"{kind:17}{one.words:>8,}{goal:>8}  {rates}{mean(lengths):>8.1f}{lengths[9 * len(lengths) // 10]:>8}"
    goals = "".join(f"{(GOALS | LONGEST).get(name, ''):>8}" for name in (*TICS, *LONGEST))
    yield f"{'goal':17}{'':>16}  {goals}"


def main() -> int:
    figures = measured(ROOT)
    print("\n".join(table(figures)))
    now, limits = counts(figures), json.loads(LIMITS.read_text(encoding="utf-8")) if LIMITS.exists() else None
    if "--lower" in sys.argv[1:] or limits is None:
        least = {
            kind: {name: min(count, (limits or {}).get(kind, {}).get(name, count)) for name, count in tics.items()}
            for kind, tics in now.items()
        }
        LIMITS.write_text(json.dumps(least, indent=1) + "\n", encoding="utf-8")
        limits = least
    faults = risen(now, limits)
    for fault in faults:
        print(f"language: {fault}", file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
