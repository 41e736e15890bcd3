# SPDX-License-Identifier: Apache-2.0
"""Assemble an installation: a tree of files below a prefix, or Debian packages.

    python systemd/package.py install PREFIX DESTDIR  the files of an installation that brings all of its libraries
    python systemd/package.py remove PREFIX DESTDIR   all of them but the configuration
    python systemd/package.py deb FOLDER              packages: jetdvfs, and jetdvfs-twin and jetdvfs-lab, for no robot;
                                                      libraries that this distribution has in time are left to it

Run by the Makefile. Except for `remove`, Python must be that of an environment with the product and its dependencies, from
which files are copied. Commands run in their own environment (PREFIX/lib/jetdvfs).
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from datetime import datetime, timezone
from email.utils import format_datetime
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PRODUCT = "jetdvfs"
#: Optional distributions, and their descriptions.
APART = {"jetdvfs-twin": "simulated Jetson boards for jetdvfs", "jetdvfs-lab": "measuring, training and studies for jetdvfs"}
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
#: Packages of the distribution with names of their own.
DEBIAN_NAMES = {"pyyaml": "python3-yaml"}
#: Where the distribution's own would not work with another release of the first.
TOGETHER = ("numpy", "scipy")
COMMANDS = {
    "jetdvfs": ("jetdvfs.daemon.cli", "main"),
    "jetdvfs-lab": ("jetdvfs.daemon.cli", "lab"),
    "jetdvfsd": ("jetdvfs.daemon.service", "main"),
}
#: Files of pip.
LEFT_OUT = ("RECORD", "REQUESTED", "INSTALLER", "direct_url.json")
MANIFEST = "lib/jetdvfs/installed"
DOCUMENTS = ("README.md", "SECURITY.md", "CHANGELOG.md")


class Tree:
    """Files of an installation, below a folder that stands for ``/``; ``prefix`` is ``/usr`` or ``/usr/local``."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self.folder = folder
        self.prefix = prefix

    def at(self, path: str) -> Path:
        """Place of a file, by its path below the prefix or from the root."""
        place = self.folder / (path if path.startswith("/") else f"{self.prefix}/{path}").lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        place = self.at(path)
        place.write_text(text, encoding="utf-8")
        place.chmod(mode)

    def add_environment(self, libraries: Iterable[str], *, system: bool) -> None:
        """Add the commands' Python environment, with the system's libraries last if ``system``."""
        base = Path(sys.base_prefix) / "bin"
        self.write(
            "lib/jetdvfs/pyvenv.cfg",
            f"home = {base}\ninclude-system-site-packages = {str(system).lower()}\nversion = {sys.version.split()[0]}\n",
        )
        python = self.at("lib/jetdvfs/bin/python3")
        python.unlink(missing_ok=True)
        python.symlink_to(os.path.relpath(base / PYTHON, f"{self.prefix}/lib/jetdvfs/bin"))
        for name in libraries:
            self.add_library(name, f"lib/jetdvfs/lib/{PYTHON}/site-packages")

    def add_library(self, name: str, into: str) -> None:
        """Add a distribution's files, without commands, tests and compiled files."""
        for file in distribution(name).files or ():
            if ".." in file.parts or file.suffix == ".pyc" or file.name in LEFT_OUT:
                continue
            if name != PRODUCT and "tests" in file.parts:
                continue
            place = self.at(f"{into}/{file}")
            shutil.copyfile(file.locate(), place)
            place.chmod(0o644)

    def add_the_rest(self) -> None:
        for name, (module, function) in COMMANDS.items():
            # -I: environment and home directory provide no libraries for a root daemon.
            program = (
                f"#!{self.prefix}/lib/jetdvfs/bin/python3 -I\nimport sys\n\n"
                f"from {module} import {function}\n\nsys.exit({function}())\n"
            )
            self.write(f"bin/{name}", program, 0o755)
        for unit in HERE.glob("jetdvfsd.*"):
            self.write(f"lib/systemd/system/{unit.name}", unit.read_text().replace("/usr/bin/", f"{self.prefix}/bin/"))
        for kind in ("sysusers", "tmpfiles"):
            self.write(f"lib/{kind}.d/jetdvfs.conf", (HERE / f"jetdvfs.{kind}.conf").read_text())
        with tempfile.TemporaryDirectory() as scratch:
            for script, place in (("manual", "man"), ("completion", "share")):
                subprocess.run([sys.executable, ROOT / "docs" / f"{script}.py", Path(scratch) / place], check=True)
            for page in (Path(scratch) / "man").iterdir():
                # Without a name and time in it, so that it is the same whenever it is made.
                self.at(f"share/man/man{page.suffix[1:]}/{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
            shutil.copytree(Path(scratch) / "share", self.at("share"), dirs_exist_ok=True)
        applications = ROOT / "daemon" / "integrations"
        for path in filter(Path.is_file, applications.rglob("*")):
            if path.suffix != ".pyc":
                name = str(path.relative_to(applications))
                place = f"include/{path.name}" if path.suffix in (".h", ".hpp") else f"share/{PRODUCT}/{name}"
                self.write(place, path.read_text(encoding="utf-8"))
        for name in DOCUMENTS:
            self.write(f"share/doc/{PRODUCT}/{name}", (ROOT / name).read_text(encoding="utf-8"))
        for path in (ROOT / "docs").rglob("*"):
            if path.suffix in (".md", ".svg", ".png", ".varlink"):
                self.at(f"share/doc/{PRODUCT}/docs/{path.relative_to(ROOT / 'docs')}").write_bytes(path.read_bytes())

    def files(self) -> Iterator[Path]:
        for path in sorted(self.folder.rglob("*")):
            if path.is_symlink() or not path.is_dir():
                yield Path("/") / path.relative_to(self.folder)


def configuration() -> str:
    from jetdvfs.daemon.cli.config import template

    return template()


def needed(name: str, found: dict[str, Requirement] | None = None, extras: Iterable[str] = ()) -> dict[str, Requirement]:
    """Direct and indirect dependencies by name, with a requirement each."""
    from packaging.requirements import Requirement

    found = {} if found is None else found
    wanted = ("", *extras)
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        other = requirement.name.lower()
        if requirement.marker is not None and not any(requirement.marker.evaluate({"extra": extra}) for extra in wanted):
            continue
        if other not in found or requirement.extras:
            found[other] = requirement
            needed(other, found, requirement.extras)
    return found


def bounds() -> dict[str, str]:
    """Oldest admitted release of each library, by setup.cfg."""
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    text = "\n".join((parser["options"]["install_requires"], *parser["options.extras_require"].values()))
    return {name.lower(): version for name, version in re.findall(r"^([\w-]+)>=([\d.]+)$", text, re.MULTILINE)}


def provided(names: Iterable[str], brought: Iterable[str] = ()) -> dict[str, str]:
    """Dependencies on packages of this distribution, for libraries in an admitted release except ``brought`` ones."""
    names = list(names)
    found = {}
    for name in names:
        package, oldest = DEBIAN_NAMES.get(name, f"python3-{name}"), bounds().get(name)
        said = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True, check=False).stdout
        candidate = re.search(r"^  Candidate: ((?:\d+:)?)(\S*\d\S*)$", said, re.MULTILINE)
        if candidate is None:
            continue
        if oldest is None:
            found[name] = package
        elif subprocess.run(["dpkg", "--compare-versions", candidate[2], "ge", oldest], check=False).returncode == 0:
            found[name] = f"{package} (>= {candidate[1]}{oldest})"
    if set(TOGETHER) & {*brought, *(name for name in names if name not in found)}:
        for name in TOGETHER:
            found.pop(name, None)
    return found


