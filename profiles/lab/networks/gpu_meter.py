# SPDX-License-Identifier: Apache-2.0
"""Meter of whole networks on a workstation's NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....kernels.network import Network
from ...errors import MeasurementError
from ..measure.gpus import Workstation
from ..measure.meters.ticks import CounterReader
from .record import DEVICE_FEATURES, GIB, RecordContents, RecordRow, device_features

ENERGY_S = 0.35
"""Three ticks of NVML's counter."""

_TIMINGS, _NETWORK_S = 25, 0.12  # of an eager inference, at most
_REFERENCE = "reference_ms"


class GpuNetworkMeter:
    """Measures networks as CUDA graphs and eagerly, at present clocks.

    Latency is GPU time of one replay among several. Energy includes idle power. Memory is the peak of an eager inference,
    weights included. Eager latency is scaled by host reference work to ``speed``, the host's at the record's start.
    """

    def __init__(self, gpu: Workstation, speed: Mapping[str, float] | None = None) -> None:
        self._gpu, self._ticks = gpu, CounterReader(gpu.nvml)
        about, device = gpu.process.about, gpu.device
        if not speed:
            figures = device_features(device.chip, [device.grid.top], float(about["memory_bytes"]) / GIB)[0]
            speed = dict(zip(DEVICE_FEATURES, map(float, figures), strict=True))
            speed[_REFERENCE] = float(gpu.process.ask({"do": "reference"})["ms"])
        self._device, self._reference_ms = tuple(speed[name] for name in DEVICE_FEATURES), speed[_REFERENCE]
        self.about = RecordContents(
            f"{about['device_name']}, PyTorch {about['torch']}",
            False,
            ("latency_ms", "energy_mj", "peak_mib", "eager_latency_ms"),
            "latency and energy of a CUDA graph's replay, clocks as they are; eager latency relative to the host's speed",
            speed=speed,
        )

    def rows(self, network: Network, path: Path) -> Sequence[RecordRow]:
        ask = self._gpu.process.ask
        model: dict[str, Any] = {"path": str(path), "inputs": [spec.to_json() for spec in network.inputs]}
        graph = {**model, "execution": "graph"}
        limits = {"timings": _TIMINGS, "seconds": _NETWORK_S}
        memory = ask({"do": "memory", **model})
        eager = ask({"do": "network", **model, **limits})
        latency_ms = float(ask({"do": "network", **graph, "timings": 1, "seconds": 0.0})["gpu_ms"])
        before = self._ticks.read_uj()
        repeated = ask({"do": "repeat", **graph, "seconds": ENERGY_S})
        energy_mj = sum(self._ticks.since_mj(before).values()) / float(repeated["count"])
        if self._ticks.seen < 2:
            raise MeasurementError(f"{network.name}: the GPU's energy counter did not move while it ran")
        eager_ms = float(eager["ms"])
        values = {
            "latency_ms": latency_ms,
            "energy_mj": energy_mj,
            "peak_mib": float(memory["peak_mib"]),
            "eager_latency_ms": max(eager_ms * self._reference_ms / float(eager["reference_ms"]), min(eager_ms, latency_ms)),
        }
        return [RecordRow(self._gpu.device.name, self._device, values)]

    def close(self) -> None:
        self._ticks.close()
