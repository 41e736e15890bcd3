# SPDX-License-Identifier: Apache-2.0
"""How long decomposing torchvision's classifiers takes, and how much memory.

    python tests/bench/decompose.py [--keep DIR]

With PyTorch and torchvision installed, every classifier of torchvision, scripted; without, the ten reference networks. The
files are written first (without weights, which are not read anyway), then a process of its own that knows nothing of PyTorch
decomposes each of them for one 224x224 picture: processor time, the best of three, warm; and its highest resident set size.
The same for the optimised view, which predictions take, in another process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

MEASURE = """
import json, sys, time
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import TensorSpec

inputs, taken = [TensorSpec((1, 3, 224, 224))], {}
for path in sys.argv[2:]:
    times = []
    for _ in range(3):
        began = time.process_time()
        decompose(path, inputs, optimized=sys.argv[1] == "optimized")
        times.append(1e3 * (time.process_time() - began))
    taken[path] = min(times)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps([taken, int(status["VmHWM"].split()[0]) / 1024]))
"""


def written(folder: Path) -> list[Path]:
    """A TorchScript file of each network; those that stand in the folder already are kept."""
    if find_spec("torch") is None or find_spec("torchvision") is None:
        from jetdvfs.profiles.reference import reference_model, reference_names

        print("PyTorch or torchvision is not installed: the ten reference networks")
        return [reference_model(name) for name in reference_names()]
    from jetdvfs.tests.support.models import oracle

    models = oracle.torchvision().models
    paths = []
    for name in models.list_models(module=models):
        path = folder / f"{name}.pt"
        if not path.exists():
            path.write_bytes(oracle.archive_of(oracle.without_weights(oracle.build(name)), "script").getvalue())
        paths.append(path)
    return paths


def measure(view: str, paths: list[Path]) -> None:
    found = subprocess.run(
        [sys.executable, "-c", MEASURE, view, *map(str, paths)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    taken, resident_mb = json.loads(found)
    slowest = max(taken, key=taken.get)
    print(f"decomposing {len(taken)} networks for one 224x224 picture, {view}, in milliseconds of processor time:")
    print(f"  median {statistics.median(taken.values()):.1f}, slowest {taken[slowest]:.1f} ({Path(slowest).stem})")
    print(f"  resident {resident_mb:.1f} MB at most, all of them one after the other")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the files here, and use those that are here already")
    folder = parser.parse_args().keep
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        paths = written(folder or Path(scratch))
        for view in ("as written", "optimized"):
            measure(view, paths)
    return 0


if __name__ == "__main__":
    sys.exit(main())
