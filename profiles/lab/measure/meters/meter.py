# SPDX-License-Identifier: Apache-2.0
"""What a campaign asks of a board: the protocol of every meter, real or simulated.

Each figure follows MIRAGE (SEC '21), section 5.3: the median of 100 timings after warm-up, and power over 50 sensor readings
after warm-up. Power readings come in coarse steps, so their mean is reported: it resolves what a median would round away.
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
    """Power while one kernel is repeated back to back; every array has one element per configuration.

    Attributes:
        rails_mw: mean power of each rail, in mW.
        period_ms: time from one repetition to the next; longer than ``gpu_ms`` where the host cannot issue faster.
        gpu_ms: GPU kernel activity within one repetition.
        host_ms: issue work within one repetition.
        in_stream: True if kernels are timed back to back in a stream, the pauses between them included. Pauses and the cost of
            timing are then no figures of their own.
    """

    rails_mw: Mapping[str, NDArray[np.float64]]
    period_ms: NDArray[np.float64]
    gpu_ms: NDArray[np.float64]
    host_ms: NDArray[np.float64]
    in_stream: bool = False


class Meter(Protocol):
    """Measures one board. Methods return arrays over ``configurations``, in their order; NaN is what does not count.

    Any method may raise :class:`~jetdvfs.profiles.errors.MeasurementError`.
    """

    def kernel_times_ms(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> NDArray[np.float64]:
        """GPU kernel activity of each invocation at the configuration of the same position, repeated on the same data; neither
        launch gaps nor host work count."""
        ...

    def kernel_powers(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration], issued: bool = False
    ) -> KernelPower:
        """Power while each invocation is repeated back to back at the configuration of the same position.

        Args:
            issued: each repetition is issued by the host; otherwise the GPU may repeat it by itself.
        """
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
