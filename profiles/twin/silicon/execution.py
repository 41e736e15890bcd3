# SPDX-License-Identifier: Apache-2.0
"""One inference on the simulated board: the host issues, the GPU executes in order, the host waits at the end."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from ....kernels.network import KernelInvocation, Network
from .chip import AMBIENT_DIE_C, Array, Clocks
from .silicon import Silicon

LAUNCH_QUEUE = 1024


@dataclass(frozen=True)
class Execution:
    """What one inference took at each of n configurations; every array has shape ``(n,)``.

    Attributes:
        latency_s: from the first call to the end of the last kernel, as the application sees it.
        rail_energy_j: true energy of each rail over that time, idle power included.
        host_busy_s: time in which the host issued work.
        gpu_busy_s: time in which a kernel ran.
        dram_bytes: what its kernels moved to and from DRAM.
    """

    latency_s: Array
    rail_energy_j: dict[str, Array]
    host_busy_s: Array
    gpu_busy_s: Array
    dram_bytes: Array


def execute(network: Network, silicon: Silicon, clocks: Clocks, temperature_c: float = AMBIENT_DIE_C) -> Execution:
    """Run a network once at each configuration.

    Parameters come from DRAM (other layers ran since), activations from wherever the previous kernel left them.

    Raises:
        TwinError: the silicon does not know one of its kinds, or an engine cannot be built of it.
    """
    network = silicon.prepared(network)
    unique: dict[object, int] = {}
    kernels: list[KernelInvocation] = []
    for launch in network.launches:
        if unique.setdefault(launch.signature, len(kernels)) == len(kernels):
            kernels.append(launch)
    issue = silicon.issue_s(network.calls, clocks)
    gap, start = silicon.gap_s(clocks), silicon.chip.start
    activity = silicon.kernels(kernels, clocks, cold=True, temperature_c=temperature_c)
    host_bytes = silicon.host_bytes(issue.sum(axis=0), clocks)
    if np.any(host_bytes):  # spread over the frame; the host's waits for the GPU, which come of this, are left out
        times = np.bincount([unique[launch.signature] for launch in network.launches], minlength=len(kernels))
        running = times @ (activity.seconds + gap)
        lasting = np.maximum(np.maximum(issue.sum(axis=0), running), 1e-12)
        activity = silicon.kernels(kernels, clocks, cold=True, temperature_c=temperature_c, others_bytes_s=host_bytes / lasting)
    issue = issue * silicon.waits(clocks, activity.dram_bytes.sum(axis=0) / np.maximum(activity.seconds.sum(axis=0), 1e-12))

    host: Array = np.zeros(len(clocks))
    gpu: Array = np.zeros(len(clocks))
    gpu_busy = np.zeros(len(clocks))
    moved: Array = np.zeros(len(clocks))
    energy: dict[str, Array] = {rail: np.zeros(len(clocks)) for rail in silicon.busy_rails}
    queued: deque[Array] = deque(maxlen=LAUNCH_QUEUE)
    for call, cost in zip(network.calls, issue, strict=True):
        if not isinstance(call, KernelInvocation):
            host = host + cost
            continue
        if len(queued) == LAUNCH_QUEUE:  # the queue is full: the host waits for the oldest launch to finish
            host = np.maximum(host, queued[0])
        host = host + cost
        row = unique[call.signature]
        busy = activity.seconds[row]
        gpu = np.maximum(host + start.submit_s, gpu + gap) + busy
        gpu_busy = gpu_busy + busy
        moved = moved + activity.dram_bytes[row]
        queued.append(gpu)
        for rail in silicon.busy_rails:
            energy[rail] = energy[rail] + activity.energy_j[rail][row]
    latency = np.maximum(gpu + start.return_s, host)
    host_busy = issue.sum(axis=0)
    rails = {rail: power * latency for rail, power in silicon.idle_rails_w(clocks, temperature_c).items()}
    for rail in silicon.busy_rails:
        rails[rail] = rails[rail] + energy[rail]
    for rail, power in silicon.issue_rails_w(clocks).items():
        rails[rail] = rails[rail] + power * host_busy
    return Execution(latency, rails, host_busy, gpu_busy, moved)
