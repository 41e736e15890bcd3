# SPDX-License-Identifier: Apache-2.0
"""A release of this tree: built twice the same, described by its bill of materials, and built from its source archive alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

import jetdvfs
from jetdvfs.systemd.dependencies import REQUIRED, declared
from jetdvfs.systemd.release import sign
from jetdvfs.tests.support.paths import ROOT

pytestmark = [pytest.mark.system, pytest.mark.release]

VERSION = jetdvfs.__version__


def say(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Output of a command that must succeed, without variables of an outer make."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHON"))}
    done = subprocess.run(
        command, cwd=cwd, env={**environment, **variables}, capture_output=True, text=True, check=False, timeout=1200
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release of the working tree, for this system alone, after a second build."""
    tree = tmp_path_factory.mktemp("release") / "tree"
    built = shutil.ignore_patterns(".git", ".venv", "build", "dist", "*.egg-info", "*.so", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, tree, ignore=built)
    person = ("-c", "user.name=releaser", "-c", "user.email=releaser@example.org")
    for words in (("init", "--quiet"), ("add", "--all"), (*person, "commit", "--quiet", "--message", "release: try it")):
        say("git", *words, cwd=tree)
    said = say("make", "release-check", "PLACES=", f"RELEASE={ROOT}/build/release", cwd=tree)
    count = len(list((tree / "dist/release").iterdir()))
    assert said.splitlines()[-1] == f"{count} of {count} files are equal to the byte"
    return tree / "dist/release"


def test_a_release_has_archives_wheels_and_packages_of_every_distribution(release: Path) -> None:
    names = {path.name for path in release.iterdir()}
    for name in ("jetdvfs", "jetdvfs_twin", "jetdvfs_lab"):
        assert f"{name}-{VERSION}.tar.gz" in names
        assert len(list(release.glob(f"{name}-{VERSION}-*.whl"))) == 1
        assert len(list(release.glob(f"{name.replace('_', '-')}_{VERSION}-1~*.deb"))) == 1
    assert (release / f"jetdvfs_{VERSION}-1.dsc").exists()
    (core,) = release.glob("jetdvfs-*.whl")
    assert "-cp310-abi3-manylinux" in core.name
    say("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", cwd=release)


def test_the_bill_of_materials_names_files_dependencies_bounds_and_licences(release: Path) -> None:
    bill = json.loads((release / f"jetdvfs-{VERSION}.cdx.json").read_text())
    files = {one["name"]: one["hashes"][0]["content"] for one in bill["components"] if one["type"] == "file"}
    ours = {path.name for path in release.iterdir()} - {"SHA256SUMS", f"jetdvfs-{VERSION}.cdx.json"}
    assert files == {name: sha256((release / name).read_bytes()).hexdigest() for name in ours}
    libraries = [one for one in bill["components"] if one["type"] == "library"]
    assert all(one["licenses"] for one in libraries)
    required = {one["name"]: one["properties"] for one in libraries if one.get("scope") == "required"}
    assert required.keys() == {"numpy", "pyyaml", "msgspec"}
    bounds = {one.name: f"{one.specifier}" for one in declared()[REQUIRED]}
    assert {"name": "jetdvfs:required", "value": bounds["msgspec"]} in required["msgspec"]
    brought = {one["ref"]: one.get("dependsOn") for one in bill["dependencies"] if one["ref"].endswith("_all.deb")}
    assert any(one.startswith("pypi/mfusepy@") for libraries in brought.values() for one in libraries or ())


def test_a_key_signs_the_sums(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "keys"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    key = "releaser@example.org"
    say("gpg", "--batch", "--passphrase", "", "--quick-generate-key", key, cwd=tmp_path)
    sign(release, key)
    say("gpg", "--verify", "SHA256SUMS.asc", "SHA256SUMS", cwd=release)
    say("gpgconf", "--kill", "all", cwd=tmp_path)


def test_the_source_archives_alone_build_what_installs_runs_and_passes_tests(release: Path, tmp_path: Path) -> None:
    for path in release.glob("*.tar.gz"):
        with tarfile.open(path) as archive:
            archive.extractall(tmp_path, filter="data")
    sources = [tmp_path / f"{name}-{VERSION}" for name in ("jetdvfs", "jetdvfs_twin", "jetdvfs_lab")]
    say(sys.executable, "-m", "venv", "fresh", cwd=tmp_path)
    pip = (tmp_path / "fresh/bin/pip", "--quiet", "--disable-pip-version-check")
    say(*pip, "wheel", "--no-deps", "--wheel-dir", "wheels", *sources, cwd=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*(path.name for path in sources), "fresh", "wheels"}
    say(*pip, "install", *(tmp_path / "wheels").iterdir(), cwd=tmp_path)
    bin_ = tmp_path / "fresh/bin"
    assert say(bin_ / "jetdvfs", "--version", cwd=tmp_path) == f"jetdvfs {VERSION}\n"
    words = ("twin", "try", "--", bin_ / "jetdvfs", "hold", "--config", "1190.4,675.75,1600", "--", bin_ / "jetdvfs", "status")
    assert "675.75" in say(bin_ / "jetdvfs", *words, cwd=tmp_path)
    say("make", "test", "TESTS=tests/test_architecture.py tests/test_packaging.py", "JOBS=2", cwd=sources[0])


def test_the_source_package_builds_the_packages_of_this_system(release: Path, tmp_path: Path) -> None:
    say("dpkg-source", "--extract", release / f"jetdvfs_{VERSION}-1.dsc", "source", cwd=tmp_path)
    say("dpkg-buildpackage", "--build=binary", "--no-sign", cwd=tmp_path / "source")
    assert {path.name for path in tmp_path.glob("*.deb")} == {path.name for path in release.glob("*.deb")}
