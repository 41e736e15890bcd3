# SPDX-License-Identifier: Apache-2.0
"""What the resident daemon costs and how fast it answers, on a simulated board that this process serves.

    python tests/bench/service.py [--seconds 30]

Times are those of a client in turn, on the socket, in a process of its own. Beside those of the daemon stands a bare varlink
service in a third process that answers every call with nothing: what the protocol and this machine cost by themselves. A
processor's time is the daemon's alone, without what serving the simulated board costs this process. On plain files, a read
takes as long as the kernel's; FUSE asks this process for each.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path

import psutil

from jetdvfs.daemon.cli.measure import repeated
from jetdvfs.daemon.errors import NoDaemon
from jetdvfs.daemon.wire.client import Client
from jetdvfs.profiles.reference import reference_input, reference_model, reference_names
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon, served_board

ECHO = """
import asyncio, socket, sys
from msgspec import Raw
from jetdvfs.daemon.wire.interface import Interface, method
from jetdvfs.daemon.wire.serving.server import Server

class Echo:
    interface = Interface("io.jetdvfs", "", (method("Status", "", {}, {"status": Raw}),), {})
    async def call(self, session, method, parameters, attached):
        return {"status": {}}
    def closed(self, session):
        pass

async def main():
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        Server("0").listen(listener, Echo())
        await asyncio.Event().wait()

asyncio.run(main())
"""


def milliseconds(call: Callable[[], object], times: int) -> list[float]:
    """How long each of so many calls takes, from the shortest to the longest."""
    took = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        took.append(1e3 * (time.perf_counter() - started))
    return sorted(took)


def share(took: list[float], part: float) -> float:
    return took[min(len(took) - 1, int(part * len(took)))]


def cpu_percent(pid: int, seconds: float) -> float:
    """How much of a core a process takes."""

    def spent() -> float:
        threads = Path(f"/proc/{pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    before, started = spent(), time.monotonic()
    time.sleep(seconds)
    return 100 * (spent() - before) / (time.monotonic() - started)


@contextmanager
def echo(path: Path) -> Iterator[Client]:
    """A service that answers with nothing."""
    process = subprocess.Popen([sys.executable, "-c", ECHO, str(path)], cwd="/")
    try:
        while True:
            try:
                client = Client(path)
                break
            except NoDaemon:
                time.sleep(0.02)
        with client:
            yield client
    finally:
        process.kill()
        process.wait()


def ready_ms(board: Board, folder: Path) -> float:
    """From starting the program to its READY=1."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        started = time.perf_counter()
        with Daemon(board, folder, env={"NOTIFY_SOCKET": str(folder / "notify")}):
            while b"READY=1" not in manager.recv(4096):
                pass
            return 1e3 * (time.perf_counter() - started)


def python_ms() -> float:
    """Starting Python and loading NumPy, which every start of the daemon has in it."""
    command = [sys.executable, "-c", "import numpy"]
    return statistics.median(milliseconds(lambda: subprocess.run(command, check=True, stderr=subprocess.DEVNULL), 5))


@contextmanager
def frames(daemon: Daemon, leases: int, fps: float) -> Iterator[None]:
    """Applications that hold clocks and report a frame each time."""
    with ExitStack() as stack:
        held = [stack.enter_context(stack.enter_context(daemon.client()).hold(configuration=LOW)) for _ in range(leases)]

        def report() -> None:
            for lease in held:
                lease.report(12.5)

        with repeated(report, 1 / fps):
            yield


def clocks_back_ms(board: Board, daemon: Daemon, times: int) -> list[float]:
    """From the moment at which a client that held clocks is killed until they are back."""
    program = f"import sys, time; from jetdvfs import Client; lease = Client(sys.argv[1]).hold(configuration={tuple(LOW)})"
    program += "; print(flush=True); time.sleep(60)"
    found, took = board.settings(), []
    for _ in range(times):
        holder = subprocess.Popen([sys.executable, "-c", program, str(daemon.socket)], stdout=subprocess.PIPE)
        assert holder.stdout is not None
        holder.stdout.readline()
        os.kill(holder.pid, signal.SIGKILL)
        started = time.perf_counter()
        while board.settings() != found:
            time.sleep(0.001)
        took.append(1e3 * (time.perf_counter() - started))
        holder.wait()
        holder.stdout.close()
    return sorted(took)


