# SPDX-License-Identifier: Apache-2.0
"""Protocol of every meter, real or simulated.

Values follow MIRAGE (SEC '21), section 5.3: after warm-up, the median of 100 timings and 50 power readings. Of these, the mean
is reported: it resolves the coarse steps that a median rounds to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .....kernels.grid import FrequencyConfiguration
from .....kernels.network import Call, KernelInvocation, Network

TIMINGS = 100
POWER_READINGS = 50


@dataclass(frozen=True)
class KernelPower:
    """Power of a kernel repeated back to back; arrays have one element per configuration.

    Attributes:
        rails_mw: mean power of each rail, in mW.
        period_ms: from one repetition to the next; longer than ``gpu_ms`` if the host issues more slowly.
        gpu_ms: GPU kernel activity within one repetition.
        host_ms: issue work within one repetition.
        in_stream: True if kernels are timed back to back in a stream, pauses and timing cost included.
    """

    rails_mw: Mapping[str, NDArray[np.float64]]
    period_ms: NDArray[np.float64]
    gpu_ms: NDArray[np.float64]
    host_ms: NDArray[np.float64]
    in_stream: bool = False


class Meter(Protocol):
    """Meter of one board. Arrays are over ``configurations``, in order, NaN if rejected. Any method may raise
    :class:`~jetdvfs.profiles.errors.MeasurementError`."""

    def kernel_times_ms(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> NDArray[np.float64]:
        """GPU activity of each invocation, repeated on the same data, at its configuration, without launch gaps and host
        work."""
        ...

    def kernel_powers(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration], issued: bool = False
    ) -> KernelPower:
        """Power of each invocation, repeated back to back at its configuration; ``issued`` by the host, or by the GPU alone."""
        ...

    def host_time_ms(self, calls: Sequence[Call], configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        """Host time of issuing ``calls`` once, timed in bursts shorter than the launch queue so that the GPU never counts."""
        ...

    def host_rails_mw(self, configurations: Sequence[FrequencyConfiguration]) -> Mapping[str, NDArray[np.float64]]:
        """Power of each rail while the host issues calls that launch nothing, one after the other."""
        ...

    def idle_rails_mw(
        self, configurations: Sequence[FrequencyConfiguration], temperature_c: float | None = None
    ) -> Mapping[str, NDArray[np.float64]]:
        """Power of each rail while nothing runs; with ``temperature_c`` at that of the die, else at that of the campaign."""
        ...

    def network_latency_ms(self, network: Network, configurations: Sequence[FrequencyConfiguration]) -> NDArray[np.float64]:
        """Latency of one inference from its first call to the end of its last kernel."""
        ...

    def network_rails_mw(
        self, network: Network, configurations: Sequence[FrequencyConfiguration]
    ) -> Mapping[str, NDArray[np.float64]]:
        """Mean power of each rail while inferences run back to back."""
        ...
