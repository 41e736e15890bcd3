# SPDX-License-Identifier: Apache-2.0
"""Load, predict, plan and draw, without a daemon and without setting clocks.

    python docs/examples/notebook.py [PICTURE.png [TABLE.csv]]

A notebook shows the last value of a cell; here it is printed. The picture needs matplotlib, the table pandas: ``pip install
'.[notebook]'``.
"""

from __future__ import annotations

import sys

import jetdvfs
from jetdvfs.profiles.reference import reference_model  # ten networks without weights; any file of your own does as well

network = jetdvfs.decompose(reference_model("resnet18"), "1x3x224x224")
surface = jetdvfs.load_profile("agx-xavier-sim").surface(network)
plan = surface.plan("latency_ms=20", fps=30, confidence=0.95)
print(network, surface, plan, plan.why, sep="\n")

if len(sys.argv) > 1:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5))
    surface.plot(plan, ax=figure.subplots())
    figure.savefig(sys.argv[1])

if len(sys.argv) > 2:
    surface.to_dataframe().to_csv(sys.argv[2], index=False)