def answers(address: Path, folder: Path) -> None:
    """Print how fast the daemon answers; to be run in a process that has nothing else to do."""
    with Client(address) as client, echo(folder / "echo") as bare:
        name = next(iter(reference_names()))
        network = client.load(reference_model(name), [str(reference_input(name))])
        client.plan(network, "min-energy", fps=30)
        nothing = milliseconds(bare.status, 5000)
        status = milliseconds(client.status, 5000)
        plan = milliseconds(lambda: client.plan(network, "min-energy", fps=30), 5000)
        anew = [milliseconds(lambda: client.plan(network, f"latency_ms={20 + n / 100}"), 1)[0] for n in range(300)]  # noqa: B023
        held = milliseconds(lambda: client.hold(configuration=LOW).release(), 30)
    per_s, bare_per_s = 1e3 / statistics.fmean(status), 1e3 / statistics.fmean(nothing)
    print(
        f"status: {per_s:.0f} a second; {bare_per_s / per_s:.2f} times as long as an empty answer ({bare_per_s:.0f} a second)"
    )
    ratio = share(plan, 0.5) / share(nothing, 0.5)
    again = f"p50 {share(plan, 0.5):.2f} ms, p99 {share(plan, 0.99):.2f} ms"
    print(f"plan made before: {again}; p50 {ratio:.1f} times an empty answer's")
    print(f"plan made anew: p50 {share(sorted(anew), 0.5):.2f} ms, p99 {share(sorted(anew), 0.99):.2f} ms")
    print(f"hold and release: median {share(held, 0.5):.0f} ms", flush=True)


def costs(board: Board, folder: Path, seconds: float) -> None:
    """Print what the daemon takes while nothing is asked of it, and while three leases report frames."""
    with Daemon(board, folder) as daemon:
        with daemon.client() as client:
            for reference in reference_names():
                client.predict(client.load(reference_model(reference), [str(reference_input(reference))]))
            resident = psutil.Process(daemon.process.pid).memory_info().rss / (1 << 20)
        print(f"ten networks loaded and predicted: {resident:.1f} MB")
        time.sleep(6)  # until nobody looks any more
        print(f"without a lease: {cpu_percent(daemon.process.pid, seconds):.2f} % of a core")
        with frames(daemon, 3, 30):
            time.sleep(12)  # until all has stayed as it was set for a while
            print(f"three leases at 30 frames per second: {cpu_percent(daemon.process.pid, seconds):.2f} % of a core")
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
            apart.submit(answers, daemon.socket, folder).result()
        ends(board, daemon)


def ends(board: Board, daemon: Daemon) -> None:
    """Print how soon what a dead client held is given back."""
    back = clocks_back_ms(board, daemon, 11)
    print(f"clocks back after a client was killed: median {share(back, 0.5):.0f} ms, at most {back[-1]:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="for how long a processor's time is counted")
    seconds = parser.parse_args().seconds
    for backend, title in (("folder", "plain files"), ("fuse", "FUSE")):
        if backend == "fuse" and fuse.missing():
            continue
        print(f"\na board of {title}")
        with tempfile.TemporaryDirectory(prefix="jetdvfs-") as name, served_board(Path(name) / "root", backend) as board:
            folder = Path(name)
            starts = []
            for attempt in range(5):
                (folder / f"start{attempt}").mkdir()
                starts.append(ready_ms(board, folder / f"start{attempt}"))
            ready, python = statistics.median(starts), python_ms()
            print(
                f"ready after {ready:.0f} ms, {ready / python:.1f} times as long as Python with NumPy takes ({python:.0f} ms)"
            )
            costs(board, folder, seconds)


if __name__ == "__main__":
    main()
