# SPDX-License-Identifier: Apache-2.0
"""Size of the product's parts, against their budgets.

    python -m jetdvfs.tests.support.sizes

Lines of Python, and modules that the resident daemon loads. A budget is a limit: a change that adds to a part that is at its
limit takes something out.
"""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

from jetdvfs.tests.support.imports import is_apart, modules


class Size(NamedTuple):
    """One figure.

    Attributes:
        budget: the most that it may be.
        goal: the size that the part should come to; the same as the budget if that is reached.
    """

    part: str
    measured: int
    budget: int
    goal: int


def sizes() -> list[Size]:
    """The figures of this tree."""
    lines = {name: path.read_text(encoding="utf-8").count("\n") for name, path in modules().items()}
    runtime = sum(count for name, count in lines.items() if not is_apart(name))
    daemon = sum(count for name, count in lines.items() if name.startswith("daemon"))
    loaded = resident()
    return [
        Size("lines installed on a robot", runtime, 53_360, 52_000),
        Size("lines of daemon/", daemon, 26_160, 23_000),
        Size("lines that jetdvfsd loads", sum(lines[name] for name in loaded), 16_770, 16_770),
        Size("modules that jetdvfsd loads", len(loaded), 132, 132),
        Size("lines in all", sum(lines.values()), 84_840, 78_000),
    ]


def resident() -> list[str]:
    """The product's modules that the resident daemon loads at its start."""
    program = "import sys, jetdvfs.daemon.service, jetdvfs.daemon.resident; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    return [name for name in modules() if f"jetdvfs.{name}" in done.stdout.split()]


def main() -> None:
    print(f"{'':30}{'measured':>10}{'budget':>10}{'goal':>10}")
    for size in sizes():
        print(f"{size.part:30}{size.measured:>10,}{size.budget:>10,}{size.goal:>10,}")


if __name__ == "__main__":
    main()
