# SPDX-License-Identifier: Apache-2.0
"""The rules of the house that imports and layout must keep."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import jetdvfs

ROOT = Path(jetdvfs.__file__).parent
PACKAGES = ("kernels", "profiles", "daemon")
HEAVY = ("torch", "xgboost", "treelite", "optuna", "dask", "pandas", "sklearn", "scipy", "matplotlib", "jtop", "mfusepy")
# What the resident daemon may load beside the standard library.
RESIDENT = {"numpy", "yaml", "psutil", "systemd"}


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported_packages(path: Path) -> set[tuple[str, ...]]:
    """Every module a file imports, at any depth in the code, relative ones resolved to paths inside the product."""
    here = path.relative_to(ROOT).with_suffix("").parts
    found: set[tuple[str, ...]] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ("jetdvfs", *here[: len(here) - node.level]) if node.level else ()
            module = tuple((node.module or "").split(".")) if node.module else ()
            found |= {base + module + (alias.name,) for alias in node.names}
    return found


def test_dependencies_run_daemon_to_profiles_to_kernels_only() -> None:
    forbidden = {"kernels": {"profiles", "daemon"}, "profiles": {"daemon"}}
    upwards = [
        f"{path.relative_to(ROOT)} imports {'.'.join(name)}"
        for folder, above in forbidden.items()
        for path in modules(folder)
        for name in imported_packages(path)
        if name[0] == "jetdvfs" and len(name) > 1 and name[1] in above
    ]
    assert not upwards


def test_the_product_imports_itself_relatively() -> None:
    absolute = [
        str(path.relative_to(ROOT))
        for folder in PACKAGES
        for path in modules(folder)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "jetdvfs" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "jetdvfs")
    ]
    assert not absolute


@pytest.mark.parametrize("folder", PACKAGES)
def test_no_module_imports_a_heavy_library_when_it_is_loaded(folder: str) -> None:
    eager = []
    for path in modules(folder):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            eager += [f"{path.relative_to(ROOT)}: {name}" for name in names if name.split(".")[0] in HEAVY]
    assert not eager


def loaded_by(statement: str) -> set[str]:
    """The modules that a statement loads; those without a specification are made in memory, as Cython's are."""
    program = (
        f"import sys; before = set(sys.modules); {statement}; "
        "print(*(name for name in set(sys.modules) - before if getattr(sys.modules[name], '__spec__', None)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    return set(done.stdout.split())


def strangers(modules: set[str]) -> set[str]:
    """The top-level ones outside the standard library and the product. An editable installation brings a finder of its own."""
    names = {name.split(".")[0] for name in modules} - sys.stdlib_module_names - {"jetdvfs"}
    return {name for name in names if not name.startswith("__editable__")}


def test_an_application_loads_the_standard_library_only() -> None:
    assert not strangers(loaded_by("from jetdvfs import Client, qos"))


def test_the_resident_daemon_loads_few_libraries_at_its_start_and_later() -> None:
    loaded = loaded_by("import jetdvfs.daemon.service, jetdvfs.daemon.resident")
    assert {"numpy", "yaml"} <= strangers(loaded) <= RESIDENT
    files = [
        path for path in modules("daemon") if ".".join(("jetdvfs", *path.relative_to(ROOT).with_suffix("").parts)) in loaded
    ]
    named = {name[0] for path in files for name in imported_packages(path)}
    assert {"psutil", "systemd"} <= strangers(named) <= RESIDENT


def test_the_twin_and_the_cost_models_share_no_formula_code() -> None:
    twin = ROOT / "profiles" / "twin"
    allowed = {("kernels", "network"), ("kernels", "grid"), ("kernels", "errors")}
    for path in sorted(twin.rglob("*.py")):
        kernels = {name[1:3] for name in imported_packages(path) if name[:2] == ("jetdvfs", "kernels")}
        assert kernels <= allowed, path
        tree = ast.parse(path.read_text(encoding="utf-8"))
        attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not attributes & {"flops", "bytes"}, f"{path} takes its work from the decomposition instead of from shapes"
    for path in modules("kernels"):
        assert not any(name[:3] == ("jetdvfs", "profiles", "twin") for name in imported_packages(path)), path


def test_every_source_file_names_its_licence() -> None:
    files = [path for folder in (*PACKAGES, "tests") for path in modules(folder)] + [ROOT / "__init__.py"]
    said = {path: path.read_text(encoding="utf-8")[:200] for path in files}
    assert not [str(path) for path, text in said.items() if "SPDX-License-Identifier: Apache-2.0" not in text]
