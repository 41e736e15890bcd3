# SPDX-License-Identifier: Apache-2.0
"""What becomes of plans on a simulated board whose die settles warmer than they were made for.

    python tests/bench/warmth.py [--profile agx-xavier-sim]

Of ten networks: what a plan that was made for a colder die loses against one for the die as it is, by target, and by how much
it exceeds what was asked for.
"""

from __future__ import annotations

import argparse

import numpy as np

from jetdvfs.daemon.planning.targets import EnergyTarget, LatencyTarget, MinEnergy, PowerTarget, Target
from jetdvfs.daemon.planning.thermal_state import ThermalState, settled
from jetdvfs.kernels.cost.model import surface
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.lab.compare.plans import PlanTrial, plans_for, try_out
from jetdvfs.profiles.reference import reference_names, reference_network

COLD_C = 45.0
WARMER_C = (12.0, 25.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="agx-xavier-sim")
    bundle = load_bundle(parser.parse_args().profile)
    k_per_w = float(load_board(bundle.manifest.board).section("thermal").get("k_per_w", 0.0))
    for warmer_c in WARMER_C:
        trials: dict[str, list[PlanTrial]] = {}
        for name in reference_names():
            predicted = surface(reference_network(name), bundle.cost)
            drawn_mw = float(predicted.idle_mw.max())
            cold, warm = (
                settled(predicted, ThermalState(die_c, drawn_mw, k_per_w), None) for die_c in (COLD_C, COLD_C + warmer_c)
            )
            shortest_ms, least_mw, least_mj = (
                float(figure.min()) for figure in (warm.latency_ms, warm.power_mw, warm.energy_mj)
            )
            targets: dict[str, Target] = {
                "latency within twice the shortest": LatencyTarget(2 * shortest_ms),
                "least energy": MinEnergy(),
                "power within 1.5 times the least": PowerTarget(1.5 * least_mw),
                "energy within 1.1 times the least": EnergyTarget(1.1 * least_mj),
            }
            plans = plans_for(cold, list(targets.values()))
            for (text, target), plan in zip(targets.items(), plans, strict=True):
                trials.setdefault(text, []).append(try_out(target, plan, warm))
        print(f"a die {warmer_c:g} C warmer than planned for")
        for text, found in trials.items():
            regrets = [trial.regret for trial in found if trial.regret is not None] or [0.0]
            missed, over = sum(trial.missed for trial in found), max(trial.over for trial in found)
            lost = f"regret {np.mean(regrets):.2%}, at most {max(regrets):.2%}"
            print(f"  {text:<36} {lost}; missed by {missed} of {len(found)}, by {over:.1%} at most")


if __name__ == "__main__":
    main()
