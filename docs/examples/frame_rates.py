# SPDX-License-Identifier: Apache-2.0
"""Energy of a frame at different rates.

    python docs/examples/frame_rates.py MODEL SHAPE PROFILE [FPS...]

One prediction, and a plan per rate.
"""

from __future__ import annotations

import sys

import jetdvfs
from jetdvfs.daemon.errors import TargetNotAttainable

model, shape, profile, *rates = sys.argv[1:]
surface = jetdvfs.load_profile(profile).surface(jetdvfs.decompose(model, shape))
print(surface)
for fps in map(float, rates or (5, 10, 20, 40, 80)):
    try:
        plan = surface.plan("min-energy", fps=fps)
    except TargetNotAttainable as error:
        print(f"{fps:5g} fps: {error}")
    else:
        print(f"{fps:5g} fps: {plan.configuration}, {plan.latency_ms:.1f} ms, {plan.energy_per_frame_mj:.0f} mJ per frame")
