# SPDX-License-Identifier: Apache-2.0
"""Frames on a simulated board: cost at the present clocks, and order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec import Struct, field

from ...kernels.grid import FrequencyConfiguration
from ...kernels.network import Network
from .silicon.chip import Array, Clocks
from .silicon.silicon import Execution

_BUCKET_C = 4.0
# Assumed.
_JITTER, _WAITING_JITTER = 0.006, 0.030  # of a frame's logarithm: always, and where the GPU waits for the host
_OUTLIERS, _OUTLIER = 0.03, 0.25  # share of frames that something delays, and by how much of its logarithm at most


class BoardSilicon(Protocol):
    """Part of the silicon that a running board needs."""

    @property
    def node(self) -> int: ...

    @property
    def rails(self) -> tuple[str, ...]: ...

    def idle_rails_w(
        self, clocks: Clocks, temperature_c: float = ..., cluster_hz: Sequence[Array] | None = ...
    ) -> dict[str, Array]: ...

    def other_rails_w(self, clocks: Clocks, *, cores: float = ..., dram_bytes_s: float = ...) -> dict[str, Array]: ...

    def sensed(self, rails: dict[str, Array]) -> dict[str, Array]: ...


Execute = Callable[[Network, Any, Clocks, float], Execution]


class FrameCost(NamedTuple):
    """One frame at one configuration: time, mean power by rail, busy shares, memory traffic."""

    latency_s: float
    watts: tuple[float, ...]
    host_share: float
    gpu_share: float
    dram_bytes_s: float


class FrameCosts:
    """Sensed cost of frames, other work and idling, by configuration and temperature range."""

    def __init__(self, silicon: BoardSilicon, execute: Execute) -> None:
        self._silicon = silicon
        self._execute = execute
        self._idle = cache(self._idle_w)
        self._other = cache(self._other_w)
        self._frames: dict[tuple[str, FrequencyConfiguration, float], FrameCost] = {}

    def idle_w(
        self, configuration: FrequencyConfiguration, temperature_c: float, cluster_khz: tuple[int, ...] = ()
    ) -> tuple[float, ...]:
        """Idle power of every rail, at one or several CPU clocks."""
        return self._idle(configuration, _bucket(temperature_c), cluster_khz)

    def _idle_w(
        self, configuration: FrequencyConfiguration, temperature_c: float, cluster_khz: tuple[int, ...]
    ) -> tuple[float, ...]:
        clusters = [np.array([1e3 * khz]) for khz in cluster_khz] or None
        return self._sensed(self._silicon.idle_rails_w(Clocks.of([configuration]), temperature_c, clusters))

    def core_w(self, configuration: FrequencyConfiguration) -> tuple[float, ...]:
        """Power above idle of every rail per busy core."""
        return self._other(configuration, cores=1.0)

    def traffic_w(self, configuration: FrequencyConfiguration) -> tuple[float, ...]:
        """Power above idle of every rail per GB/s of memory traffic besides the GPU's."""
        return self._other(configuration, dram_bytes_s=1e9)

    def _other_w(self, configuration: FrequencyConfiguration, **work: float) -> tuple[float, ...]:
        return self._sensed(self._silicon.other_rails_w(Clocks.of([configuration]), **work))

    def _sensed(self, rails: dict[str, Array]) -> tuple[float, ...]:
        sensed = self._silicon.sensed(rails)
        return tuple(float(sensed[rail][0]) if rail in sensed else 0.0 for rail in self._silicon.rails)

    def frame(self, stream: FrameStream, configuration: FrequencyConfiguration, temperature_c: float) -> FrameCost:
        key = (stream.digest, configuration, _bucket(temperature_c))
        if key not in self._frames:
            execution = self._execute(stream.network, self._silicon, Clocks.of([configuration]), key[2])
            seconds = float(execution.latency_s[0])
            rails = self._silicon.sensed(execution.rail_energy_j)
            self._frames[key] = FrameCost(
                seconds,
                tuple(float(rails[rail][0]) / seconds for rail in self._silicon.rails),
                min(float(execution.host_busy_s[0]) / seconds, 1.0),
                min(float(execution.gpu_busy_s[0]) / seconds, 1.0),
                float(execution.dram_bytes[0]) / seconds,
            )
        return self._frames[key]


def _bucket(temperature_c: float) -> float:
    return _BUCKET_C * round(temperature_c / _BUCKET_C)


class FrameStream(Struct):
    """Application that submits one frame after the other.

    Attributes:
        ready_at: time of the next submission.
        period_s: between frames; a late one follows at once. None: back to back.
        frames: their number; None until ``ends_at``.
        pid: its process; 0 for none.
        latencies_s: from submission to completion, of every frame; ``waited_s`` is the wait for other frames.
        done: True at its end; ``closed_at`` and ``closing_j`` are time and energy then.
    """

    network: Network
    ready_at: float
    period_s: float | None = None
    frames: int | None = 1
    ends_at: float = -math.inf
    pid: int = 0
    latencies_s: list[float] = field(default_factory=list)
    waited_s: list[float] = field(default_factory=list)
    started_s: list[float] = field(default_factory=list)
    opening_j: tuple[float, ...] = ()
    closing_j: tuple[float, ...] = ()
    closed_at: float = math.inf
    done: bool = False
    digest: str = ""
    opened_at: float = 0.0

    def __post_init__(self) -> None:
        self.digest = self.network.digest
        self.opened_at = self.ready_at

    @property
    def exhausted(self) -> bool:
        if self.frames is not None:
            return len(self.latencies_s) >= self.frames
        return self.ready_at >= self.ends_at

    def complete(self, handed_in: float, began: float, now: float) -> None:
        self.started_s.append(handed_in)
        self.latencies_s.append(now - handed_in)
        self.waited_s.append(began - handed_in)
        planned = now if self.period_s is None else self.opened_at + len(self.latencies_s) * self.period_s
        self.ready_at = max(now, planned)
        if self.exhausted:
            self.closed_at = max(now, self.ready_at if self.period_s is not None else now, self.ends_at)


