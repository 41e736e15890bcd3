# SPDX-License-Identifier: Apache-2.0
"""What an installation brings: the wheel and the source archive are built from a copy of the tree and looked into."""

from __future__ import annotations

import configparser
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import jetdvfs
from jetdvfs.systemd.audit import verdict
from jetdvfs.systemd.dependencies import REQUIRED, closure, declared, listed
from jetdvfs.systemd.dependencies import installed as installed_dependencies
from jetdvfs.systemd.install_packages import line_for
from jetdvfs.systemd.package import provided
from jetdvfs.tests.support.imports import APART, is_apart, modules

ROOT = Path(jetdvfs.__file__).resolve().parent
PACKAGES = ("kernels", "profiles", "daemon")
# Sources of the product's own folders that are data, not code.
DATA = (
    "boards/*.yaml",
    "bundles/*/*",
    "reference/*.pt",
    "reference/LICENSE-*",
    "cli/web/*.html",
    "cli/web/*.css",
    "cli/web/*.js",
    "**/*.pyi",
)
#: The same of the distributions beside it, by the package that each adds.
DATA_APART = {
    "profiles.lab": ("compare/real/*.json.xz", "train/*.json.xz"),
    "profiles.twin": ("measured/mappings/*.yaml", "silicon/chips/*.yaml", "silicon/chips/common/*.yaml"),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels and the source archive, built without the network."""
    if importlib.util.find_spec("wheel") is None or int(version("setuptools").split(".")[0]) < 68:
        pytest.skip("needs the Python packages setuptools (68 or newer) and wheel")
    if not (ROOT / "setup.cfg").exists():
        pytest.skip("needs the source tree, not an installation")
    folder = tmp_path_factory.mktemp("built")
    tree = folder / "tree"
    private = shutil.ignore_patterns(".[!c]*", "build", "dist", "*.egg-info", "*.so", "__pycache__", "demo-out")
    shutil.copytree(ROOT, tree, ignore=private)
    apart = [tree / package.replace(".", "/") for package in APART]
    for what, place in (("sdist", tree), *(("wheel", place) for place in (tree, *apart))):
        program = f"from setuptools import build_meta; build_meta.build_{what}({str(folder)!r})"
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=place, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("jetdvfs-*.whl")
    return zipfile.ZipFile(path)


def in_wheel(files: set[Path]) -> set[str]:
    return {f"jetdvfs/{path.relative_to(ROOT)}" for path in files if "__pycache__" not in path.parts}


def runtime_files() -> set[str]:
    """Every file of the source tree that an application or the daemon may need, as named in a wheel."""
    files = {path for name, path in modules().items() if not is_apart(name)}
    files |= {path for folder in PACKAGES for pattern in DATA for path in (ROOT / folder).glob(pattern) if path.is_file()}
    return in_wheel(files | {ROOT / "__init__.py", ROOT / "py.typed"})


def files_apart(package: str) -> set[str]:
    """The same of the lab or of the simulated board."""
    files = {path for name, path in modules().items() if f"{name}.".startswith(f"{package}.")}
    folder = ROOT / package.replace(".", "/")
    return in_wheel(files | {path for pattern in DATA_APART[package] for path in folder.glob(pattern)})


def held(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name and not name.endswith(".so")}


def test_the_wheel_holds_the_runtime_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    assert held(wheel) == runtime_files()


@pytest.mark.parametrize("package", APART)
def test_the_lab_and_the_simulated_board_are_wheels_of_their_own(built: Path, package: str) -> None:
    (path,) = built.glob(f"jetdvfs_{package.rpartition('.')[2]}-*.whl")
    assert held(zipfile.ZipFile(path)) == files_apart(package)
    assert f"-{jetdvfs.__version__}-py3-none-any" in path.name


def test_the_wheel_stays_small_enough_for_a_board(built: Path) -> None:
    (file,) = built.glob("jetdvfs-*.whl")
    assert file.stat().st_size < 8_000_000, f"{file.stat().st_size} bytes: which profile or list grew?"


def test_one_wheel_with_the_c_core_serves_every_supported_python(built: Path, wheel: zipfile.ZipFile) -> None:
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("needs a C compiler")
    (path,) = built.glob("jetdvfs-*.whl")
    assert "-cp310-abi3-" in path.name
    assert "jetdvfs/kernels/trees/_sweep.abi3.so" in wheel.namelist()


@pytest.fixture(scope="module")
def installed(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a virtual environment with the wheel in it, in a folder that only its owner may enter."""
    folder = tmp_path_factory.mktemp("installed")
    folder.chmod(0o700)
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    (site,) = (Path(path) for path in printed(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    wheel.extractall(site)
    # What it depends on is borrowed from here; .pth files over there, and so an editable installation, are not followed.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def printed(python: Path, program: str, *arguments: object) -> list[str]:
    command = [str(python), "-I", "-c", program, *map(str, arguments)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_wheel_runs_where_it_is_installed(installed: Path) -> None:
    (path,) = printed(installed, "import jetdvfs; print(jetdvfs.__file__)")
    assert path.startswith(str(installed.parent.parent))
    model = Path(path).parent / "profiles/reference/alexnet.pt"
    main = "import sys; from jetdvfs.daemon.cli import main; sys.exit(main(sys.argv[1:]))"
    assert "agx-xavier-sim" in "".join(printed(installed, main, "profile", "list"))
    profile = ("--profile", "agx-xavier-sim", "--target", "min-edp")
    assert "agx-xavier-sim" in printed(installed, main, "plan", model, "--input", "1x3x224x224", *profile)[0]


@pytest.mark.parametrize(("face", "words"), [("lab", ("train",)), ("main", ("twin", "demo"))])
def test_a_command_whose_package_is_not_installed_says_how_to_install_it(
    installed: Path, face: str, words: tuple[str, ...]
) -> None:
    program = f"import sys; from jetdvfs.daemon.cli import {face}; sys.exit({face}(sys.argv[1:]))"
    command = [str(installed), "-I", "-c", program, *words]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (2, 3) and done.stdout == ""
    assert re.fullmatch(r"jetdvfs.*not installed; .*pip install \./profiles/twin.*\n", done.stderr)


def test_workers_do_their_jobs_although_they_may_not_enter_the_installation(installed: Path, tmp_path: Path) -> None:
    program = """
import asyncio, socket, sys
from pathlib import Path
from jetdvfs.daemon.descriptors.disposal import DescriptorGrant
from jetdvfs.daemon.profile import find_profile
from jetdvfs.daemon.surfaces import Surfaces, table_folder
from jetdvfs.daemon.worker.workers import Workers
from jetdvfs.profiles.bundle.surface_cache import SurfaceCache
from jetdvfs.profiles.reference import reference_model
from jetdvfs.kernels.network import TensorSpec

async def jobs():
    folder = Path(sys.argv[1])
    profile = find_profile("agx-xavier-sim", "agx-xavier")
    surfaces = Surfaces(Workers, profile, table_folder(folder / "cache"), SurfaceCache(folder / "surfaces"))
    ours, theirs = socket.socketpair()
    with reference_model("alexnet").open("rb") as model:
        socket.send_fds(theirs, [b"call"], [model.fileno()])
    network = await surfaces.decompose(DescriptorGrant(ours, 4, 0), [TensorSpec((1, 3, 224, 224))], "alexnet")
    surface = await surfaces.surface(network)
    print(network.info["name"], surface.grid.shape == profile.identity.grid.shape, *surfaces.troubles)

asyncio.run(jobs())
"""
    assert printed(installed, program, tmp_path) == ["alexnet True"]


def test_the_source_archive_can_be_built_and_tested(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    files = runtime_files().union(*(files_apart(package) for package in APART))
    assert {name.removeprefix("jetdvfs/") for name in files} <= names
    assert {f"profiles/{part}/{name}" for part in ("lab", "twin") for name in ("setup.cfg", "pyproject.toml")} <= names
    assert {"setup.py", "setup.cfg", "pyproject.toml", "Makefile", "LICENSE", ".ci/run"} <= names
    assert {"README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"} <= names
    for folder in ("docs", "systemd", "tests"):
        paths = {path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        assert {str(path.relative_to(ROOT)) for path in paths} <= names


def test_every_folder_with_modules_is_a_listed_package() -> None:
    listed = []
    for folder in (ROOT, *(ROOT / package.replace(".", "/") for package in APART)):
        parser = configparser.ConfigParser()
        parser.read(folder / "setup.cfg")
        listed += parser["options"]["packages"].split()
    folders = {path.parent for path in modules().values()}
    found = [".".join(("jetdvfs", *folder.relative_to(ROOT).parts)) for folder in folders]
    assert sorted(listed) == sorted(["jetdvfs", *found])


def test_the_version_is_the_same_everywhere() -> None:
    assert version("jetdvfs") == jetdvfs.__version__
    for package in APART:
        text = (ROOT / package.replace(".", "/") / "setup.cfg").read_text()
        assert set(re.findall(r"^version = (.*)$|jetdvfs(?:-twin|\[\w+\])?==(.*)$", text, re.MULTILINE)) <= {
            (jetdvfs.__version__, ""),
            ("", jetdvfs.__version__),
        }
    for name, form in (("package.xml", "<version>(.*)</version>"), ("setup.py", 'version="(.*)"')):
        assert re.findall(form, (ROOT / "daemon/integrations/ros2" / name).read_text()) == [jetdvfs.__version__]
    assert f"\n## [{jetdvfs.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_oldest_dependencies_that_are_tried_are_the_oldest_that_are_admitted() -> None:
    """Each lower bound of the product and of its extras is a line of the constraints of `make test-oldest`."""
    admitted = {str(one).lower().replace(">=", "==") for wanted in declared().values() for one in wanted if ">=" in str(one)}
    assert {line.lower() for line in requirements("oldest.txt")} == admitted


#: Beginnings of permissive licences, and of those that bind changes of the library alone.
PERMISSIVE = ("MIT", "BSD", "3-Clause BSD", "0BSD", "Apache", "ASL 2", "PSF", "Python", "ISC", "Zlib", "CC0", "BSL-1.0")
WEAK = ("MPL", "Mozilla Public License 2", "LGPL-2.1", "CNRI")
#: A program that the operator may have installed, whose package is imported at its side.
APART_BY_LICENCE = {"jetson-stats": "AGPL-3.0"}


def test_every_dependency_has_a_licence_that_is_allowed() -> None:
    found = {**listed(), **installed_dependencies()}
    found |= {
        name: one for name, one in listed().items() if found[name].licence == "Dual License"
    }  # an older release names none
    required = closure((one.name for one in declared()[REQUIRED]), found)
    # PyTorch brings them for the zoo on a machine with a GPU; their licence is NVIDIA's own.
    cuda = {name for name in closure(["torch"], found) if name.startswith(("cuda-", "nvidia-"))}
    for name in found.keys() - cuda:
        dependency = found[name]
        allowed = PERMISSIVE if name in required else PERMISSIVE + WEAK
        for term in re.split(r" (?:AND|OR|WITH LLVM-exception AND) ", dependency.licence):
            assert term.startswith(allowed) or APART_BY_LICENCE.get(name) == term, f"{name}: {dependency.licence}"


def test_every_dependency_outside_the_zoo_has_its_licence_listed() -> None:
    """`python systemd/dependencies.py` lists them."""
    wanted = {one.name.lower() for extra, wanted in declared().items() if extra != "zoo" for one in wanted}
    assert wanted <= listed().keys()


def test_debian_packages_of_a_release_bring_pinned_libraries() -> None:
    pinned = re.findall(r"^([\w-]+)==[\d.]+$", (ROOT / "systemd/packed-libraries.txt").read_text(), re.MULTILINE)
    assert {one.name for extra in (REQUIRED, "twin", "package") for one in declared()[extra]} <= set(pinned)


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ('{"dependencies": [{"name": "numpy", "version": "2.2.6", "vulns": []}]}', 0),
        ('{"dependencies": [{"name": "numpy", "version": "2.2.6", "vulns": [{"id": "PYSEC-1"}]}]}', 1),
        ('{"dependencies": [{"name": "numpy", "skip_reason": "not found"}]}', 75),
        ("", 75),
    ],
)
def test_an_audit_without_an_answer_is_told_from_one_without_a_vulnerability(output: str, code: int) -> None:
    assert verdict(output) == code


def requirements(name: str) -> list[str]:
    path = ROOT / "tests/system" / name
    if not path.exists():
        pytest.skip("needs the source tree, not an installation")
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("name", ["lint-tools.txt", "lint-types.txt"])
def test_every_requirement_of_the_lint_environment_is_pinned(name: str) -> None:
    """`make lint` installs these and, with --no-deps, nothing else: no new release decides whether types are right."""
    pinned = re.compile(r'[\w-]+==[\w.]+(; python_version [<>]=? "3\.\d+")?')
    assert [line for line in requirements(name) if not pinned.fullmatch(line)] == []
    (installing,) = re.findall(rf"install_packages\.py (.*) tests/system/{re.escape(name)}", (ROOT / "Makefile").read_text())
    assert installing == "--no-deps --requirement"


@pytest.mark.parametrize("broken", ["pytest", "mypy", "language", ""])
def test_lint_and_tests_both_run_and_either_failing_fails(tmp_path: Path, broken: str) -> None:
    if shutil.which("make") is None or not (ROOT / "Makefile").exists():
        pytest.skip("needs make and the source tree")
    shutil.copy(ROOT / "Makefile", tmp_path)
    log = tmp_path / "log"
    needed = ("env/bin/pip", "tests/system/lint-tools.txt", "tests/system/lint-types.txt", "env/.test", "env/.lint")
    for name in needed:  # in the order in which make wants them to be made
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name, tool in (("python", "pytest"), ("ruff", "ruff"), ("mypy", "mypy")):
        program = tmp_path / "env/bin" / name
        named = f"case $* in *language.py) tool=language ;; *) tool={tool} ;; esac"
        program.write_text(f"#!/bin/sh\n{named}\necho $tool >>{log}\n[ $tool != '{broken}' ]\n")
        program.chmod(0o755)
    command = ["make", "test", "VENV=env", "LINT=env", "BUILD=", "JOBS=1", "TESTS="]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode != 0) == bool(broken), done.stdout + done.stderr
    linted = ["ruff", "ruff", "mypy"] + ["language"] * (broken != "mypy")
    assert log.read_text().split() == [*linted, "pytest"]


@pytest.mark.parametrize(
    ("said", "silent_s", "line"),
    [
        ("  Downloading numpy-2.5.5-cp313-cp313-manylinux_2_28_x86_64.whl (16.6 MB)", 0.0, "numpy 2.5.5 (16.6 MB)"),
        ("  Using cached types_PyYAML-6.0.12-py3-none-any.whl (21 kB)", 0.0, "types-PyYAML 6.0.12 (21 kB)"),
        ("Processing /srv/wheels/msgspec-0.22.0-cp311-abi3-linux_x86_64.whl (from -r a.txt (line 6))", 0.0, "msgspec 0.22.0"),
        ("  Downloading numpy-2.5.5-cp313-cp313-manylinux_2_28_x86_64.whl.metadata (62 kB)", 0.0, None),
        ("  Building editable for jetdvfs (pyproject.toml): started", 0.0, "building jetdvfs"),
        ("Installing collected packages: numpy, msgspec, jetdvfs", 0.0, "unpacking 3 packages"),
        ("Collecting hypothesis>=6.100 (from jetdvfs==1.0.0)", 1.0, None),
        ("Collecting hypothesis>=6.100 (from jetdvfs==1.0.0)", 6.0, "looking up hypothesis"),
        ("Requirement already satisfied: pip in ./lib", 9.0, None),
    ],
)
def test_an_installation_prints_a_line_for_each_package(said: str, silent_s: float, line: str | None) -> None:
    assert line_for(said, silent_s) == line


def test_all_that_pip_said_follows_when_it_fails() -> None:
    if importlib.util.find_spec("pip") is None:
        pytest.skip("needs pip")
    command = [sys.executable, str(ROOT / "systemd/install_packages.py"), "--no-index", "no-such-package-anywhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "No matching distribution found for no-such-package-anywhere" in done.stderr


def test_hints_name_distributions_that_exist() -> None:
    """No index has a distribution of this name: an extra is installed from a clone."""
    if not (ROOT / "setup.cfg").exists():
        pytest.skip("needs the source tree, not an installation")
    folders = ("kernels", "profiles", "daemon", "docs")
    texts = [path for folder in folders for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind)]
    wrong = re.compile(r"pip install '?jetdvfs|jetdvfs\[")
    assert [str(path) for path in (*texts, ROOT / "README.md") if wrong.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("scipy", "names", "brought", "theirs"),
    [
        ("1.15.0", ["numpy"], [], {"numpy"}),
        ("(none)", ["numpy"], [], {"numpy"}),
        ("1.15.0", ["numpy", "scipy"], [], {"numpy", "scipy"}),
        ("(none)", ["numpy", "scipy"], [], set()),
        ("1.15.0", ["scipy"], ["numpy"], set()),
    ],
)
def test_numpy_is_brought_only_where_the_distributions_scipy_would_not_work_with_it(
    scipy: str, names: list[str], brought: list[str], theirs: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("dpkg") is None:
        pytest.skip("needs dpkg")
    script = tmp_path / "apt-cache"
    script.write_text(f'#!/bin/sh\ncase $2 in *scipy) v="{scipy}" ;; *) v=1:2.2.4 ;; esac\necho "x:"\necho "  Candidate: $v"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert provided(names, brought).keys() == theirs
