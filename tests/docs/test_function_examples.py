# SPDX-License-Identifier: Apache-2.0
"""Examples of public functions in the Python reference: each has one, and its output is as shown."""

from __future__ import annotations

import doctest
import importlib
import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jetdvfs
from jetdvfs.profiles.reference import reference_model
from jetdvfs.tests.support.references import FACES


def functions() -> Iterator[Any]:
    for face in FACES:
        module = importlib.import_module(f"jetdvfs.{face}")
        for name, member in vars(module).items():
            shown = name in getattr(module, "__all__", ()) if hasattr(module, "__all__") else not name.startswith("_")
            plain = inspect.unwrap(member) if callable(member) else member
            if shown and inspect.isfunction(plain) and plain.__module__ == module.__name__:
                yield pytest.param(plain, id=f"{face}.{name}")


@pytest.mark.parametrize("function", list(functions()))
def test_every_public_function_has_an_example_that_holds(
    function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(reference_model("resnet18"), tmp_path / "model.pt")
    monkeypatch.chdir(tmp_path)
    names = {**vars(importlib.import_module(function.__module__)), "jetdvfs": jetdvfs}
    (found,) = doctest.DocTestFinder(recurse=False).find(function, function.__name__, globs=names)
    if function.__module__.endswith(".qos"):  # its examples hold clocks, and tests of the daemon run them
        assert "::" in (inspect.getmodule(function).__doc__ or "")
        return
    assert found.examples
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    report: list[str] = []
    runner.run(found, out=report.append)
    assert not runner.failures, "".join(report)
