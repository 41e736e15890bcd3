# SPDX-License-Identifier: Apache-2.0
"""Bundles whose models are mapped one by one: the same predictions, and no model stays in memory."""

from __future__ import annotations

import gc
import lzma
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jetdvfs.kernels.cost.board import BoardCost
from jetdvfs.kernels.trees.ensemble import TreeEnsemble
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.bundle.tables import TableCache
from jetdvfs.profiles.errors import BundleError
from jetdvfs.tests.support.profiles.small_bundle import FEATURES, make_bundle

ROWS = np.full((1, len(FEATURES)), np.nan, np.float32)


def sweeps(cost: BoardCost) -> list[NDArray[Any]]:
    return [model.sweep(ROWS, cost.grid.levels_mhz()) for model in (cost.kernels["relu"].time, cost.kernels["relu"].power)]


def test_they_predict_what_they_predict_when_all_are_mapped(tmp_path: Path) -> None:
    make_bundle(tmp_path / "one")
    whole = load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache").cost
    one_by_one = load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache", one_by_one=True).cost
    np.testing.assert_array_equal(sweeps(one_by_one), sweeps(whole))


def test_no_model_stays_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bundle(tmp_path / "one")
    cost = load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache", one_by_one=True).cost
    loaded: weakref.WeakSet[TreeEnsemble] = weakref.WeakSet()
    load = TreeEnsemble.load

    def noted(*arguments: Any) -> TreeEnsemble:
        made = load(*arguments)
        loaded.add(made)
        return made

    monkeypatch.setattr(TreeEnsemble, "load", noted)
    sweeps(cost)  # converts them
    sweeps(cost)
    gc.collect()
    assert not loaded


def test_a_model_whose_table_is_there_is_not_looked_at(tmp_path: Path) -> None:
    make_bundle(tmp_path / "one")
    expected = sweeps(load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache").cost)
    for path in (tmp_path / "one").glob("*.xz"):
        path.unlink()
    cost = load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache", one_by_one=True).cost
    np.testing.assert_array_equal(sweeps(cost), expected)


def test_tables_that_were_checked_are_used_as_they_are_until_one_is_touched(tmp_path: Path) -> None:
    make_bundle(tmp_path / "one")
    whole = load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache")
    known = TableCache(tmp_path / "cache").stamps(whole.manifest.checksums.values())
    assert set(known) <= set(whole.manifest.checksums.values()) and len(known) == 2 * len(whole.manifest.kinds)
    cost = load_bundle(tmp_path / "one", tables=TableCache(tmp_path / "cache", known), one_by_one=True).cost
    np.testing.assert_array_equal(sweeps(cost), sweeps(whole.cost))
    for table in (tmp_path / "cache" / "tables").iterdir():
        table.write_bytes(b"?" * table.stat().st_size)
    np.testing.assert_array_equal(sweeps(cost), sweeps(whole.cost))  # made anew from the bundle


@pytest.mark.parametrize("error", ["ImportError('made for another machine')", "MemoryError"])
def test_each_of_several_threads_is_told_what_cannot_be_loaded(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "treelite.py").write_text(f"import time\ntime.sleep(0.1)\nraise {error}\n")
    for module in [name for name in sys.modules if name.partition(".")[0] == "treelite"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.syspath_prepend(tmp_path)
    both_ask = threading.Barrier(2)

    def compressed() -> bytes:
        return lzma.compress(b"%d" % both_ask.wait())

    def converted(digest: str) -> TreeEnsemble:
        return TableCache(tmp_path / "cache").ensemble("relu.time", digest, compressed, len(FEATURES))

    with ThreadPoolExecutor(2) as pool:
        for asked in [pool.submit(converted, digest) for digest in ("one", "other")]:
            with pytest.raises(BundleError, match=r"treelite, which makes one, cannot be loaded"):
                asked.result()


def test_what_is_wrong_with_a_model_shows_when_it_is_swept(tmp_path: Path) -> None:
    make_bundle(tmp_path / "one")
    (tmp_path / "one" / "relu.power.treelite.xz").write_bytes(b"damaged")
    cost = load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache", one_by_one=True).cost
    with pytest.raises(BundleError, match=r"relu\.power.*damaged"):
        sweeps(cost)
