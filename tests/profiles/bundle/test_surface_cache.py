# SPDX-License-Identifier: Apache-2.0
"""Surfaces on disk: what is kept comes back as it was, what is damaged or somebody else's does not, and bounds hold."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.kernels.boundary import Boundary
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.kernels.surface import Surface
from jetdvfs.profiles.bundle.identity import read_identity
from jetdvfs.profiles.bundle.surface_cache import SurfaceCache, surface_key
from jetdvfs.profiles.bundle.writing import write_manifest
from jetdvfs.tests.support.profiles.analytic import GRID, board, matmul, network, relu
from jetdvfs.tests.support.profiles.small_bundle import make_bundle

KEY, OTHER = "ab" * 32, "cd" * 32


def saved(elements: int = 1 << 20) -> tuple[Surface, bytes]:
    made = surface(network(matmul(), relu(elements)), board(sigma=0.1, common=0.05))
    buffer = io.BytesIO()
    made.save(buffer)
    return made, buffer.getvalue()


def the_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_what_is_kept_comes_back_as_it_was_after_a_restart(tmp_path: Path) -> None:
    made, data = saved()
    SurfaceCache(tmp_path / "new" / "folder").put(KEY, data)
    found = SurfaceCache(tmp_path / "new" / "folder").get(KEY, GRID)
    assert found is not None
    for name in ("latency_ms", "energy_mj", "power_mw", "latency_sigma", "energy_sigma", "idle_mw"):
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name))
    assert (found.grid, found.method, found.unmodelled) == (made.grid, made.method, made.unmodelled)


def test_there_is_nothing_under_another_key(tmp_path: Path) -> None:
    cache = SurfaceCache(tmp_path)
    cache.put(KEY, saved()[1])
    assert cache.get(OTHER, GRID) is None


@pytest.mark.parametrize("spot", [0, 15, 20, 60, 200, -1])
def test_a_damaged_file_is_removed_and_made_anew(tmp_path: Path, spot: int) -> None:
    cache = SurfaceCache(tmp_path)
    data = saved()[1]
    cache.put(KEY, data)
    content = bytearray(the_file(tmp_path).read_bytes())
    content[spot] ^= 1
    the_file(tmp_path).write_bytes(content)
    assert cache.get(KEY, GRID) is None
    assert not any(tmp_path.iterdir())
    cache.put(KEY, data)
    assert cache.get(KEY, GRID) is not None


@pytest.mark.parametrize("content", [b"", b"JDVFS", b"PK\x03\x04" + b"\0" * 500])
def test_a_file_cut_short_or_of_another_kind_is_removed(tmp_path: Path, content: bytes) -> None:
    cache = SurfaceCache(tmp_path)
    cache.put(KEY, saved()[1])
    the_file(tmp_path).write_bytes(content)
    assert cache.get(KEY, GRID) is None
    assert not any(tmp_path.iterdir())


def test_a_sound_file_under_somebody_elses_name_is_refused(tmp_path: Path) -> None:
    cache = SurfaceCache(tmp_path)
    cache.put(OTHER, saved()[1])
    the_file(tmp_path).rename(tmp_path / f"{KEY}.surface")
    assert cache.get(KEY, GRID) is None


def test_a_surface_over_another_grid_or_no_surface_at_all_is_refused(tmp_path: Path) -> None:
    cache = SurfaceCache(tmp_path)
    cache.put(KEY, saved()[1])
    assert cache.get(KEY, FrequencyGrid((1,), (2,), (3,))) is None
    cache.put(KEY, b"no surface, but with a sound checksum")
    assert cache.get(KEY, GRID) is None


def test_the_one_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = SurfaceCache(tmp_path, most=3)
    keys = [f"{number:064x}" for number in range(4)]
    data = saved()[1]
    for age, key in enumerate(keys[:3]):
        cache.put(key, data)
        os.utime(tmp_path / f"{key}.surface", (age, age))
    assert cache.get(keys[0], GRID) is not None  # now the last used
    cache.put(keys[3], data)
    assert [cache.get(key, GRID) is not None for key in keys] == [True, False, True, True]


def test_their_size_is_bounded_too(tmp_path: Path) -> None:
    data = saved()[1]
    cache = SurfaceCache(tmp_path, most_bytes=3 * len(data))
    for number in range(6):
        cache.put(f"{number:064x}", data)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3 * len(data)
    assert len(list(tmp_path.iterdir())) == 2  # each has a header besides


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / f".{OTHER}.surface.x1y2").write_bytes(b"half")
    cache = SurfaceCache(tmp_path)
    cache.put(KEY, saved()[1])
    assert the_file(tmp_path).name == f"{KEY}.surface"


def test_a_folder_that_cannot_be_used_is_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = SurfaceCache(tmp_path / "file" / "below")
    cache.put(KEY, saved()[1])
    assert cache.get(KEY, GRID) is None


def test_networks_of_the_same_shapes_but_other_work_have_digests_of_their_own() -> None:
    one = network(matmul(), name="one")
    assert network(matmul(), name="another").digest == one.digest
    assert network(replace(matmul(), flops=1)).digest != one.digest
    assert network(replace(matmul(), bytes=1)).digest != one.digest
    ends = [Boundary(operator, "line 7", "boxes decide") for operator in ("torchvision::nms", "aten::item")]
    assert len({one.digest, *(replace(one, boundary=end).digest for end in ends)}) == 3


def test_the_key_follows_everything_that_determines_a_surface(tmp_path: Path) -> None:
    manifest = make_bundle(tmp_path / "bundle")
    profile = read_identity(tmp_path / "bundle")
    write_manifest(tmp_path / "bundle", replace(manifest, sigma_latency=0.5), {**manifest.checksums, "host.json": "0" * 64})
    keys = {
        surface_key(profile, "network", "timeline"),
        surface_key(profile, "another", "timeline"),
        surface_key(profile, "network", "sum"),
        surface_key(profile, "network", "timeline", "graph"),
        surface_key(read_identity(tmp_path / "bundle"), "network", "timeline"),
    }
    assert len(keys) == 5
    assert surface_key(profile, "network", "timeline") in keys
