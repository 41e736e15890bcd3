#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Digests of what sweeps and surfaces come to on this machine, to be compared with another one's, and the C core against NumPy.

The models are those of the shipped bundle; the rows are made of integers, so that no machine's mathematics library has a say.
"""

from __future__ import annotations

import hashlib
import lzma
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import jetdvfs
from jetdvfs.kernels.trees import ensemble
from jetdvfs.kernels.trees.ensemble import TreeEnsemble
from jetdvfs.profiles.board import load_board

BUNDLE = Path(jetdvfs.__file__).parent / "profiles" / "bundles" / "agx-xavier-sim"
ROWS = 8


def rows_for(model: TreeEnsemble, seed: int) -> NDArray[Any]:
    """Rows of halves, a few of them missing."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-40, 4000, (ROWS, model.n_features)).astype(np.float32) / 2
    rows[rng.integers(0, 20, rows.shape) == 0] = np.nan
    return rows


def main() -> None:
    levels = load_board("agx-xavier").grid.levels_mhz()
    compiled, core = [], ensemble._core
    spent = {"C core": 0.0, "NumPy": 0.0}
    for seed, path in enumerate(sorted(BUNDLE.glob("*.trees.xz"))):
        model = TreeEnsemble.from_compact(lzma.decompress(path.read_bytes()))
        rows = rows_for(model, seed)
        results = {}
        for name, used in (("C core", core), ("NumPy", None)):
            ensemble._core = used
            began = time.process_time()
            results[name] = model.sweep(rows, levels)
            spent[name] += time.process_time() - began
        ensemble._core = core
        equal = np.array_equal(results["C core"], results["NumPy"])
        compiled.append(equal)
        digest = hashlib.sha256(results["C core"].astype("<f4").tobytes()).hexdigest()[:24]
        print(f"digest {path.name.removesuffix('.trees.xz'):28} {digest} {'equal to NumPy' if equal else 'NOT NumPy'}")
    assert all(compiled), "the C core and NumPy differ"
    ratio = spent["NumPy"] / spent["C core"]
    machine = f"{platform.machine()}, numpy {np.__version__}, {'C core' if core else 'without the C core'}"
    print(f"{machine}: {len(compiled)} models, {ROWS} rows: NumPy takes {ratio:.0f} times the C core's CPU time")


if __name__ == "__main__":
    main()
