# SPDX-License-Identifier: Apache-2.0
"""Networks and their surfaces in the daemon: by what it knows of them itself, whatever becomes of the cache."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from msgspec.structs import asdict, replace

from jetdvfs.daemon.errors import InputError
from jetdvfs.daemon.profile import Profile, find_profile
from jetdvfs.daemon.surfaces import SurfaceRequest, Surfaces, table_folder
from jetdvfs.daemon.worker.packing import packed_network
from jetdvfs.daemon.worker.workers import Workers
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.bundle.surface_cache import SurfaceCache
from jetdvfs.tests.support.profiles.small_bundle import make_bundle

RELU = {"kind": "relu", "scope": "", "inputs": [[8, 8]], "output": [8, 8], "dtype": "float32", "flops": 64, "bytes": 512}


def listed(launches: int, name: str = "net") -> bytes:
    return json.dumps({"name": name, "launches": [RELU] * launches}).encode()


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    make_bundle(tmp_path / "one")
    return find_profile(str(tmp_path / "one"), "agx-xavier")


def run(profile: Profile, folder: Path, job: Callable[[Surfaces], Awaitable[None]]) -> None:
    async def main() -> None:
        stored = SurfaceCache(folder / "surfaces")
        surfaces = Surfaces(Workers, profile, table_folder(folder / "cache"), stored)
        try:
            await job(surfaces)
        finally:
            await surfaces.close()

    folder.chmod(0o755)
    asyncio.run(main())


def test_one_network_under_two_names_has_one_key_and_one_surface(profile: Profile, tmp_path: Path) -> None:
    async def job(surfaces: Surfaces) -> None:
        one, other, longer = [await surfaces.check(data, 0) for data in (listed(1, "a"), listed(1, "b"), listed(2, "a"))]
        assert (one.name, other.name) == ("a", "b") and one.key == other.key != longer.key
        assert await surfaces.surface(one) is await surfaces.surface(other)
        assert await surfaces.surface(one) is not await surfaces.surface(longer)
        at_once = await asyncio.gather(*(surfaces.surface(one, SurfaceRequest("sum"), uid=uid) for uid in (0, 0, 0)))
        assert len({id(surface) for surface in at_once}) == 1

    run(profile, tmp_path, job)


def test_a_sweep_is_prepared_while_a_model_is_read_unless_the_last_surface_was_stored(profile: Profile, tmp_path: Path) -> None:
    def sweepers() -> int:
        return sum("sweep" in child.cmdline() for child in psutil.Process().children())

    async def job(surfaces: Surfaces) -> None:
        await surfaces.prepare()
        one = await surfaces.check(listed(1), 0)
        assert sweepers() == 1
        await surfaces.surface(one)
        await surfaces.surface(one)
        await surfaces.close()
        await surfaces.check(listed(1), 0)
        assert sweepers() == 0

    run(profile, tmp_path, job)


def test_a_network_s_key_is_not_what_a_child_that_was_taken_over_says(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Network.from_json(json.loads(listed(1)))
    info, _ = packed_network(own)
    _, payload = packed_network(replace(own, calls=own.calls * 3))
    header = json.dumps({"about": asdict(info)}).encode()
    program = tmp_path / "taken-over"
    program.write_text(
        f"#!{sys.executable} -I\nimport json, socket, struct, sys\n"
        "sock = socket.socket(fileno=json.loads(sys.argv[-1])['socket'])\n"
        "sock.recv(1 << 16)\n"  # the request: an end that comes before it is read is no answer
        f"sock.sendall(struct.pack('>II', {len(header)}, {len(payload)}) + {header!r} + {payload!r})\n"
    )
    program.chmod(0o755)

    async def job(surfaces: Surfaces) -> None:
        honest = await surfaces.check(listed(1), 0)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", str(program))
            forged = await surfaces.check(listed(1), 0)
        assert forged.info["digest"] == honest.info["digest"]
        assert forged.key == hashlib.sha256(payload).hexdigest() != honest.key
        threefold, single = await surfaces.surface(forged), await surfaces.surface(honest)
        assert (threefold.latency_ms > single.latency_ms).all()

    run(profile, tmp_path, job)


def test_tables_that_are_touched_or_removed_are_made_anew(profile: Profile, tmp_path: Path) -> None:
    async def job(surfaces: Surfaces) -> None:
        tables = tmp_path / "cache" / "tables"
        await surfaces.prepare()
        contents = {path: path.read_bytes() for path in tables.iterdir()}
        assert len(contents) == 2 and surfaces.troubles == ()
        expected = await surfaces.surface(await surfaces.check(listed(1), 0))
        one, other = contents
        one.unlink()
        other.write_bytes(b"?" * len(contents[other]))
        found = await surfaces.surface(await surfaces.check(listed(1), 0), SurfaceRequest("sum"))
        np.testing.assert_array_equal(found.idle_mw, expected.idle_mw)
        assert {path: path.read_bytes() for path in tables.iterdir()} == contents

    run(profile, tmp_path, job)


def test_a_profile_that_cannot_be_converted_is_a_trouble_and_loading_still_works(profile: Profile, tmp_path: Path) -> None:
    async def job(surfaces: Surfaces) -> None:
        (profile.path / "relu.time.treelite.xz").write_bytes(b"damaged")
        await surfaces.prepare()
        (trouble,) = surfaces.troubles
        assert "relu.time.treelite.xz is damaged" in trouble and "\n" not in trouble
        network = await surfaces.check(listed(1), 0)
        with pytest.raises(InputError, match=r"relu\.time"):
            await surfaces.surface(network)

    run(profile, tmp_path, job)


def test_a_cache_that_cannot_be_written_is_a_trouble_in_one_line(profile: Profile, tmp_path: Path) -> None:
    async def job(surfaces: Surfaces) -> None:
        shutil.rmtree(tmp_path / "cache")
        await surfaces.prepare()
        assert surfaces.troubles == (
            f"profile: its models' node tables cannot be kept in {tmp_path / 'cache'}: No such file or directory",
        )
        with pytest.raises(InputError, match="cannot be kept"):
            await surfaces.surface(await surfaces.check(listed(1), 0))

    run(profile, tmp_path, job)
