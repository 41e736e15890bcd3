# SPDX-License-Identifier: Apache-2.0
"""The rules of the house that imports and layout must keep."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from jetdvfs.docs.module_graph import PICTURE, picture
from jetdvfs.tests.support.imports import (
    CORE,
    FLOORS,
    PACKAGES,
    circle,
    floor_of,
    imported_names,
    imports,
    is_apart,
    is_face,
    modules,
    passages,
    room_of,
    syntax,
)
from jetdvfs.tests.support.paths import ROOT
from jetdvfs.tests.support.sizes import sizes

HEAVY = ("torch", "xgboost", "treelite", "optuna", "dask", "pandas", "sklearn", "scipy", "matplotlib", "jtop", "mfusepy")
# What the resident daemon may load beside the standard library.
# (msgspec itself loads typing_extensions where it happens to be installed.)
RESIDENT = {"numpy", "yaml", "msgspec", "systemd", "typing_extensions"}
MOST_FILES, MOST_LINES = 24, 600
CODE = (".py", ".c", ".h")

IMPORT_ALL = """
import importlib, sys

for name in sys.argv[1:]:
    try:
        importlib.import_module(f"jetdvfs.{name}")
    except ImportError as error:
        print(f"{name}: {error}")
"""


def not_imported(names: Iterable[str]) -> list[str]:
    program = [sys.executable, "-c", IMPORT_ALL, *names]
    return subprocess.run(program, capture_output=True, text=True, check=True, cwd="/").stdout.splitlines()


def loads_what_is_inside(name: str) -> bool:
    """Whether a package's face loads modules of the package, in which order they then are loaded whoever comes first."""
    path = modules()[name]
    loaded = [node for node in syntax(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return is_face(name) and any(
        imported.name.startswith(f"{name}.") for node in loaded for imported in imported_names(node, path)
    )


def test_every_module_can_be_imported() -> None:
    assert not not_imported(name for name in modules() if not name.endswith("__main__"))


def test_every_face_that_loads_what_is_inside_can_be_imported_first() -> None:
    faces = [*filter(loads_what_is_inside, modules())]
    assert faces and not [fault for name in faces for fault in not_imported([name])]


def test_no_modules_import_each_other_in_a_circle_not_even_for_types() -> None:
    def runs_first(name: str) -> frozenset[str]:
        """What a module imports, and the faces of the packages that lie on the way there."""
        found = {
            ".".join(parts[:end]) for other in imports(name) for parts in [other.split(".")] for end in range(1, len(parts))
        }
        return imports(name) | {face for face in found if not name.startswith(f"{face}.")} - {name}

    assert not circle({name: runs_first(name) for name in modules()})


def test_rooms_import_only_rooms_on_floors_below() -> None:
    upwards = [text for (room, other), found in passages().items() if floor_of(other) <= floor_of(room) for text in found]
    assert not upwards


def test_every_room_of_the_floor_plan_exists() -> None:
    rooms = [room for floor in FLOORS for room in floor]
    assert len(set(rooms)) == len(rooms) and set(rooms) <= modules().keys()


def test_no_two_rooms_of_the_core_are_on_one_floor() -> None:
    assert len({floor_of(room) for room in CORE}) == len(CORE)


def test_a_room_that_is_a_package_alone_is_only_its_face() -> None:
    assert [name for name in modules() if room_of(name) == "daemon"] == ["daemon"]


def test_the_picture_of_the_rooms_is_up_to_date() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), "python docs/module_graph.py draws it again"


def test_dependencies_run_daemon_to_profiles_to_kernels_only() -> None:
    upwards = [
        f"{name} imports {other}"
        for name in modules()
        for other in imports(name)
        if PACKAGES.index(other.partition(".")[0]) < PACKAGES.index(name.partition(".")[0]) and not is_apart(name)
    ]
    assert not upwards


def test_the_runtime_imports_neither_the_lab_nor_the_simulated_board() -> None:
    assert not [
        f"{name} imports {other}" for name in modules() if not is_apart(name) for other in imports(name) if is_apart(other)
    ]


def test_the_whole_runtime_loads_without_the_lab_and_the_simulated_board() -> None:
    runtime = [name for name in modules() if not is_apart(name) and not name.endswith("__main__")]
    loaded = loaded_by(f"import importlib; [importlib.import_module(f'jetdvfs.{{name}}') for name in {runtime}]")
    assert not {name for name in loaded if name.startswith("jetdvfs.") and is_apart(name.removeprefix("jetdvfs."))}


def test_the_product_imports_itself_relatively() -> None:
    absolute = [
        name
        for name, path in modules().items()
        for imported in imported_names(syntax(path), path)
        if imported.name.split(".")[0] == "jetdvfs"
    ]
    assert not absolute


def test_tests_import_by_full_names_and_never_each_other() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {imported.name}"
        for path in (ROOT / "tests").rglob("*.py")
        for imported in imported_names(syntax(path), path)
        if imported.level or imported.name.startswith("tests.") or ".test_" in imported.name
    ]
    assert not wrong


