# SPDX-License-Identifier: Apache-2.0
"""Build a release from the last commit.

    python systemd/release.py build FOLDER [PLACE...]   source archives, wheels, Debian source and binary packages,
                                                      bill of materials, sums
    python systemd/release.py check FOLDER [PLACE...]   build it again elsewhere; name the files that differ from FOLDER's

Run by the Makefile, with Python of the environment of release-tools.txt. The wheels, and the Debian packages of this system,
are built here. A PLACE is another Debian, such as trixie/amd64 or bookworm/arm64: a root file system below build/roots, which
needs root. The first one of arm64 also builds the wheel for aarch64, under QEMU on another processor. The last lines name what
was left out. $KEY is a key of gpg that signs the sums.
"""

from __future__ import annotations

import gzip
import io
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ROOTS = ROOT / "build" / "roots"
SYSTEM = ROOT / "tests" / "system"
APART = ("profiles/twin", "profiles/lab")
#: Packages of a root file system.
INSIDE = ("python3-venv", "python3-dev", "gcc", "libc6-dev", "ca-certificates", "dpkg-dev")
#: ELF's number of each processor.
MACHINES = {"x86_64": 62, "aarch64": 183}
#: No debugging data: it has the names of folders.
FLAGS = "-g0"

_ENVIRONMENT = "python3 -m venv venv && venv/bin/pip install --quiet --disable-pip-version-check --constraint packed.txt"
_WHEEL = f"""
{_ENVIRONMENT} setuptools wheel packaging
CFLAGS={FLAGS} venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir out *.tar.gz
"""
_DEBS = f"""
{_ENVIRONMENT} "$(ls jetdvfs-*.whl)[package,twin]"
venv/bin/pip install --quiet --disable-pip-version-check --no-deps jetdvfs_*.whl
venv/bin/python source/systemd/package.py deb out
"""


@dataclass(frozen=True)
class Release:
    """A commit to build, and where.

    Attributes:
        scratch: folder for intermediate files.
        folder: folder of the finished files.
        seconds: time of the commit, the time of every file.
    """

    scratch: Path
    folder: Path
    seconds: int

    @property
    def source(self) -> Path:
        return self.scratch / "source"

    @property
    def version(self) -> str:
        found = re.search(r'^__version__ = "(.*)"$', (self.source / "__init__.py").read_text(), re.MULTILINE)
        assert found is not None
        return found[1]

    def run(self, *command: str | Path, cwd: Path | None = None) -> str:
        """Run a command; if it fails, end with its output."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, **self.variables(), "PATH": path}
        done = subprocess.run(
            command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(f"{shlex.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
        return done.stdout

    def variables(self) -> dict[str, str]:
        return {"SOURCE_DATE_EPOCH": str(self.seconds), "LC_ALL": "C.UTF-8", "TZ": "UTC", "CFLAGS": FLAGS}

    def inside(self, root: Path | None, script: str, files: Sequence[Path]) -> list[Path]:
        """Run a script in a root file system, or here, in a folder with these files; return the files in its ``out``."""
        work = (root or self.scratch) / f"work-{self.scratch.name}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        for path in files:
            shutil.copy(path, work)
        shutil.copy(self.source / "systemd/packed-libraries.txt", work / "packed.txt")
        shutil.copytree(self.source, work / "source")
        place = f"/{work.name}" if root else str(work)
        enter: list[str | Path] = [SYSTEM / "debian.sh", "enter", root] if root else []
        variables = {**self.variables(), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        words = (f"{name}={value}" for name, value in variables.items())
        self.run(*enter, "env", *words, "sh", "-ec", f"cd {shlex.quote(place)}\n{script}")
        made = Path(tempfile.mkdtemp(dir=self.scratch))
        shutil.copytree(work / "out", made, dirs_exist_ok=True)
        shutil.rmtree(work)
        return sorted(made.iterdir())


def export(scratch: Path, folder: Path) -> Release:
    """Unpack the last commit."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout.strip()

    if changed := git("status", "--porcelain"):
        sys.exit(f"a release is built from a commit; not committed:\n{changed}")
    release = Release(scratch, folder, int(git("log", "-1", "--format=%ct")))
    release.source.mkdir(parents=True)
    git("archive", "--output", str(scratch / "commit.tar"), "HEAD")
    with tarfile.open(scratch / "commit.tar") as archive:
        archive.extractall(release.source, filter="data")
    for part in APART:
        shutil.copy(release.source / "LICENSE", release.source / part)
        # A source archive of its own builds within its folder, not next to it.
        cfg = release.source / part / "setup.cfg"
        cfg.write_text(re.sub(r"\n# Outside.*\n\[build\]\nbuild_base = .*\n", "", cfg.read_text()))
    return release


