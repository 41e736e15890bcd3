# SPDX-License-Identifier: Apache-2.0
"""Simulated boards that run networks by an engine."""

from __future__ import annotations

from .....kernels.engine.fusing import ENGINE_TYPES, as_engine, engine_of
from .....kernels.network import Network
from ....twin.silicon.chip import AMBIENT_DIE_C
from ....twin.silicon.silicon import Silicon
from .simulated import TwinMeter


def listed(network: Network, compiled: str) -> Network:
    """Launches of a network by an engine, if ``compiled``. Raises ModelError."""
    return as_engine(network, ENGINE_TYPES[compiled]) if compiled else network


def engines_of(board: str) -> list[str]:
    """Engines that the simulated board runs. Raises TwinError."""
    runtime, _ = engine_of(next(iter(ENGINE_TYPES)))
    types = board_of(board, None).chip.detail.engines[runtime].types
    return [name for name, dtype in ENGINE_TYPES.items() if dtype in types]


def board_of(board: str, node: int | None, compiled: str = "", perturbed: int = 0) -> Silicon:
    """Simulated board, without an engine if ``compiled`` is empty. Raises TwinError."""
    engine, dtype = engine_of(compiled)
    return Silicon(node, board, perturbed=perturbed, engine=engine, dtype=dtype)


def twin_meter(
    board: str, node: int, seed: int, compiled: str = "", temperature_c: float = AMBIENT_DIE_C, perturbed: int = 0
) -> TwinMeter:
    return TwinMeter(board_of(board, node, compiled, perturbed), seed + 1000 * node, temperature_c)