def release() -> str:
    """Distribution and version, such as ``debian12``: a package fits its Python only."""
    said = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
    return f"{said['ID']}{said.get('VERSION_ID', '')}"


def maintainer() -> str:
    found = re.search(r"^Maintainer: (.*)$", (HERE / "debian" / "control").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def made_at() -> str:
    return format_datetime(datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), timezone.utc))


def install(prefix: str, destdir: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        tree = Tree(Path(scratch), prefix)
        tree.add_environment([PRODUCT, *needed(PRODUCT)], system=False)
        tree.add_the_rest()
        own = f"{prefix}/lib/jetdvfs/"
        listed = [str(path) for path in tree.files() if not str(path).startswith(own)]
        tree.write(MANIFEST, "\n".join((*listed, "")))
        if not (destdir / "etc/jetdvfs/jetdvfsd.yaml").exists():
            tree.write("/etc/jetdvfs/jetdvfsd.yaml", configuration())
        place = destdir / own[1:]
        shutil.rmtree(place, ignore_errors=True)
        # One by one: folders that are there already stay as they are.
        for path in tree.files():
            target = destdir / str(path)[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copy(tree.folder / str(path)[1:], target, follow_symlinks=False)
        within = [] if destdir == Path("/") else ["-s", str(destdir), "-p", "/"]
        subprocess.run([sys.executable, "-m", "compileall", "-q", *within, place], check=True)


def remove(prefix: str, destdir: Path) -> None:
    ours = destdir / prefix[1:]
    try:
        listed = (ours / MANIFEST).read_text().splitlines()
    except OSError as error:
        sys.exit(f"nothing of jetdvfs is installed in {ours}: {error.strerror}")
    shutil.rmtree(ours / "lib/jetdvfs")
    for name in listed:
        path = destdir / name[1:]
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == ours or any(folder.iterdir()):
                break
            folder.rmdir()


def make_debs(folder: Path) -> None:
    """Make the packages of the product and its optional parts."""
    if sys.base_prefix != "/usr":
        sys.exit(f"a package is for the distribution's own Python, in /usr, not for that in {sys.base_prefix}")
    said = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout
    major, minor = sys.version_info[:2]
    python = [f"python3 (>= {major}.{minor}~)", f"python3 (<< {major}.{minor + 1}~)"]
    with tempfile.TemporaryDirectory() as scratch:
        tree = Tree(Path(scratch), "/usr")
        libraries = needed(PRODUCT)
        theirs = provided(libraries)
        brought = sorted(libraries.keys() - theirs.keys())
        tree.add_environment(brought, system=True)
        # Import path of every program of the system's Python.
        tree.add_library(PRODUCT, "lib/python3/dist-packages")
        tree.add_the_rest()
        tree.write("/etc/jetdvfs/jetdvfsd.yaml", configuration())
        log = (ROOT / "CHANGELOG.md").read_bytes()
        tree.at(f"share/doc/{PRODUCT}/changelog.gz").write_bytes(gzip.compress(log, mtime=0))
        tree.at(f"share/doc/{PRODUCT}/CHANGELOG.md").unlink()
        tree.write(f"share/lintian/overrides/{PRODUCT}", (HERE / "debian" / "lintian-overrides").read_text())
        for script in ("preinst", "postinst", "prerm", "postrm"):
            tree.write(f"/DEBIAN/{script}", (HERE / "debian" / script).read_text(), 0o755)
        tree.write("/DEBIAN/conffiles", "/etc/jetdvfs/jetdvfsd.yaml\n")
        depends = [*python, "systemd", "libc6", "libstdc++6"]
        build(tree, folder, PRODUCT, said.strip(), [*depends, *theirs.values()], "control", brought)
    with_the_product = brought
    for name, summary in APART.items():
        with tempfile.TemporaryDirectory() as scratch:
            tree = Tree(Path(scratch), "/usr")
            tree.add_library(name, "lib/python3/dist-packages")
            more = needed(name)
            there = set(libraries).union(*(needed(other) for other in APART if other in more), (PRODUCT, *APART))
            own = {other: more[other] for other in more if other not in there}
            theirs = provided(own, with_the_product)
            brought = sorted(own.keys() - theirs.keys())
            for library in brought:
                tree.add_library(library, f"lib/jetdvfs/lib/{PYTHON}/site-packages")
            depends = [*python, *(f"{other} (= {{version}})" for other in (PRODUCT, *APART) if other in more)]
            build(tree, folder, name, "all", [*depends, *theirs.values()], "control-apart", brought, summary)


def build(
    tree: Tree,
    folder: Path,
    name: str,
    architecture: str,
    depends: Iterable[str],
    control: str,
    brought: Iterable[str],
    summary: str = "",
) -> None:
    """Make one package of a tree; ``{version}`` in ``depends`` is its own, ``brought`` are the libraries in the tree."""
    root, version = tree.folder, f"{distribution(name).version}-1~{release()}"
    root.chmod(0o755)
    entry = f"{name} ({version}) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- {maintainer()}  {made_at()}\n"
    tree.at(f"share/doc/{name}/changelog.Debian.gz").write_bytes(gzip.compress(entry.encode(), mtime=0))
    tree.write(f"share/doc/{name}/copyright", (HERE / "debian" / "copyright").read_text())
    files = [path for path in tree.files() if not str(path).startswith("/DEBIAN/")]
    size = sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir()) // 1024
    said = ", ".join(depends).format(version=version)
    fields = {"name": name, "version": version, "architecture": architecture, "size": str(size), "depends": said}
    text = (HERE / "debian" / control).read_text()
    tree.write("/DEBIAN/control", re.sub(r"\{(\w+)\}", lambda found: {**fields, "summary": summary}[found[1]], text))
    sums = [
        f"{hashlib.md5((root / str(path)[1:]).read_bytes()).hexdigest()}  {str(path)[1:]}"
        for path in files
        if not (root / str(path)[1:]).is_symlink() and not str(path).startswith("/etc/")
    ]
    tree.write("/DEBIAN/md5sums", "\n".join((*sums, "")))
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / f"{name}_{version}_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, package], check=True, stdout=subprocess.DEVNULL)
    print(
        f"{package} ({package.stat().st_size / 1e6:.1f} MB; brings {', '.join(brought) or 'no library'}, "
        "the rest is the distribution's)"
    )


if __name__ == "__main__":
    os.umask(0o022)
    match sys.argv[1:]:
        case ["install", prefix, destdir]:
            install(prefix, Path(destdir))
        case ["remove", prefix, destdir]:
            remove(prefix, Path(destdir))
        case ["deb", folder]:
            make_debs(Path(folder))
        case _:
            sys.exit(__doc__)
