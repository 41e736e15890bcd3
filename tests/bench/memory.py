# SPDX-License-Identifier: Apache-2.0
"""How much memory the resident daemon and its workers take, with the ten reference networks loaded and predicted.

    python tests/bench/memory.py [--profile NAME|DIR]

A simulated board is served, the real daemon runs on it, and a client has every network decomposed and predicted. The daemon's
figure is what it holds at the end, a worker's the highest of all workers, both as resident set size; a second start on the same
state shows how long an answer takes whose surface is on disk. With models of MIRAGE's sizes (1,500 trees of depth 10), kept by
tests/bench/surfaces.py, one worker is run by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import tempfile
import threading
import time
from pathlib import Path

import psutil

from jetdvfs.daemon.wire.client import Client
from jetdvfs.daemon.worker.packing import packed_network
from jetdvfs.daemon.worker.workers import Workers
from jetdvfs.profiles.bundle.bundle import read_manifest
from jetdvfs.profiles.bundle.finding import resolve_bundle
from jetdvfs.profiles.reference import reference_input, reference_model, reference_names, reference_network
from jetdvfs.tests.bench.surfaces import large_bundle
from jetdvfs.tests.support.daemons.board_daemon import Daemon, served_board

TREES, DEPTH = 1500, 10


def resident_mb(pid: int) -> float:
    """The resident set size of a process in MB."""
    return float(psutil.Process(pid).memory_info().rss) / (1 << 20)


def peak_kb(pid: int) -> int:
    """The highest resident set size of a process so far in kB, which psutil does not tell; 0 for a process that is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])
    return 0


class Watch:
    """The highest resident set size of a process's children, while it is entered."""

    def __init__(self, pid: int) -> None:
        self.highest_kb: dict[str, int] = {}
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.002):
            for child in psutil.Process(self._pid).children():
                with contextlib.suppress(psutil.Error, ValueError):
                    arguments = child.cmdline()
                    job = arguments[arguments.index("jetdvfs.daemon.worker.main") + 1]
                    self.highest_kb[job] = max(self.highest_kb.get(job, 0), peak_kb(child.pid))


def predict_all(client: Client) -> list[float]:
    """Load and predict every network; milliseconds that each prediction took."""
    took = []
    for name in reference_names():
        network = client.load(reference_model(name), [str(reference_input(name))])
        started = time.perf_counter()
        client.predict(network)
        took.append(1e3 * (time.perf_counter() - started))
    return took


def with_a_daemon(profile: str, folder: Path) -> None:
    """Print the figures of a daemon that uses this profile."""
    with served_board(folder / "root", "auto", read_manifest(resolve_bundle(profile)).board) as board:
        daemon = Daemon(board, folder, "--profile", profile)
        try:
            with daemon.client() as client, Watch(daemon.process.pid) as watch:
                print(f"daemon, started: {resident_mb(daemon.process.pid):.1f} MB")
                took = predict_all(client)
                print(f"daemon, ten networks loaded and predicted: {resident_mb(daemon.process.pid):.1f} MB")
            for job, highest in sorted(watch.highest_kb.items()):
                print(f"worker ({job}), at most: {highest / 1024:.1f} MB")
            print(f"prediction by a worker: {min(took):.0f} to {max(took):.0f} ms")
            assert daemon.stop() == 0
            daemon.start()
            with daemon.client() as client:
                took = predict_all(client)
                print(f"prediction after a restart: {min(took):.1f} to {max(took):.1f} ms")
        finally:
            daemon.stop()


def at_mirages_sizes(profile: str, folder: Path) -> None:
    """Print the figures of one worker that sweeps the largest network with models of MIRAGE's sizes."""
    networks = [reference_network(name) for name in reference_names()]
    large, cache, size = large_bundle(profile, networks, TREES, DEPTH, folder)
    network = max(networks, key=lambda network: len(network.launches))
    _, payload = packed_network(network)
    with Watch(os.getpid()) as watch:
        started = time.perf_counter()
        asyncio.run(Workers().sweep(payload, large, cache, read_manifest(large).grid, "timeline"))
        seconds = time.perf_counter() - started
    print(
        f"{TREES} trees of depth {DEPTH} per model, {size / 1e6:.0f} MB of node tables: worker ({network.name}) at most "
        f"{max(watch.highest_kb.values()) / 1024:.1f} MB, {seconds:.2f} s from start to answer"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile")
    profile = parser.parse_args().profile or "agx-orin-64gb-sim"
    with tempfile.TemporaryDirectory(prefix="jetdvfs-") as folder:
        with_a_daemon(profile, Path(folder))
    with tempfile.TemporaryDirectory(prefix="jetdvfs-") as folder:
        at_mirages_sizes(profile, Path(folder))


if __name__ == "__main__":
    main()
