# SPDX-License-Identifier: Apache-2.0
"""Substitute for PyTorch on a simulated board, by its application port."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ....kernels.cost.features import MODELLED_KINDS
from ....kernels.kinds import ELEMENTWISE
from ....kernels.network import Call, HostOp, KernelInvocation, Network
from ...adapt.application import Application
from ...errors import MeasurementError, TwinError

_IN_A_ROW = 20  # launches of a kernel that is repeated, as many as PyTorch's worker issues at a time
_LEAST_S = 0.02


class TwinWorker:
    """Answers requests of :mod:`~jetdvfs.profiles.lab.measure.meters.kernel_worker` from a simulated board.

    Raises MeasurementError.
    """

    def __init__(self, port: Path, models: Mapping[Path, Network]) -> None:
        self._models = {str(path): network for path, network in models.items()}
        self._actions: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "kernel": self._kernel, "repeat": self._repeat, "issue": self._issue, "network": self._network,
            "gpu_clock": lambda request: {},  # without a cycle counter
        }  # fmt: skip
        self.about: Mapping[str, Any] = {
            "device_name": "a simulated board", "torch": "none: its application port",
            "kinds": sorted({*MODELLED_KINDS, ELEMENTWISE, *(kind for net in models.values() for kind in net.kinds)}),
        }  # fmt: skip
        try:
            self._application = Application(port)
        except TwinError as error:
            raise MeasurementError(f"meter: {error}") from error
        self._loaded: dict[str, str] = {}

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._actions[request["do"]](request)
        except TwinError as error:
            raise MeasurementError(f"meter: {error}") from error

    def close(self) -> None:
        self._application.close()

    def _kernel(self, request: Mapping[str, Any]) -> dict[str, Any]:
        busy = self._application.busy(self._load(_repeated(request["kernel"])))
        return {"ms": busy["gpu_ms"] / _IN_A_ROW, "ran": [request["kernel"]["kind"]]}

    def _repeat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        network = _repeated(request["kernel"]) if "kernel" in request else self._models[request["path"]]
        seconds = max(float(request["seconds"]), _LEAST_S)
        ran = self._application.stream(self._load(network), seconds=seconds)
        count = len(ran["latencies_ms"]) * (_IN_A_ROW if "kernel" in request else 1)
        return {"period_ms": 1e3 * ran["elapsed_s"] / count, "count": count}

    def _issue(self, request: Mapping[str, Any]) -> dict[str, Any]:
        calls = [_call(request["calls"][place]) for place in request["order"]]
        network = Network("calls", (), (*calls, _AFTERWARDS))
        alone = Network("afterwards", (), (_AFTERWARDS,))
        of_all, of_last = (self._application.busy(self._load(one))["host_ms"] for one in (network, alone))
        return {"ms": max(of_all - of_last, 1e-6)}

    def _network(self, request: Mapping[str, Any]) -> dict[str, Any]:
        network = self._models[request["path"]]
        ran = self._application.stream(self._load(network), seconds=max(float(request["seconds"]), _LEAST_S))
        return {"ms": statistics.median(ran["latencies_ms"]), "ran": sorted(network.kinds)}

    def _load(self, network: Network) -> str:
        if network.digest not in self._loaded:
            self._loaded[network.digest] = self._application.load(network)
        return self._loaded[network.digest]


_AFTERWARDS = KernelInvocation("relu", "", ((1,),), (1,), "float32", flops=1, bytes=8)
"""A network must launch something."""


def _call(given: Mapping[str, Any]) -> Call:
    return KernelInvocation.from_json(given) if "kind" in given else HostOp(str(given["name"]), "")


def _repeated(kernel: Mapping[str, Any]) -> Network:
    return Network("kernel", (), (KernelInvocation.from_json(kernel),) * _IN_A_ROW)
