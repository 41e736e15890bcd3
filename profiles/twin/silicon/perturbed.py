# SPDX-License-Identifier: Apache-2.0
"""Another silicon behind the same clocks: a chip whose figures are changed at random.

Studies of transfer predict it from profiles of the chip itself, as boards are predicted that no profile is of. By how much a
figure changes is a choice, not a measurement: about as much as real chips of neighbouring generations differ.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from .chip import Chip

T = TypeVar("T")
_KINDS = ("conv2d", "depthwise", "matmul", "batch_norm", "relu", "add", "max_pool2d", "cat", "softmax", "layer_norm", "clone")
_LIBRARY, _HOST, _ENERGY, _IDLE, _MEMORY = 0.25, 0.25, 0.2, 0.15, 0.1  # standard deviations of logarithms


def perturbed(chip: Chip, seed: int) -> Chip:
    """The chip with other figures, the same for the same seed; itself for 0."""
    if not seed:
        return chip
    random = np.random.default_rng([chip.seed, seed])

    def other(value: float, deviation: float) -> float:
        return float(value * np.exp(random.normal(0.0, deviation)))

    def scaled(part: T, deviation: float) -> T:
        numbers = {one.name: getattr(part, one.name) for one in fields(part)}  # type: ignore[arg-type]
        changed: dict[str, Any] = {name: other(value, deviation) for name, value in numbers.items() if isinstance(value, float)}
        return replace(part, **changed)  # type: ignore[type-var]

    library = {**dict.fromkeys(_KINDS, 1.0), **chip.library}
    return replace(
        chip,
        version=f"{chip.version}~{seed}",
        seed=chip.seed + seed,
        library={kind: other(factor, _LIBRARY) for kind, factor in library.items()},
        l2_bytes_per_cycle=other(chip.l2_bytes_per_cycle, _MEMORY),
        memory=replace(
            chip.memory,
            dram_bytes_per_cycle=other(chip.memory.dram_bytes_per_cycle, _MEMORY),
            fabric_bytes_per_cycle=other(chip.memory.fabric_bytes_per_cycle, _MEMORY),
        ),
        start=scaled(chip.start, _MEMORY),
        energies=scaled(chip.energies, _ENERGY),
        idle=scaled(chip.idle, _IDLE),
        host=replace(chip.host, scale=other(chip.host.scale, _HOST)),
    )
