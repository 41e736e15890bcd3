# SPDX-License-Identifier: Apache-2.0
"""Runners of networks: PyTorch or TensorRT on the board, or an application on a simulated board."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from ....kernels.network import Network, TensorSpec
from ....profiles.adapt.application import Application
from ....profiles.adapt.torch_process import TorchProcess
from ....profiles.adapt.trtexec import Trtexec

_MOST_TIMINGS = 100_000


class Candidate(Struct, frozen=True):
    path: Path
    network: Network
    inputs: tuple[TensorSpec, ...]


class TimedInferences(Struct, frozen=True):
    """Consecutive inferences: median latency, time since their end, and measured launches if any."""

    latency_ms: float
    over_s: float = 0.0
    launches_ms: tuple[float, ...] = ()


class Runner(Protocol):
    """Runs networks one inference after the other; may raise ProfilesError."""

    what: str
    simulated: bool

    def run(self, candidate: Candidate, seconds: float) -> TimedInferences: ...

    def close(self) -> None: ...


class TorchRunner:
    simulated = False

    def __init__(self, python: str, device: str) -> None:
        self._process = TorchProcess(python, device=device)
        about = self._process.about
        self.what = f"PyTorch {about['torch']} on {about['device_name']}"

    def run(self, candidate: Candidate, seconds: float) -> TimedInferences:
        inputs = [spec.to_json() for spec in candidate.inputs]
        request = {"do": "network", "path": str(candidate.path), "inputs": inputs, "timings": _MOST_TIMINGS, "seconds": seconds}
        return TimedInferences(float(self._process.ask(request)["ms"]))

    def close(self) -> None:
        self._process.close()


class EngineRunner:
    simulated = False

    def __init__(self, trtexec: Trtexec) -> None:
        self._trtexec, self.what = trtexec, "TensorRT, by trtexec"

    def run(self, candidate: Candidate, seconds: float) -> TimedInferences:
        began = self._trtexec.inferences(candidate.path, candidate.inputs, seconds)
        since = time.monotonic()
        layers_ms = self._trtexec.layers_ms(candidate.path, candidate.inputs, candidate.network, began.latency_ms)
        return TimedInferences(began.latency_ms, began.over_s + time.monotonic() - since, layers_ms)

    def close(self) -> None:
        """Nothing runs between runs."""


class TwinRunner:
    """An application on a simulated board, by its application port; raises TwinError."""

    simulated = True

    def __init__(self, port: Path) -> None:
        self._application = Application(port)
        self._loaded: dict[str, str] = {}
        self.what = "a simulated board's applications"

    def run(self, candidate: Candidate, seconds: float) -> TimedInferences:
        network = candidate.network
        if network.digest not in self._loaded:
            self._loaded[network.digest] = self._application.load(network)
        latencies: Sequence[float] = self._application.stream(self._loaded[network.digest], seconds=seconds)["latencies_ms"]
        return TimedInferences(statistics.median(latencies))

    def close(self) -> None:
        self._application.close()
