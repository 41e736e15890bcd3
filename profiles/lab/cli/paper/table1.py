# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab paper table1``: inference times of a simulated board next to MIRAGE's."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from .....daemon.cli.output import print_json
from .....daemon.errors import TargetNotAttainable

MISSED = TargetNotAttainable.exit_code
"""Exit code if simulated boards are outside the tolerance."""


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    text = "compare inference times of the simulated board with MIRAGE's Table 1\n\nexample: jetdvfs-lab paper table1"
    verb("table1", text, table_1)


def table_1(args: argparse.Namespace) -> int:
    from ....reference import reference_network
    from ....twin.silicon.silicon import Silicon
    from ...paper.characterization import NODES
    from ...paper.published import KINDS, PAPER, TOLERANCE, measure

    if not args.json:
        version = Silicon().version
        print(f"simulated silicon {version} at top clocks, median of {NODES} nodes, fitted to MIRAGE (SEC '21), Table 1")
        print("times in ms; shares of the inference time in per cent, simulated/paper; all = every kernel on the GPU")
        titles = [_TITLES.get(kind, kind) for kind in KINDS]
        print(
            f"{'network':<19}{'T':>7}{'paper':>7}{'error':>8}{'host':>7}{'W':>6}{'all':>11}"
            + "".join(f"{title:>11}" for title in titles)
        )
    figures: list[dict[str, Any]] = []
    worst = 0.0
    for name, paper in PAPER.items():
        row = measure(reference_network(name))
        error = row.error(paper)
        worst = max(worst, abs(error))
        figures.append({"network": name, "simulated_ms": row.time_ms, "paper_ms": paper.time_ms, "error": error})
        if not args.json:
            shares = zip((row.all_kernels, *row.shares), (paper.all_kernels, *paper.shares), strict=True)
            print(
                f"{name:<19}{row.time_ms:>7.2f}{paper.time_ms:>7.2f}{error:>+8.1%}{row.host_ms:>7.2f}{row.power_w:>6.1f}"
                + "".join(f"{f'{ours:.1f}/{theirs:.1f}' if ours or theirs else '-':>11}" for ours, theirs in shares)
            )
    if args.json:
        print_json(figures)
    else:
        mean = sum(abs(one["error"]) for one in figures) / len(figures)
        print(f"error in the mean {mean:.1%}, at most {worst:.1%}; allowed {TOLERANCE:.0%}")
    return 0 if worst <= TOLERANCE else MISSED


_TITLES = {"batch_norm": "bnorm", "max_pool2d": "maxpool", "adaptive_avg_pool2d": "adpool"}
