# SPDX-License-Identifier: Apache-2.0
"""Protocol of meters.

A value is the mean of 100 timings or 50 power readings after warm-up (MIRAGE, SEC '21, section 5.3). A median would round to
the sensor's steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from .....kernels.grid import FrequencyConfiguration
from .....kernels.network import Call, KernelInvocation, Network

TIMINGS = 100
POWER_READINGS = 50


class KernelPower(Struct, frozen=True):
    """Power of a kernel repeated back to back, one element per configuration.

    Attributes:
        period_ms: time per repetition; above ``gpu_ms`` if the host issues more slowly.
        host_ms: issue work per repetition.
        in_stream: kernels are timed in a stream, with pauses and timing cost.
    """

    rails_mw: Mapping[str, NDArray[np.float64]]
    period_ms: NDArray[np.float64]
    gpu_ms: NDArray[np.float64]
    host_ms: NDArray[np.float64]
    in_stream: bool = False


class Meter(Protocol):
    """Meter of one board. Arrays are over ``configurations``, NaN if rejected. Methods raise
    :class:`~jetdvfs.profiles.errors.MeasurementError`.
    """

    def kernel_times_ms(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> NDArray[np.float64]:
        """GPU time of each invocation, without launch gaps and host work."""
        ...

    def kernel_powers(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration], issued: bool = False
    ) -> KernelPower:
        """Power of each invocation, ``issued`` by the host or by the GPU alone."""
        ...

    def host_time_ms(self, calls: Sequence[Call], configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        """Host time of issuing ``calls`` once, in bursts that fit the launch queue."""
        ...

    def host_rails_mw(self, configurations: Sequence[FrequencyConfiguration]) -> Mapping[str, NDArray[np.float64]]:
        """Power of each rail while the host issues calls that launch nothing."""
        ...

    def idle_rails_mw(
        self, configurations: Sequence[FrequencyConfiguration], temperature_c: float | None = None
    ) -> Mapping[str, NDArray[np.float64]]:
        """Idle power of each rail at a die temperature, by default the campaign's."""
        ...

    def network_latency_ms(self, network: Network, configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        """Latency of one inference, from first call to end of last kernel."""
        ...

    def network_rails_mw(
        self, network: Network, configurations: Sequence[FrequencyConfiguration]
    ) -> Mapping[str, NDArray[np.float64]]:
        """Mean power of each rail during back-to-back inferences."""
        ...


class NetworkGraphs(NamedTuple):
    """Latency, GPU time of one replay among several, and power of a network's CUDA graph; NaN if it cannot be captured."""

    latency_ms: NDArray[np.float64]
    gpu_ms: NDArray[np.float64]
    rails_mw: Mapping[str, NDArray[np.float64]]


@runtime_checkable
class EventMeter(Protocol):
    """Meter that counts the GPU events of timed kernels."""

    def kernel_events(self, invocations: Sequence[KernelInvocation]) -> NDArray[np.float64]:
        """Number of each one's kernels, copies and fills; NaN if unknown."""
        ...


@runtime_checkable
class GraphMeter(Protocol):
    """Meter that also runs networks as CUDA graphs. Raises :class:`~jetdvfs.profiles.errors.MeasurementError`."""

    def network_graphs(self, network: Network, configurations: Sequence[FrequencyConfiguration]) -> NetworkGraphs: ...
