# SPDX-License-Identifier: Apache-2.0
"""Plays many scenarios, several side by side, and says what broke.

    make soak SEEDS=2000            # seeds 0 to 1999
    make soak SEED=17 SEEDS=1       # one again, told in full

As root it has a mount namespace of its own, so that disks can fail; without, those events do nothing, and the summary says so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from jetdvfs.tests.soak import boards
from jetdvfs.tests.soak.play import Outcome, Theatre
from jetdvfs.tests.soak.scenario import scenario
from jetdvfs.tests.soak.summary import Figures

_NAMESPACE = ("unshare", "--mount", "--propagation", "private")
_APART = "JETDVFS_SOAK_APART"
_CHUNK = 20


def main() -> int:
    parser = argparse.ArgumentParser(description="Plays seeded scenarios against the real daemon on simulated boards.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many daemons side by side")
    args = parser.parse_args()
    if missing := boards.obstacle():
        print(f"scenarios cannot be played here: {missing}", file=sys.stderr)
        return 77
    if (
        _APART not in os.environ
        and shutil.which("unshare")
        and subprocess.run([*_NAMESPACE, "true"], check=False).returncode == 0
    ):
        os.environ[_APART] = "1"
        os.execvp("unshare", [*_NAMESPACE, sys.executable, "-m", "jetdvfs.tests.soak.run", *sys.argv[1:]])
    small_disks = _APART in os.environ
    figures = Figures()
    began = time.monotonic()
    for done, outcome in enumerate(_outcomes(args.seed, args.seeds, args.jobs, small_disks), 1):
        figures.add(outcome)
        if outcome.troubles or args.seeds == 1:
            print(_told(outcome), flush=True)
        elapsed = time.monotonic() - began
        if done % _CHUNK == 0 or done == args.seeds:
            left = elapsed / done * (args.seeds - done)
            print(
                f"{done} of {args.seeds} scenarios, {figures.failed} failed, {left / 60:.1f} min left",
                file=sys.stderr,
                flush=True,
            )
    print(figures.text(time.monotonic() - began))
    if not small_disks:
        print("LEFT OUT: full and read-only disks: no mount namespace can be had here")
    return 1 if figures.failed else 0


def _outcomes(first: int, number: int, jobs: int, small_disks: bool) -> Iterator[Outcome]:
    seeds = list(range(first, first + number))
    chunks = [seeds[start : start + _CHUNK] for start in range(0, number, _CHUNK)]
    if jobs == 1 or len(chunks) == 1:
        yield from (outcome for chunk in chunks for outcome in _play(chunk, small_disks))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_played, chunk, small_disks) for chunk in chunks]):
            yield from future.result()


def _played(seeds: list[int], small_disks: bool) -> list[Outcome]:
    return list(_play(seeds, small_disks))


def _play(seeds: list[int], small_disks: bool) -> Iterator[Outcome]:
    with Theatre(small_disks=small_disks) as theatre:
        for seed in seeds:
            yield theatre.play(scenario(seed))


def _told(outcome: Outcome) -> str:
    troubles = "\n".join(f"    {text}" for text in outcome.troubles) or "    nothing: every promise was kept"
    told = "\n".join(f"    {text}" for text in outcome.told)
    log = "\n".join(f"    | {line}" for line in outcome.log.splitlines()[-80:])
    again = f"make soak SEED={outcome.seed} SEEDS=1"
    return (
        f"{'=' * 100}\n{scenario(outcome.seed).words()}\n\n  what broke:\n{troubles}\n\n  what happened:\n{told}\n\n"
        f"  the daemon's log:\n{log}\n\n  again: {again}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