def test_tests_stand_in_the_folder_of_what_they_test() -> None:
    assert {path.name for path in (ROOT / "tests").glob("test_*.py")} == {"test_architecture.py", "test_packaging.py"}


def test_no_folder_but_the_command_lines_has_more_files_than_are_seen_at_a_glance() -> None:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.suffix in CODE]
    counted = Counter(path.parent.relative_to(ROOT) for path in files if path.name != "__init__.py")
    command_lines = (Path("daemon/cli"), Path("profiles/lab/cli"))  # a file a verb
    assert not {str(at): count for at, count in counted.items() if count > MOST_FILES and at not in command_lines}


def test_no_file_of_the_product_is_too_long_to_be_read_at_once() -> None:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.suffix in CODE]
    lines = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in files}
    assert not {name: count for name, count in lines.items() if count > MOST_LINES}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_a_heavy_library_when_it_is_loaded(package: str) -> None:
    eager = []
    for name, path in modules().items():
        for statement in syntax(path).body:
            if name.split(".")[0] == package and isinstance(statement, (ast.Import, ast.ImportFrom)):
                eager += [
                    f"{name}: {found.name}" for found in imported_names(statement, path) if found.name.split(".")[0] in HEAVY
                ]
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
    assert {"msgspec"} <= strangers(loaded) <= RESIDENT - {"numpy"}
    own = [path for name, path in modules().items() if name.startswith("daemon") and f"jetdvfs.{name}" in loaded]
    named = {found.name for path in own for found in imported_names(syntax(path), path) if not found.level}
    assert {"systemd"} <= strangers(named) <= RESIDENT


def test_the_twin_and_the_cost_models_share_no_formula_code() -> None:
    allowed = {("kernels", "network"), ("kernels", "grid"), ("kernels", "errors")}
    for name in (name for name in modules() if room_of(name) in ("profiles.twin", "profiles.twin.silicon")):
        kernels = {tuple(other.split(".")[:2]) for other in imports(name) if other.startswith("kernels")}
        assert kernels <= allowed, name
        attributes = {node.attr for node in ast.walk(syntax(modules()[name])) if isinstance(node, ast.Attribute)}
        assert not attributes & {"flops", "bytes"}, f"{name} takes its work from the decomposition instead of from shapes"


def test_no_part_outgrows_its_budget() -> None:
    found = sizes()
    for size in found:
        print(f"{size.part}: {size.measured:,} of {size.budget:,}; goal {size.goal:,}")
    assert not [size for size in found if size.measured > size.budget]


def test_every_source_file_names_its_licence() -> None:
    tests = (ROOT / "tests").rglob("*.py")
    code = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.suffix in CODE]
    said: dict[Path, str] = {path: path.read_text(encoding="utf-8")[:200] for path in (*code, *tests, ROOT / "__init__.py")}
    assert not [str(path) for path, text in said.items() if "SPDX-License-Identifier: Apache-2.0" not in text]


def test_no_class_name_means_two_things() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for package in ("daemon", "kernels", "profiles"):
        for path in sorted((ROOT / package).rglob("*.py")):
            names = {node.name for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ClassDef)}
            for name in names:
                places[name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