def source_archives(release: Release) -> list[Path]:
    """Archives of the three distributions, with names in order, and one time and owner."""
    found = []
    for part in (".", *APART):
        release.run("pyproject-build", "--sdist", "--no-isolation", "--outdir", release.scratch, release.source / part)
    for path in sorted(release.scratch.glob("*.tar.gz")):
        packed = io.BytesIO()
        with tarfile.open(path) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
            for member in sorted(old.getmembers(), key=lambda one: one.name):
                member.mtime, member.pax_headers = release.seconds, {}
                member.uid = member.gid = 0
                member.uname = member.gname = "root"
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                new.addfile(member, old.extractfile(member) if member.isfile() else None)
        found.append(release.folder / path.name)
        found[-1].write_bytes(gzip.compress(packed.getvalue(), mtime=release.seconds))
    return found


def wheels(release: Release, root: Path | None, archives: Sequence[Path], machine: str) -> list[Path]:
    """Wheels built from source archives; that of the C core gets the tag of the oldest glibc it runs with."""
    found = []
    for path in release.inside(root, _WHEEL, archives):
        if path.name.endswith("-none-any.whl"):
            found.append(Path(shutil.copy(path, release.folder)))
            continue
        release.run("auditwheel", "repair", "--wheel-dir", release.folder, path)
        (wheel,) = release.folder.glob(f"*_{machine}.whl")
        shown = release.run("auditwheel", "show", wheel)
        print(f"{wheel.name}: symbols of {' '.join(sorted(set(re.findall(r'GLIBC_[0-9.]+', shown))))}")
        release.run("abi3audit", "--strict", wheel)
        with zipfile.ZipFile(wheel) as archive:
            (core,) = (archive.read(name) for name in archive.namelist() if name.endswith(".so"))
        if int.from_bytes(core[18:20], "little") != MACHINES[machine]:
            sys.exit(f"{wheel.name}: its C core is not for {machine}")
        found.append(wheel)
    return found


def packages(release: Release, root: Path | None, built: Sequence[Path]) -> None:
    """Debian packages of a system, from wheels."""
    made = release.inside(root, _DEBS, built)
    for path in made:
        if content(release.folder / path.name) not in (None, path.read_bytes()):
            sys.exit(f"{path.name}: its content depends on the architecture that builds it")
        shutil.copy(path, release.folder)
        print(path.name)
    check_policy(release, made)


def source_package(release: Release, archives: Sequence[Path]) -> None:
    (archive,) = (path for path in archives if path.name.startswith("jetdvfs-"))
    release.run("python", release.source / "systemd/source_package.py", archive, release.folder)
    check_policy(release, sorted(release.folder.glob("*.dsc")))


def check_policy(release: Release, made: Sequence[Path]) -> None:
    if shutil.which("lintian"):
        release.run("lintian", "--allow-root", "--fail-on", "error,warning", *made)


def here() -> str:
    """This system as a place."""
    return f"{platform.freedesktop_os_release().get('VERSION_CODENAME')}/{architecture()}"


def architecture() -> str:
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()


