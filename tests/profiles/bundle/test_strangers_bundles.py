# SPDX-License-Identifier: Apache-2.0
"""Bundles that another user made, and may change while they are read."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import tempfile
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.kernels.npz import MOST_ARRAYS, check_npz
from jetdvfs.profiles.bundle import reading
from jetdvfs.profiles.bundle.finding import SHIPPED, SYSTEM, bundle_folders, default_cache_dir, resolve_bundle
from jetdvfs.profiles.bundle.writing import install_bundle
from jetdvfs.profiles.errors import BundleError
from jetdvfs.profiles.own_folders import forget_foreign_folders, is_roots

NAME = "agx-xavier-sim"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root installs what is another user's")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    shutil.copytree(SHIPPED / NAME, tmp_path / "strange" / NAME)
    return tmp_path / "strange" / NAME


def replace_file(bundle: Path, name: str, data: bytes) -> None:
    """Put another content into a bundle, with its checksum."""
    (bundle / name).write_bytes(data)
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["checksums"][name] = hashlib.sha256(data).hexdigest()
    (bundle / "manifest.json").write_text(json.dumps(manifest))


def test_a_link_put_in_while_a_bundle_is_installed_leaks_no_file(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root:SECRET")
    real = reading.checked

    def checked(name: str, data: bytes, digest: str) -> bytes:
        """The moment between the check of a file and whatever is done with it."""
        found = real(name, data, digest)
        for one in ("host.json", "board.npz"):
            (bundle / one).unlink(missing_ok=True)
            (bundle / one).symlink_to(secret)
        return found

    monkeypatch.setattr("jetdvfs.profiles.bundle.writing.checked", checked)
    with pytest.raises(BundleError, match="is missing or not a regular file"):
        install_bundle(bundle, tmp_path / "into", cache_dir=tmp_path / "cache")
    assert [path for path in (tmp_path / "into").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_regular_file_is_refused_by_name_and_never_waited_for(bundle: Path, tmp_path: Path, kind: str) -> None:
    place = bundle / "host.json"
    place.rename(tmp_path / "host.json")
    if kind == "link":
        place.symlink_to(tmp_path / "host.json")
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    with pytest.raises(BundleError, match=r"host\.json is missing or not a regular file"):
        install_bundle(bundle, tmp_path / "into", cache_dir=tmp_path / "cache")


def test_what_is_installed_is_what_was_checked_and_readable_by_every_user(bundle: Path, tmp_path: Path) -> None:
    installed = install_bundle(bundle, tmp_path / "into", cache_dir=tmp_path / "cache")
    assert {path.name: path.read_bytes() for path in installed.iterdir()} == {
        path.name: path.read_bytes() for path in (SHIPPED / NAME).iterdir()
    }
    assert stat.S_IMODE(installed.stat().st_mode) == 0o755


def large_arrays(count: int = 1) -> bytes:
    """An ``.npz`` of a few kB whose arrays take 4 GiB each."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(count):
            header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1073741824,), }".ljust(117) + b"\n"
            name = ("idle_mw", "host_active_mw")[number] if count < 3 else number
            archive.writestr(f"{name}.npy", b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)
    return buffer.getvalue()


