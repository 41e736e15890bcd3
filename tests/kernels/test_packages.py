# SPDX-License-Identifier: Apache-2.0
"""Missing optional packages, in one line."""

from __future__ import annotations

import importlib

import pytest

from jetdvfs.kernels.packages import needing


def test_a_missing_package_is_named_with_how_to_install_it() -> None:
    line = r"pictures: needs the Python package no_such_one \(sudo apt-get install python3-matplotlib, or from a clone: .*plot"
    with pytest.raises(LookupError, match=line), needing("pictures", "plot", LookupError):
        importlib.import_module("no_such_one")
    with pytest.raises(LookupError, match=r"trees: needs a package \(broken\)"), needing("trees", "train", LookupError):
        raise ImportError("broken")