class RunningFrame(Struct):
    """Frame on the GPU; ``slowness`` is its jitter, ``held_up_s`` time without the GPU."""

    stream: FrameStream
    began: float
    slowness: float
    progress: float = 0.0
    held_up_s: float = 0.0

    def due(self, now: float, cost: FrameCost, speed: float) -> float:
        return now + (1.0 - self.progress) * cost.latency_s * self.slowness / speed

    def advance(self, seconds: float, cost: FrameCost, speed: float) -> None:
        self.progress += seconds * speed / (cost.latency_s * self.slowness)
        self.held_up_s += seconds * (1.0 - speed)


def speeds(gpu_shares: Sequence[float]) -> list[float]:
    """Speed of concurrent frames of different processes relative to each alone, by their busy shares of the GPU.

    Processes get slices of a millisecond in turn (nvgpu, ``NVGPU_TSG_TIMESLICE_DEFAULT_US``), except while they wait for the
    host. Small demands are met; the rest is shared evenly.
    """
    found, left = [1.0] * len(gpu_shares), 1.0
    by_share = sorted(range(len(gpu_shares)), key=lambda one: gpu_shares[one])
    for place, one in enumerate(by_share):
        given = min(gpu_shares[one], left / (len(by_share) - place))
        found[one] = given / gpu_shares[one] if gpu_shares[one] else 1.0
        left -= given
    return found


def blended(costs: Sequence[FrameCost], running_at: Sequence[float], idle_w: Sequence[float]) -> FrameCost:
    """Cost of concurrent frames: each adds to idling by its speed."""
    if len(costs) == 1:
        return costs[0]
    watts = list(idle_w)
    for cost, speed in zip(costs, running_at, strict=True):
        watts = [all_of + speed * (w - idle) for all_of, w, idle in zip(watts, cost.watts, idle_w, strict=True)]

    def total(figure: Callable[[FrameCost], float]) -> float:
        return sum(speed * figure(cost) for cost, speed in zip(costs, running_at, strict=True))

    host, gpu, traffic = (total(figure) for figure in (lambda c: c.host_share, lambda c: c.gpu_share, lambda c: c.dram_bytes_s))
    return FrameCost(costs[0].latency_s, tuple(watts), host, min(gpu, 1.0), traffic)


class WorkQueue:
    """Frames of one process run in order of submission; processes share the GPU."""

    def __init__(self, random: np.random.Generator) -> None:
        self.running: list[RunningFrame] = []
        self._streams: list[FrameStream] = []
        self._random = random

    @property
    def busy(self) -> bool:
        return bool(self._streams)

    def add(self, stream: FrameStream) -> None:
        self._streams.append(stream)

    def cancel(self, stream: FrameStream) -> None:
        self._streams = [other for other in self._streams if other is not stream]
        self.running = [frame for frame in self.running if frame.stream is not stream]

    def next_event(self, now: float) -> float:
        waiting = (s.closed_at if s.exhausted else s.ready_at for s in self._streams if self._is_waiting(s))
        return min((moment for moment in waiting if moment > now), default=math.inf)

    def start(self, now: float, waiting_share: Callable[[FrameStream], float]) -> None:
        """Start the longest-waiting frame of each process without one; ``waiting_share`` of the host sets its jitter."""
        ready = [stream for stream in self._streams if not stream.exhausted and stream.ready_at <= now]
        for stream in sorted(ready, key=lambda one: one.ready_at):
            if any(frame.stream.pid == stream.pid for frame in self.running):
                continue
            spread = _JITTER + _WAITING_JITTER * waiting_share(stream)
            late = _OUTLIER * self._random.random() if self._random.random() < _OUTLIERS else 0.0
            slowness = math.exp(spread * float(self._random.standard_normal()) + late)
            self.running.append(RunningFrame(stream, now, slowness))

    def finish(self, now: float, done: Sequence[RunningFrame]) -> None:
        self.running = [frame for frame in self.running if all(frame is not one for one in done)]
        for frame in done:
            frame.stream.complete(frame.stream.ready_at, frame.began + frame.held_up_s, now)

    def close(self, now: float, joules: tuple[float, ...]) -> None:
        for stream in [one for one in self._streams if one.exhausted and one.closed_at <= now]:
            stream.closing_j, stream.done = joules, True
            self._streams.remove(stream)

    def _is_waiting(self, stream: FrameStream) -> bool:
        return all(frame.stream is not stream for frame in self.running)