def test_an_array_that_claims_gigabytes_is_refused_by_its_header(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_file(bundle, "board.npz", large_arrays())
    assert main(["profile", "install", str(bundle), "--into", str(tmp_path / "into")]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "idle_mw: of shape (1073741824,), 4294967296 bytes; expected at most" in said
    surface = tmp_path / "surface.npz"
    surface.write_bytes(large_arrays())
    with pytest.raises(ValueError, match="4294967296 bytes"):
        check_npz(surface, 1 << 28)


def test_a_header_that_may_be_gigabytes_long_is_refused_unread() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("one.npy", b"\x93NUMPY\2\0" + (1 << 26).to_bytes(4, "little") + b" " * (1 << 26))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"one: version 2\.0 of the format is not read, only 1\.0"):
        check_npz(buffer, 1 << 20)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_zip_directory_of_many_arrays_is_refused_unread() -> None:
    with pytest.raises(ValueError, match=f"expected at most {MOST_ARRAYS}"):
        check_npz(io.BytesIO(large_arrays(MOST_ARRAYS + 1)), 1 << 28)


def test_arrays_of_python_objects_and_files_that_are_no_zip_are_refused() -> None:
    buffer = io.BytesIO()
    np.savez(buffer, one=np.array([object()], dtype=object))
    with pytest.raises(ValueError, match="holds Python objects"):
        check_npz(buffer, 1 << 20)
    for text in (b"", b"PK\x05\x06", b"nothing" * 100):
        with pytest.raises(ValueError, match=r"not an \.npz file"):
            check_npz(io.BytesIO(text), 1 << 20)


@pytest.mark.parametrize("calls", [20_000, pytest.param(1_500_000, marks=pytest.mark.slow)])
def test_host_times_of_more_calls_than_there_are_operators_are_refused(bundle: Path, tmp_path: Path, calls: int) -> None:
    text = json.dumps({"default": [0, 0, 0], "per_tensor": [0, 0, 0], "calls": {str(one): [1, 1, 1] for one in range(calls)}})
    replace_file(bundle, "host.json", text.encode())
    with pytest.raises(BundleError, match=r"host\.json(: 20000 calls; expected at most 10000| is larger than 2 MiB)"):
        install_bundle(bundle, tmp_path / "into", cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("words", [("show",), ("list",)], ids=lambda words: words[0])
def test_nothing_of_a_bundle_reaches_a_terminal_but_letters(
    bundle: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    escape = "x\x1b[2J\x1b]0;pwned\x07\u202e\ny"

    def spoil(value: object) -> object:
        if isinstance(value, dict):
            return {key if key in kept else f"{key}{escape}": spoil(item) for key, item in value.items()}
        return value

    manifest = json.loads((bundle / "manifest.json").read_text())
    kept = {*manifest, *manifest["tools"]}
    manifest |= {"command": escape, "silicon_version": escape, "tools": {f"tool{escape}": escape}}
    manifest["kinds"] = {kind: {**entry, "dtypes": [*entry["dtypes"]]} for kind, entry in manifest["kinds"].items()}
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "data" / "jetdvfs").mkdir(parents=True)
    shutil.copytree(bundle.parent, tmp_path / "data" / "jetdvfs" / "bundles")
    broken = tmp_path / "data" / "jetdvfs" / "bundles" / f"other{escape[:-2]}"
    shutil.copytree(bundle, broken)
    assert main(["profile", *words, *([f"{bundle}"] if words == ("show",) else [])]) == 0
    shown = capsys.readouterr()
    assert all(line.isprintable() for line in (shown.out + shown.err).splitlines())
    assert "pwned" in shown.out or words == ("list",)


@pytest.mark.parametrize(
    ("record", "member"),
    [
        ({"mean": [1]}, "evaluation.unseen_board.mean"),
        ({}, "evaluation.unseen_board.mean"),
        ({"mean": {"sum": {}}}, "evaluation.unseen_board.mean.sum.latency_percent"),
        ({"mean": {}, "networks": [{"network": 1}]}, "evaluation.unseen_board.networks[0].network"),
    ],
)
def test_a_malformed_evaluation_is_one_line_that_names_the_member(
    bundle: Path, record: object, member: str, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["evaluation"] = {"unseen_board": record}
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    assert main(["profile", "show", str(bundle)]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and member in said, said


def test_a_mean_error_without_energy_is_shown_as_such(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    row = {"network": "n", "method": "timeline", "latency_percent": 2.0, "energy_percent": None}
    manifest["evaluation"] = {"unseen_board_and_family": {"mean": {"sum": {"latency_percent": 2.5}}, "networks": [row]}}
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    assert main(["profile", "show", str(bundle)]) == 0
    assert "sum 2.5% / -" in capsys.readouterr().out


def test_a_name_is_no_folder_of_the_current_directory(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bundle.parent)
    assert resolve_bundle(NAME) != Path(NAME) and resolve_bundle(NAME).resolve() != bundle
    assert resolve_bundle(f"./{NAME}").resolve() == resolve_bundle(Path(NAME)).resolve() == bundle
    bundle.rename("mine")
    with pytest.raises(BundleError, match=r"the folder of that name is \./mine"):
        resolve_bundle("mine")


@as_root
@pytest.mark.parametrize("how", ["owned by another user", "a link of another user's", "writable by others"])
def test_root_neither_reads_nor_writes_folders_of_the_environment_that_another_user_can_change(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "home"
        (Path(name) / "victim").mkdir()
        if how.startswith("a link"):
            place.symlink_to(Path(name) / "victim")
        else:
            place.mkdir()
            place.chmod(0o777 if how.startswith("writable") else 0o755)
        if not how.startswith("writable"):
            os.chown(place, 54101, 54101, follow_symlinks=False)
        for variable in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
            monkeypatch.setenv(variable, str(place))
        monkeypatch.setenv("HOME", str(place))
        assert bundle_folders() == (SYSTEM, SHIPPED)
        assert default_cache_dir() == Path("/var/cache/jetdvfs")
        forget_foreign_folders()
        assert "XDG_CACHE_HOME" not in os.environ and os.environ["HOME"] == "/root"
        assert not is_roots(place) and is_roots(Path("/root")) and is_roots(Path(name) / "victim")
