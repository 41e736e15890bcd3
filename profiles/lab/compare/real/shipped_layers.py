# SPDX-License-Identifier: Apache-2.0
"""Layers of a real AGX Orin, predicted by its shipped profile with the interpreter as frame overhead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct

from .....kernels.cost.board import BoardCost
from .....kernels.cost.model import surface
from .....kernels.execution import FrameOverhead
from .....kernels.grid import FrequencyConfiguration
from .....kernels.network import Network
from ....adapt.network_errors import mean_error_percent
from ....bundle.bundle import load_bundle
from ..agx_orin import BOARD, MODES, MeasuredLayer, layers_of
from .layers import NODE_MS

_SMS = max(mode.sm_count for mode in MODES.values())


class LayerErrors(Struct, frozen=True):
    """Mean absolute errors of network times in percent, with and without the interpreter."""

    percent: float
    alone_percent: float
    networks: int


def shipped(rows: Iterable[Mapping[str, str]]) -> dict[int, LayerErrors]:
    cost = load_bundle(f"{BOARD}-sim").cost

    predicted: dict[object, tuple[float, float]] = {}
    sums: dict[tuple[str, int, str, str], list[float]] = {}
    for layer in layers_of(rows):
        own = sums.setdefault((layer.model, layer.batch, layer.precision, layer.mode), [0.0, 0.0, 0.0])
        key = (layer.mode, *(call.signature for call in layer.calls))
        if key not in predicted:
            predicted[key] = _predicted_ms(cost, layer)
        for place, value in enumerate((layer.mean_ms, *predicted[key])):
            own[place] += value
    return {
        batch: _errors({key: own for key, own in sums.items() if key[1] == batch}) for batch in sorted({k[1] for k in sums})
    }


def _predicted_ms(cost: BoardCost, layer: MeasuredLayer) -> tuple[float, float]:
    share, clocks = MODES[layer.mode].sm_count / _SMS, _clocks(cost, layer.mode)
    told, alone = (
        surface(Network("", (), layer.calls), cost, frame_overhead=FrameOverhead(host_ms=host_ms), gpu_share=share)
        .at(clocks)
        .latency_ms
        for host_ms in (NODE_MS * len(layer.calls), 0.0)
    )
    return told, alone


def _errors(sums: Mapping[tuple[str, int, str, str], list[float]]) -> LayerErrors:
    measured, told, alone = np.array(list(sums.values())).T
    percent, alone_percent = (mean_error_percent(one, measured) for one in (told, alone))
    return LayerErrors(percent, alone_percent, len(sums))


def _clocks(cost: BoardCost, mode: str) -> FrequencyConfiguration:
    own, grid = MODES[mode], cost.grid
    wanted = (own.cpu_hz / 1e3, own.gpu_hz, own.emc_hz)
    levels = (grid.cpu_khz, grid.gpu_hz, grid.emc_hz)
    return FrequencyConfiguration(*(min(axis, key=lambda one: abs(one - at)) for axis, at in zip(levels, wanted, strict=True)))
