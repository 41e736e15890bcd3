# SPDX-License-Identifier: Apache-2.0
"""Profile bundles: written, read back, refused when damaged or foreign, converted once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from jetdvfs.kernels.cost.region import ModelPair, Region, Span, size_names
from jetdvfs.kernels.heat import Heat
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.bundle.finding import SHIPPED, find_bundles, resolve_bundle
from jetdvfs.profiles.bundle.manifest import RegionEntry
from jetdvfs.profiles.bundle.writing import install_bundle, write_manifest
from jetdvfs.profiles.errors import BundleError
from jetdvfs.tests.support.profiles.small_bundle import BOARD, FEATURES, make_bundle, stump

REGION = RegionEntry(
    size_names("relu"),
    {"relu": {"float32": 4}},
    {"1 tensors": Span(4, (0.0,) * len(size_names("relu")), (20.0,) * len(size_names("relu")), {"float32": 4})},
    ModelPair(0.2, 0.3),
    ModelPair(0.5, 0.5),
    ModelPair(0.4, 0.3),
    ModelPair(0.1, 0.2),
)


def edit_manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def predictions(folder: Path, cache: Path) -> NDArray[Any]:
    cost = load_bundle(folder, cache_dir=cache).cost
    rows = np.zeros((1, len(FEATURES)), np.float32)
    return cost.kernels["relu"].time.sweep(rows, cost.grid.levels_mhz())


def test_a_written_bundle_reads_back_as_it_was(tmp_path: Path) -> None:
    manifest = make_bundle(tmp_path / "one")
    bundle = load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache")
    assert bundle.manifest == manifest
    assert bundle.cost.host.calls == {"relu": (1.0, 2000.0, 3.0, 0.5)}
    assert bundle.cost.kernels["relu"].power_sigma == 0.2
    assert (bundle.cost.idle_mw == 4000).all()
    swept = predictions(tmp_path / "one", tmp_path / "cache")
    below = np.asarray(BOARD.grid.gpu_hz) < 500e6
    assert np.allclose(swept[0][:, below], 1) and np.allclose(swept[0][:, ~below], 2)


@pytest.mark.parametrize("name", [path.name for path in sorted(SHIPPED.iterdir()) if path.is_dir()])
def test_a_shipped_manifest_is_written_again_as_it_stands(tmp_path: Path, name: str) -> None:
    bundle = load_bundle(SHIPPED / name)
    write_manifest(tmp_path, bundle.manifest, bundle.manifest.checksums)
    assert (tmp_path / "manifest.json").read_text() == (SHIPPED / name / "manifest.json").read_text()


def test_a_bundle_says_where_its_models_were_trained(tmp_path: Path) -> None:
    make_bundle(tmp_path / "one", region=REGION)
    known = load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache").cost.kernels["relu"].region
    assert known == Region(
        {"relu": {"float32": 4}},
        REGION.spans,
        ModelPair(0.2, 0.3),
        ModelPair(0.5, 0.5),
        ModelPair(0.4, 0.3),
        ModelPair(0.1, 0.2),
    )
    make_bundle(tmp_path / "older")
    assert load_bundle(tmp_path / "older", cache_dir=tmp_path / "cache").cost.kernels["relu"].region is None


def test_a_bundle_says_what_leaks_or_that_it_does_not_know(tmp_path: Path) -> None:
    make_bundle(tmp_path / "warm", leakage_mw=1000)
    cost = load_bundle(tmp_path / "warm", cache_dir=tmp_path / "cache").cost
    assert cost.leakage_mw is not None and (cost.leakage_mw == 1000).all() and cost.heat == Heat(45.0, 38.0)
    make_bundle(tmp_path / "older")
    older = load_bundle(tmp_path / "older", cache_dir=tmp_path / "cache").cost
    assert older.leakage_mw is None and older.heat is None


def test_what_leaks_and_how_it_grows_are_known_together(tmp_path: Path) -> None:
    make_bundle(tmp_path / "one", leakage_mw=1000)
    path = tmp_path / "one/manifest.json"
    path.write_text(json.dumps({name: v for name, v in json.loads(path.read_text()).items() if name != "leakage_fold_c"}))
    with pytest.raises(BundleError, match="expected both or neither"):
        load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache")


@pytest.mark.parametrize(
    ("member", "value", "said"),
    [
        ("sizes", ["log2_flops"], "its region has not the sizes of this release"),
        (
            "spans",
            {"1 tensors": {"kernels": 4, "low": [0.0], "high": [1.0], "types": {"float32": 4}}},
            "1 tensors: expected a range for each of",
        ),
        ("kinds", {"relu": {"float32": -1}}, "kinds.relu.region.kinds.relu.float32"),
        ("kind_sigma", [-0.1, 0.1], "expected deviations that are not negative"),
        ("variety_sigma", [-0.1, 0.1], "expected deviations that are not negative"),
        ("doubling_sigma", [0.1], "doubling_sigma"),
    ],
)
def test_a_region_that_does_not_fit_is_refused_in_one_line(tmp_path: Path, member: str, value: object, said: str) -> None:
    make_bundle(tmp_path / "one", region=REGION)
    path = tmp_path / "one" / "manifest.json"
    data = json.loads(path.read_text())
    data["kinds"]["relu"]["region"][member] = value
    if member == "sizes":
        data["kinds"]["relu"]["region"]["spans"] = {}
    path.write_text(json.dumps(data))
    with pytest.raises(BundleError, match=re.escape(said)) as caught:
        load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_treelite_is_imported_only_the_first_time(tmp_path: Path) -> None:
    make_bundle(tmp_path / "one")
    code = (
        "import sys; from pathlib import Path; from jetdvfs.profiles.bundle.bundle import load_bundle; "
        f"load_bundle({str(tmp_path / 'one')!r}, cache_dir=Path({str(tmp_path / 'cache')!r})); print('treelite' in sys.modules)"
    )
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert [line.strip() for line in said] == ["True", "False"]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_cache_is_rebuilt(tmp_path: Path, damage: str) -> None:
    make_bundle(tmp_path / "one")
    before = predictions(tmp_path / "one", tmp_path / "cache")
    for table in (tmp_path / "cache/tables").glob("*.nodes"):
        data = bytearray(table.read_bytes())
        data[len(data) // 2] ^= 0xFF
        content = {"cut": bytes(data[: len(data) // 2]), "flip": bytes(data), "empty": b""}
        table.unlink()
        table.write_bytes(content[damage])
    assert np.array_equal(predictions(tmp_path / "one", tmp_path / "cache"), before)


def test_a_bundle_loads_where_no_cache_can_be_written(tmp_path: Path) -> None:
    make_bundle(tmp_path / "one")
    (tmp_path / "cache").write_text("a file in the way")
    assert predictions(tmp_path / "one", tmp_path / "cache").shape == (1, *BOARD.grid.shape)


@pytest.mark.parametrize("name", ["relu.time.treelite.xz", "board.npz", "host.json"])
def test_a_changed_or_missing_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    make_bundle(tmp_path / "one")
    path = tmp_path / "one" / name
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(BundleError, match=f"{name} is damaged"):
        load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache")
    path.unlink()
    with pytest.raises(BundleError, match=f"{name} is missing"):
        load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache")


def test_a_link_out_of_the_bundle_is_refused(tmp_path: Path) -> None:
    make_bundle(tmp_path / "one")
    (tmp_path / "one/host.json").rename(tmp_path / "elsewhere.json")
    (tmp_path / "one/host.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(BundleError, match=r"host\.json"):
        load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"board": "no-such-board"}, "no-such-board"),
        ({"grid": {"cpu_khz": [1000], "gpu_hz": [1000], "emc_hz": [1000]}}, "grid"),
        ({"format": 99}, "format 99"),
        ({"rails": ["GPU", "NO_RAIL"]}, "NO_RAIL"),
        ({"checksums": {"../../etc/passwd": "0" * 64}}, "passwd"),
        ({"checksums": {}}, "checksums"),
        ({"simulated": "yes"}, "simulated"),
        ({"sigma_latency": -1}, "not negative"),
        ({"name": "../up"}, "plain name"),
        ({"engines": {"rates": {"float32": {"layouts": 0.5}}}}, "'layouts' is not a member's name; valid: floor, windows, "),
        ({"engines": {"rates": {"float32": {"floor": 0.0}}}}, "expected factors that are positive"),
        (
            {
                "kinds": {
                    "relu": {"features": ["a"], "dtypes": [], "time_sigma": 0, "power_sigma": 0, "samples": 1, "recipes": {}}
                }
            },
            "features",
        ),
        (
            {
                "kinds": {
                    "no_kind": {"features": [], "dtypes": [], "time_sigma": 0, "power_sigma": 0, "samples": 1, "recipes": {}}
                }
            },
            "no_kind",
        ),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused_in_one_line(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    make_bundle(tmp_path / "one")
    edit_manifest(tmp_path / "one", **changes)
    with pytest.raises(BundleError, match=said) as caught:
        load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache")
    assert "\n" not in str(caught.value) and caught.value.exit_code == 3


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"format": 2}'])
def test_a_manifest_that_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    make_bundle(tmp_path / "one")
    (tmp_path / "one/manifest.json").write_text(text)
    with pytest.raises(BundleError, match="one"):
        load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache")


def test_a_profile_of_another_release_s_features_is_refused_by_name_with_the_way_out(tmp_path: Path) -> None:
    make_bundle(tmp_path / "aged")
    kinds = json.loads((tmp_path / "aged/manifest.json").read_text())["kinds"]
    kinds["relu"]["features"][0] = "log2_age"
    edit_manifest(tmp_path / "aged", kinds=kinds, command="jetdvfs-lab train --board agx-xavier --out aged")
    said = r"aged: made by another release of jetdvfs: relu: .*log2_age.*; make it again: jetdvfs-lab train --board agx-xavier"
    with pytest.raises(BundleError, match=said) as refused:
        load_bundle(tmp_path / "aged", cache_dir=tmp_path / "cache")
    assert "\n" not in str(refused.value)


def test_bounds_are_read_back_and_what_makes_none_is_refused(tmp_path: Path) -> None:
    tail = {"quantiles": [0.0, 0.1, 0.4, 0.9, 1.5, 2.0], "shape": 0.1, "scale": 0.8}
    tails = dict.fromkeys(("latency", "energy", "frames"), tail)
    bounds: dict[str, Any] = {"own": [0.5, 0.6], **tails, "nodes": [7], "networks": ["one"]}
    make_bundle(tmp_path / "bounded")
    edit_manifest(tmp_path / "bounded", bounds=bounds)
    bundle = load_bundle(tmp_path / "bounded", cache_dir=tmp_path / "cache")
    assert bundle.cost.own_scale == (0.5, 0.6) and bundle.cost.tails is not None
    assert bundle.cost.tails.latency.quantile(0.95) == 2.0
    assert json.loads(json.dumps(bundle.manifest.to_json()["bounds"])) == bounds
    for wrong in ({"own": [-1, 0.6]}, {"latency": {**tail, "scale": 0}}, {"frames": {**tail, "quantiles": [1.0]}}):
        edit_manifest(tmp_path / "bounded", bounds={**bounds, **wrong})
        with pytest.raises(BundleError, match="bounds"):
            load_bundle(tmp_path / "bounded", cache_dir=tmp_path / "cache")


def test_trees_of_another_number_of_features_are_refused(tmp_path: Path) -> None:
    make_bundle(tmp_path / "one", time=stump(len(FEATURES) + 1, 0, 1.0, 0.0, 1.0))
    with pytest.raises(BundleError, match=r"relu\.time.*features"):
        load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache")


def test_idle_power_of_another_shape_is_refused(tmp_path: Path) -> None:
    manifest = make_bundle(tmp_path / "one")
    import hashlib

    np.savez(tmp_path / "one/board.npz", idle_mw=np.ones((2, 2, 2), np.float32), host_active_mw=np.ones(29, np.float32))
    digest = hashlib.sha256((tmp_path / "one/board.npz").read_bytes()).hexdigest()
    write_manifest(tmp_path / "one", manifest, {**manifest.checksums, "board.npz": digest})
    with pytest.raises(BundleError, match="idle_mw must be"):
        load_bundle(tmp_path / "one", cache_dir=tmp_path / "cache")


def test_an_installed_bundle_is_found_by_name_and_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "data/jetdvfs/bundles"
    manifest = make_bundle(tmp_path / "mine")
    (tmp_path / "mine/stray.txt").write_text("not part of it")
    installed = install_bundle(tmp_path / "mine", folder, cache_dir=tmp_path / "cache")
    assert find_bundles()["mine"] == installed == resolve_bundle("mine")
    assert not (installed / "stray.txt").exists()
    write_manifest(tmp_path / "mine", replace(manifest, sigma_latency=0.5), manifest.checksums)
    install_bundle(tmp_path / "mine", folder, cache_dir=tmp_path / "cache")
    assert load_bundle("mine", cache_dir=tmp_path / "cache").manifest.sigma_latency == 0.5
    assert sorted(path.name for path in folder.iterdir()) == ["mine"]


def test_an_installed_bundle_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, synced = tmp_path / "jetdvfs" / "bundles", []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append((os.fstat(handle).st_ino, (folder / "mine").exists())))
    make_bundle(tmp_path / "mine")
    synced.clear()
    installed = install_bundle(tmp_path / "mine", folder, cache_dir=tmp_path / "cache")
    before = {path.stat().st_ino for path in (installed, *installed.iterdir(), *folder.parents[:2])}
    assert set(synced) >= {*((each, False) for each in before), (folder.stat().st_ino, True)}


def test_a_folder_that_may_not_be_looked_into_has_no_bundles() -> None:
    uid = os.geteuid()
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        place = Path(name)
        place.chmod(0o755)
        make_bundle(place / "closed" / "mine")
        make_bundle(place / "open" / "yours")
        (place / "closed").chmod(0)
        os.seteuid(uid or 65534)  # root may look everywhere
        try:
            assert find_bundles([place / "closed", place / "open"]) == {"yours": place / "open" / "yours"}
            with pytest.raises(BundleError, match="no such bundle"):
                resolve_bundle(place / "closed" / "mine")
        finally:
            os.seteuid(uid)
            (place / "closed").chmod(0o700)


def test_a_bundle_that_is_refused_is_not_installed(tmp_path: Path) -> None:
    make_bundle(tmp_path / "mine")
    (tmp_path / "mine/host.json").write_text("{}")
    with pytest.raises(BundleError):
        install_bundle(tmp_path / "mine", tmp_path / "installed", cache_dir=tmp_path / "cache")
    assert not (tmp_path / "installed").exists()


def test_host_times_of_an_older_profile_are_read(tmp_path: Path) -> None:
    make_bundle(tmp_path / "mine")
    written = {"default": [2, 4000, 0], "per_tensor": [0, 0, 0], "calls": {"relu": [1, 2000, 3]}}
    (tmp_path / "mine/host.json").write_text(json.dumps(written))
    checksums = json.loads((tmp_path / "mine/manifest.json").read_text())["checksums"]
    digest = hashlib.sha256((tmp_path / "mine/host.json").read_bytes()).hexdigest()
    edit_manifest(tmp_path / "mine", checksums={**checksums, "host.json": digest})
    host = load_bundle(tmp_path / "mine", cache_dir=tmp_path / "cache").cost.host
    assert (host.calls["relu"], host.default) == ((1.0, 2000.0, 3.0, 0.0), (2.0, 4000.0, 0.0, 0.0))


def test_an_unknown_name_lists_the_names_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    make_bundle(tmp_path / "data/jetdvfs/bundles/mine")
    with pytest.raises(BundleError, match="mine"):
        resolve_bundle("yours")
