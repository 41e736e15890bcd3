# SPDX-License-Identifier: Apache-2.0
"""What the starts of the daemon and of its workers consist of, with the share of each part.

    python tests/bench/starts.py [--tries 5] [--profile agx-xavier-sim]

Starts are those of new processes; each part is the shortest of the tries. A module counts for the time that it takes without
those that it loads (``python -X importtime``, which adds to it). As root a worker's confinement also changes its user.
"""

from __future__ import annotations

import argparse
import json
import lzma
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.bundle.finding import resolve_bundle

DAEMON = "import jetdvfs.daemon.service, jetdvfs.daemon.resident"
LIBRARIES = ("numpy", "msgspec", "yaml")
PARTS = ("kernels", "profiles", "daemon")
WORKER = """
import json, os, sys, time
began = time.perf_counter()
from jetdvfs.daemon.worker import landlock, main, sandbox, seccomp
took = {}
def timed(name, function):
    def call(*arguments):
        started = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            took[name] = time.perf_counter() - started
    return call
main._JOBS[sys.argv[1]](None, [])
for module in main._NEEDED_LATER:
    __import__(module)
took["imports"] = time.perf_counter() - began
landlock.restrict, seccomp.restrict = timed("Landlock", landlock.restrict), timed("filter of system calls", seccomp.restrict)
accounts = range(61_184, 61_440)
timed("confinement", lambda: sandbox.confine(accounts, main._ALLOWANCES[sys.argv[1]], keep={0, 1, 2}))()
took["other confinement"] = took.pop("confinement") - took["Landlock"] - took["filter of system calls"]
print(json.dumps(took))
"""


def took_s(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True, cwd="/")


def imports_s(program: str) -> dict[str, float]:
    """Seconds that a program's imports take, by origin."""
    found: Counter[str] = Counter()
    for line in python("-X", "importtime", "-c", program).stderr.splitlines():
        own, _, name = (part.strip() for part in line.removeprefix("import time:").split("|"))
        if own.isdecimal():
            first, second, *_ = (*name.split("."), "")
            of_ours = f"jetdvfs.{second}" if second in PARTS else "jetdvfs"
            found[first if first in LIBRARIES else of_ours if first == "jetdvfs" else "standard library"] += int(own)
    return {name: us / 1e6 for name, us in found.items()}


def worker_s(job: str) -> dict[str, float]:
    """Seconds that parts of a worker's start take in a process of its own."""
    found: dict[str, float] = json.loads(python("-c", WORKER, job).stdout)
    return found


def least(of: Callable[[], Mapping[str, float]], tries: int) -> dict[str, float]:
    found = [of() for _ in range(tries)]
    return {name: min(one.get(name, 0.0) for one in found) for name in found[0]}


def tables_s(profile: str) -> dict[str, float]:
    """Seconds that the models of a profile take from their compressed files, and from the tables made of them."""
    files = sorted(resolve_bundle(profile).glob("*.trees.xz"))
    with tempfile.TemporaryDirectory() as folder:
        first = took_s(lambda: load_bundle(profile, cache_dir=Path(folder)))
        again = took_s(lambda: load_bundle(profile, cache_dir=Path(folder)))
    inflated = took_s(lambda: [lzma.decompress(file.read_bytes()) for file in files])
    return {"decompression": inflated, "conversion to tables": first - again - inflated, "with tables": again}


def show(title: str, parts: Mapping[str, float]) -> None:
    whole = sum(parts.values())
    print(f"{title}: {1e3 * whole:.0f} ms")
    for name, seconds in sorted(parts.items(), key=lambda one: -one[1]):
        print(f"  {name:26}{1e3 * seconds:8.1f} ms{seconds / whole:7.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--profile", default="agx-xavier-sim")
    args = parser.parse_args()
    python("-c", DAEMON)  # compiled modules
    bare = least(lambda: {"Python itself": took_s(lambda: python("-S", "-c", "pass"))}, args.tries)
    show("the daemon's imports", bare | least(lambda: imports_s(DAEMON), args.tries))
    for job in ("decompose", "sweep"):
        show(f"a worker's start ({job})", bare | least(lambda job=job: worker_s(job), args.tries))  # type: ignore[misc]
    show(f"models of {args.profile}", least(lambda: tables_s(args.profile), min(args.tries, 3)))


if __name__ == "__main__":
    main()