def root_for(place: str) -> Path | str:
    """Root file system of a place, or the reason why it cannot be made."""
    suite, _, wanted = place.partition("/")
    root = ROOTS / f"release-{suite}-{wanted}"
    debian, foreign = SYSTEM / "debian.sh", wanted != architecture()
    commands: list[list[str | Path]] = [[SYSTEM / "aarch64.sh", "check"]] if foreign else []
    commands.append([debian, "make", *([f"--arch={wanted}"] if foreign else []), suite, root, *INSIDE])
    commands.append([debian, "enter", root, "apt-get", "update", "-qq"])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return (done.stderr.strip() or done.stdout.strip() or "failed").splitlines()[-1]
    return root


def build(folder: Path, places: Sequence[str]) -> list[str]:
    """Build a release into an empty folder; return what was left out."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    left_out = []
    with tempfile.TemporaryDirectory(prefix="jetdvfs-release-") as scratch:
        release = export(Path(scratch), folder)
        archives = source_archives(release)
        own = platform.machine()
        built = {own: wheels(release, None, archives, own)}
        packages(release, None, built[own])
        source_package(release, archives)
        for place in places:
            if place == here():
                continue
            root = root_for(place)
            if isinstance(root, str):
                left_out.append(f"{place}: {root}")
                continue
            machine = {"amd64": "x86_64", "arm64": "aarch64"}[place.partition("/")[2]]
            if machine not in built:
                core = [path for path in archives if path.name.startswith("jetdvfs-")]
                pure = [path for path in built[own] if path.name.endswith("-none-any.whl")]
                built[machine] = [*wheels(release, root, core, machine), *pure]
            packages(release, root, built[machine])
        release.run("twine", "check", "--strict", *archives, *folder.glob("*.whl"))
        release.run("python", release.source / "systemd/sbom.py", folder, release.version, str(release.seconds))
    sums = "".join(f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir()))
    (folder / "SHA256SUMS").write_text(sums)
    if shutil.which("lintian") is None:
        left_out.append("lintian is not installed")
    for missing in {"aarch64", "x86_64"} - built.keys():
        left_out.append(f"the wheel for {missing}: no place of its architecture")
    return left_out


def sign(folder: Path, key: str) -> None:
    gpg = ("gpg", "--batch", "--yes", "--local-user", key)
    subprocess.run([*gpg, "--armor", "--detach-sign", folder / "SHA256SUMS"], check=True)


def members(path: Path) -> Iterator[tuple[str, str]]:
    """Names and digests of the files inside an archive, a wheel or a package."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            yield from ((name, sha256(wheel.read(name)).hexdigest()) for name in wheel.namelist())
        return
    if path.suffix not in (".deb", ".gz"):
        return
    packed = path.read_bytes()
    if path.suffix == ".deb":
        packed = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            yield member.name, f"{member.mtime} {member.mode} {sha256(file.read() if file else b'').hexdigest()}"


def check(folder: Path, places: Sequence[str]) -> list[str]:
    """Build again, in another folder; print and return the files that differ."""
    with tempfile.TemporaryDirectory(prefix="jetdvfs-again-") as scratch:
        again = Path(scratch) / "release"
        build(again, places)
        names = sorted({path.name for one in (folder, again) for path in one.iterdir() if path.suffix != ".asc"})
        different = [name for name in names if content(folder / name) != content(again / name)]
        for name in different:
            print(f"differs: {name}")
            if (folder / name).exists() and (again / name).exists():
                for member in sorted({inner for inner, _ in {*members(folder / name)} ^ {*members(again / name)}}):
                    print(f"  {member}")
    print(f"{len(names) - len(different)} of {len(names)} files are equal to the byte")
    return different


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


if __name__ == "__main__":
    os.umask(0o022)
    match sys.argv[1:]:
        case ["build", folder, *places]:
            for line in build(Path(folder), places):
                print(f"LEFT OUT: {line}")
            if key := os.environ.get("KEY"):
                sign(Path(folder), key)
        case ["check", folder, *places]:
            sys.exit(bool(check(Path(folder), places)))
        case _:
            sys.exit(__doc__)
