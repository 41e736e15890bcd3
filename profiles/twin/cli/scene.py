# SPDX-License-Identifier: Apache-2.0
"""One network's part in a demonstration: what the application asks of the daemon, and what it then sees."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ....daemon.wire.client import Client
from ....daemon.wire.held import HeldLease
from ....kernels.grid import FrequencyConfiguration
from ....kernels.network import Network
from ....kernels.surface import Surface
from ...adapt.application import Application
from ...reference import reference_input, reference_model

CONFIDENCE = 0.95
"""With which latency targets, and the frame's period, are asked for."""

_PACED_S = 1.5
_FRAMES = 60


@dataclass(frozen=True)
class Run:
    """One way of running one network: what was set, predicted and observed.

    Attributes:
        ask: what the application asked for.
        fps: frames per second, None for back to back.
        configuration: the clocks in effect.
        predicted_ms, p50_ms: the typical latency of a frame.
        predicted_p95_ms, p95_ms: the latency that 95 in 100 frames stay under; predicted, the model's own uncertainty is in it.
        predicted_mw, observed_mw: mean power of the energy rails over the run, idle between frames included.
        predicted_mj, observed_mj: energy of one frame, idle up to the next included.
        met: True if the observed latency met the target; None without a target.
        temperature_c: die temperature of the plan; None without a plan, or if the profile knows one only.
    """

    network: str
    ask: str
    fps: float | None
    configuration: FrequencyConfiguration
    predicted_ms: float
    p50_ms: float
    predicted_p95_ms: float
    p95_ms: float
    predicted_mw: float
    observed_mw: float
    predicted_mj: float
    observed_mj: float
    met: bool | None
    temperature_c: float | None = None


class Scene:
    """One network's part: what the application asks, runs and sees. ``writes`` lists each hold's files in order."""

    def __init__(
        self,
        client: Client,
        application: Application,
        name: str,
        network: Network,
        predicted: Surface,
        top: FrequencyConfiguration,
        latency_ms: float,
        fps: float,
    ) -> None:
        self.writes: list[tuple[str, list[dict[str, str]]]] = []
        self._client, self._application, self._name = client, application, name
        self._rails: list[str] = client.status()["energy_rails"]
        self._top = top
        self._cautious = predicted.quantile(CONFIDENCE)
        self._fps, self._latency_ms = fps, latency_ms
        self._loaded = application.load(network)
        self._known = client.load(reference_model(name), [reference_input(name).shape], name=name)

    def runs(self) -> Iterable[Run]:
        yield self._at_top(None)
        yield self._for_target(f"latency_ms={self._latency_ms:g}", None)
        yield self._at_top(self._fps)
        yield self._for_target("min-energy", self._fps)

    def _at_top(self, fps: float | None) -> Run:
        predicted = self._client.predict(self._known, self._top, fps=fps)["at"]
        with self._hold("top clocks", fps, configuration=self._top) as lease:
            return self._observe("top clocks", fps, lease, predicted, None)

    def _for_target(self, target: str, fps: float | None) -> Run:
        with self._hold(target, fps, network=self._known, target=target, fps=fps, confidence=CONFIDENCE) as lease:
            assert lease.plan is not None
            limit_ms = self._latency_ms if "=" in target else 1e3 / (fps or 1.0)
            return self._observe(target, fps, lease, lease.plan["choice"], limit_ms)

    @contextmanager
    def _hold(self, ask: str, rate: float | None, **what: Any) -> Iterator[HeldLease]:
        with self._client.hold(**what, reason=f"demo: {ask}", app="demo") as lease:
            assert lease.applied is not None
            self.writes.append((f"{self._name}, {ask_text(ask, rate)}", lease.applied["writes"]))
            yield lease
        self.writes.append(("released: back to the baseline", self._written_since(lease.applied["writes"])))

    def _written_since(self, writes: list[dict[str, str]]) -> list[dict[str, str]]:
        """What the daemon wrote after these writes."""
        everything: list[dict[str, str]] = self._client.status()["writes"]
        ends = (end for end in range(len(everything), 0, -1) if everything[end - len(writes) : end] == writes)
        return everything[next(ends, len(everything)) :]

    def _observe(
        self, ask: str, fps: float | None, lease: HeldLease, predicted: Mapping[str, Any], limit_ms: float | None
    ) -> Run:
        if fps is None:
            seen = self._application.stream(self._loaded, frames=_FRAMES)
        else:
            seen = self._application.stream(self._loaded, fps=fps, seconds=_PACED_S)
        latencies = seen["latencies_ms"]
        p95 = statistics.quantiles(latencies, n=20, method="inclusive")[-1]
        assert lease.applied is not None
        configuration = FrequencyConfiguration(**lease.applied["accepted"])
        energy_mj = predicted["energy_mj"] if fps is None else predicted["energy_per_frame_mj"]
        return Run(
            network=self._name,
            ask=ask,
            fps=fps,
            configuration=configuration,
            predicted_ms=predicted["latency_ms"],
            p50_ms=statistics.median(latencies),
            predicted_p95_ms=self._cautious.at(configuration).latency_ms,
            p95_ms=p95,
            predicted_mw=predicted["power_mw"] if fps is None else energy_mj * fps,
            observed_mw=sum(seen["rails_mw"][rail] for rail in self._rails),
            predicted_mj=energy_mj,
            observed_mj=sum(seen["rails_mj"][rail] for rail in self._rails) / len(latencies),
            met=None if limit_ms is None else p95 <= limit_ms,
            temperature_c=None if limit_ms is None else predicted.get("temperature_c"),
        )


def ask_text(ask: str, fps: float | None) -> str:
    """What was asked for, in words."""
    return f"{ask}, back to back" if fps is None else f"{ask} at {fps:g} frames/s"
