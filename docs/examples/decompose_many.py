# SPDX-License-Identifier: Apache-2.0
"""List the launches of many model files, a line each.

    python docs/examples/decompose_many.py SHAPE MODEL...

Unreadable files are reported and skipped; an incomplete list has a second line.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jetdvfs
from jetdvfs.kernels.errors import KernelsError

shape, *models = sys.argv[1:]
print(f"{'model':24}{'launches':>9}{'GFLOP':>9}{'MB moved':>10}  most launched")
for model in models:
    try:
        network = jetdvfs.decompose(model, shape)
    except KernelsError as error:  # one line: what, where, and what would be valid
        print(error, file=sys.stderr)
        continue
    gflop = sum(launch.flops for launch in network.launches) / 1e9
    moved_mb = sum(launch.bytes for launch in network.launches) / 1e6
    most = max(network.kinds, key=lambda kind: network.kinds[kind], default="nothing")
    print(f"{Path(model).stem:24}{len(network.launches):9}{gflop:9.2f}{moved_mb:10.1f}  {most}")
    if network.boundary:
        print(f"{'':24}  ends early: {network.boundary.note}")
