# SPDX-License-Identifier: Apache-2.0
"""The cache of node tables: written by nobody but its owner, who takes in only what is a node table."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.bundle.identity import read_identity
from jetdvfs.profiles.bundle.table_folder import TableFolder
from jetdvfs.profiles.errors import BundleError
from jetdvfs.tests.support.profiles.small_bundle import make_bundle


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, bytes]:
    """The node tables of a small bundle, by their models' checksums."""
    make_bundle(tmp_path / "one")
    load_bundle(tmp_path / "one", cache_dir=tmp_path / "made")
    return {
        digest: (tmp_path / "made" / "tables" / f"{digest}.nodes").read_bytes()
        for digest in read_identity(tmp_path / "one").models
    }


def test_what_is_written_is_taken_in_and_read_by_everybody(tmp_path: Path, tables: dict[str, bytes]) -> None:
    folder = TableFolder(tmp_path / "cache")
    assert folder.missing(tables) == list(tables) and folder.stamps(tables) == {}
    with folder.fresh(folder.missing(tables)) as outputs:
        for digest, data in tables.items():
            os.write(outputs[digest], data)
            assert folder.missing([digest]) == [digest]
            folder.take_in(digest)
    assert folder.missing(tables) == [] and set(folder.stamps(tables)) == set(tables)
    files = list((tmp_path / "cache" / "tables").iterdir())
    assert {file.read_bytes() for file in files} == set(tables.values())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o644}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "cache", tmp_path / "cache" / "tables")} == {0o755}
    folder.discard(next(iter(tables)))
    assert len(folder.missing(tables)) == 1


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_what_is_no_node_table_is_refused_and_gone(tmp_path: Path, tables: dict[str, bytes], cut: int) -> None:
    folder = TableFolder(tmp_path / "cache")
    digest, data = next(iter(tables.items()))
    damaged = bytearray(data)
    damaged[-1] ^= 1
    for content in (data[:cut], bytes(damaged)):
        with folder.fresh([digest]) as outputs:
            os.write(outputs[digest], content)
            with pytest.raises(BundleError, match="is no valid node table"):
                folder.take_in(digest)
    assert list((tmp_path / "cache" / "tables").iterdir()) == []


def test_a_file_that_cannot_be_removed_afterwards_hides_no_other_error(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path / "cache")
    with pytest.raises(KeyError, match="the first"), folder.fresh(["0" * 64]):
        shutil.rmtree(tmp_path / "cache")
        (tmp_path / "cache").write_text("in its place")
        raise KeyError("the first")


def test_what_others_could_have_written_is_removed(tmp_path: Path, tables: dict[str, bytes]) -> None:
    folder = tmp_path / "cache" / "tables"
    folder.mkdir(parents=True)
    digest, other = tables
    (folder / f"{digest}.nodes").write_bytes(tables[digest])
    (folder / f"{digest}.nodes").chmod(0o646)
    (folder / f"{other}.nodes").write_bytes(tables[other])
    (folder / f"{other}.partial").write_bytes(b"")
    (folder / "link.nodes").symlink_to("/etc/passwd")
    folder.chmod(0o777)
    found = TableFolder(tmp_path / "cache")
    assert found.missing(tables) == [digest]
    assert [path.name for path in folder.iterdir()] == [f"{other}.nodes"]
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_cache_that_was_a_worker_s_becomes_ours_without_what_is_in_it(tmp_path: Path, tables: dict[str, bytes]) -> None:
    folder = tmp_path / "cache" / "tables"
    (folder / "tmpabc").mkdir(parents=True)
    (folder / "tmpabc" / "table").write_bytes(b"")
    for digest, data in tables.items():
        (folder / f"{digest}.nodes").write_bytes(data)
    for path in (tmp_path / "cache", folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534)
    assert TableFolder(tmp_path / "cache").missing(tables) == list(tables)
    assert list(folder.iterdir()) == []
    assert folder.stat().st_uid == folder.parent.stat().st_uid == 0
