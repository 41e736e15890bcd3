# SPDX-License-Identifier: Apache-2.0
"""A user's sweeps are done by one child, started while the model is read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from jetdvfs.daemon.worker import slots
from jetdvfs.daemon.worker.packing import packed_network, packed_surface
from jetdvfs.daemon.worker.workers import Workers
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.bundle.finding import resolve_bundle
from jetdvfs.profiles.reference import reference_network

NETWORKS = [reference_network(name) for name in ("squeezenet1_0", "resnet18")]
BUNDLE = resolve_bundle("agx-xavier-sim")
OWN = os.geteuid()

Readers = Callable[[], list[psutil.Process]]


class Sweeps:
    def __init__(self, folder: Path) -> None:
        self.folder, self.workers = folder, Workers()
        self.grid = load_bundle(BUNDLE, cache_dir=folder).manifest.grid

    async def sweep(self, network: Network, uid: int = OWN, bundle: Path = BUNDLE) -> bytes:
        _, payload = packed_network(network)
        return packed_surface(await self.workers.sweep(payload, bundle, self.folder, self.grid, "timeline", uid=uid, known={}))[
            1
        ]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No child has worked too long to be kept, however busy the machine is."""
    monkeypatch.setattr(slots, "_MOST_S", 600.0)


@asynccontextmanager
async def sweeps(folder: Path) -> AsyncIterator[Sweeps]:
    folder.chmod(0o755)
    made = Sweeps(folder)
    try:
        yield made
    finally:
        await made.workers.close()


def test_networks_of_one_user_are_swept_by_one_child_as_they_would_be_alone(tmp_path: Path, readers: Readers) -> None:
    async def run() -> None:
        async with sweeps(tmp_path) as one:
            found = [await one.sweep(NETWORKS[0])]
            (first,) = readers()
            found += [await one.sweep(NETWORKS[1]), await one.sweep(NETWORKS[0])]
            assert readers() == [first]
            cost = load_bundle(BUNDLE, cache_dir=tmp_path).cost
            assert found[:2] == [packed_surface(surface(network, cost))[1] for network in NETWORKS] and found[2] == found[0]
        assert not readers()

    asyncio.run(run())


def test_no_child_sweeps_for_two_users_or_for_a_profile_that_has_changed(tmp_path: Path, readers: Readers) -> None:
    copy = tmp_path / "profile"
    copy.mkdir()
    for file in BUNDLE.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    copy.chmod(0o755)

    async def run() -> None:
        async with sweeps(tmp_path) as one:
            await one.sweep(NETWORKS[0], bundle=copy)
            (first,) = readers()
            await one.sweep(NETWORKS[0], OWN + 1, bundle=copy)
            second = set(readers()) - {first}
            assert len(second) == 1
            manifest = copy / "manifest.json"
            manifest.write_text(manifest.read_text().replace('"sigma_energy": 0', '"sigma_energy": 1', 1))
            await one.sweep(NETWORKS[0], bundle=copy)
            assert set(readers()) - {first} - second

    asyncio.run(run())


def test_a_child_that_died_or_has_waited_for_long_is_replaced(
    tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with sweeps(tmp_path) as one:
            found = await one.sweep(NETWORKS[0])
            (first,) = readers()
            first.kill()
            with suppress(ChildProcessError):  # it may have been waited for
                while os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    await asyncio.sleep(0.01)
            assert await one.sweep(NETWORKS[0]) == found
            monkeypatch.setattr(one.workers._kept, "_idle_s", 0.2)
            await one.sweep(NETWORKS[0])
            while readers():
                await asyncio.sleep(0.05)
            assert await one.sweep(NETWORKS[0]) == found

    asyncio.run(asyncio.wait_for(run(), 60))


def test_the_child_of_a_sweep_to_come_starts_before_and_waits_however_long_its_model_is_read(
    tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with sweeps(tmp_path) as one:
            monkeypatch.setattr(one.workers._kept, "_idle_s", 0.2)
            with one.workers.expected_sweep(BUNDLE, tmp_path, OWN, {}), one.workers.expected_sweep(BUNDLE, tmp_path, OWN, {}):
                while not readers():
                    await asyncio.sleep(0.01)
                (started,) = readers()
                await asyncio.sleep(0.5)
                await one.sweep(NETWORKS[0])
                assert readers() == [started]
            while readers():
                await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_child_that_has_worked_long_is_not_kept(tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_MOST_S", 0.0)  # its limit of processor time is for all its jobs

    async def run() -> None:
        async with sweeps(tmp_path) as one:
            await one.sweep(NETWORKS[0])
            assert not readers()

    asyncio.run(run())
