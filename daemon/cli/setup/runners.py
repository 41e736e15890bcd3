# SPDX-License-Identifier: Apache-2.0
"""What runs networks while they are measured: PyTorch beside the board's GPU, or an application on a simulated board."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ....kernels.network import Network, TensorSpec
from ....profiles.measuring.meters.torch_process import TorchProcess
from ....profiles.twin.application import Application

_MOST_TIMINGS = 100_000


@dataclass(frozen=True)
class Candidate:
    """A network that is observed, and its file."""

    path: Path
    network: Network
    inputs: tuple[TensorSpec, ...]


class Runner(Protocol):
    """Runs networks one inference after the other. Its methods may raise ProfilesError."""

    @property
    def what(self) -> str:
        """What it is, for people and the record."""
        ...

    @property
    def simulated(self) -> bool: ...

    def latency_ms(self, candidate: Candidate, seconds: float) -> float:
        """The median latency of inferences that follow each other for so long; it returns when they are over."""
        ...

    def close(self) -> None: ...


class TorchRunner:
    """PyTorch in a process of its own.

    Args:
        python: the Python that has it.
        device: ``cuda``, or ``cpu``.

    Raises:
        MeasurementError: it cannot be started, or has no PyTorch, or none for that device.
    """

    simulated = False

    def __init__(self, python: str, device: str) -> None:
        self._process = TorchProcess(python, device=device)
        about = self._process.about
        self.what = f"PyTorch {about['torch']} on {about['device_name']}"

    def latency_ms(self, candidate: Candidate, seconds: float) -> float:
        inputs = [spec.to_json() for spec in candidate.inputs]
        request = {"do": "network", "path": str(candidate.path), "inputs": inputs, "timings": _MOST_TIMINGS, "seconds": seconds}
        return float(self._process.ask(request)["ms"])

    def close(self) -> None:
        self._process.close()


class TwinRunner:
    """An application on a simulated board, by its application port.

    Raises:
        TwinError: nobody answers there.
    """

    simulated = True

    def __init__(self, port: Path) -> None:
        self._application = Application(port)
        self._loaded: dict[str, str] = {}
        self.what = f"a simulated board's applications, {port}"

    def latency_ms(self, candidate: Candidate, seconds: float) -> float:
        network = candidate.network
        if network.digest not in self._loaded:
            self._loaded[network.digest] = self._application.load(network)
        latencies: Sequence[float] = self._application.stream(self._loaded[network.digest], seconds=seconds)["latencies_ms"]
        return statistics.median(latencies)

    def close(self) -> None:
        self._application.close()
