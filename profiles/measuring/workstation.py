# SPDX-License-Identifier: Apache-2.0
"""A campaign on a workstation's GPU: PyTorch and NVML, at the clocks there are or at some that are locked."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..device import Device
from .campaign import Campaign, CampaignSize, Progress, run_campaign
from .measurements import Measurements
from .meters.cpu import CpuMeter, Patience
from .meters.nvml import GpuMeter, Nvml, NvmlLibrary, gpu_device
from .meters.torch_process import TorchProcess
from .processor import Model, plan_processor, processor_size

_MOST_CONFIGURATIONS = 4


@dataclass(frozen=True)
class Workstation:
    """A GPU, what runs on it and what it is like.

    Attributes:
        locking: whether clocks are locked.
    """

    process: TorchProcess
    nvml: Nvml
    device: Device
    locking: bool


@contextlib.contextmanager
def workstation(
    library: NvmlLibrary, start: Callable[[], TorchProcess], clocks_mhz: Sequence[int] = (), index: int = 0
) -> Iterator[Workstation]:
    """A GPU for as long as the context lasts; whatever becomes of it, locked clocks are given back.

    Args:
        start: starts the worker on that GPU.
        clocks_mhz: to lock one after the other; none leaves clocks as they are.

    Raises:
        MeasurementError: there is no such GPU, NVML or PyTorch, or it does not have these clocks.
    """
    with contextlib.closing(Nvml(library, index)) as nvml, start() as process:
        name = re.sub(r"[^a-z0-9]+", "-", str(process.about["device_name"]).lower()).strip("-")
        yield Workstation(process, nvml, gpu_device(process, nvml, name, clocks_mhz), bool(clocks_mhz))


def plan_gpu(device: Device, models: Sequence[Model], runnable: Collection[str], kernels: int, seed: int = 0) -> Campaign:
    """Decide what is measured: what is of a processor, and what issuing each call costs the host.

    Raises:
        MeasurementError: two models have one name, or a model's list of launches ends early.
    """
    count = min(device.grid.size, _MOST_CONFIGURATIONS)
    size: CampaignSize = replace(
        processor_size(kernels), configurations=count, network_configurations=count,
        whole_network_configurations=device.grid.size, host_configurations=count,
    )  # fmt: skip
    return plan_processor(device, models, runnable, size, seed, issued=lambda call: True)


def measure_gpu(
    campaign: Campaign,
    models: Sequence[Model],
    gpu: Workstation,
    patience: Patience,
    folder: Path | None = None,
    progress: Progress = lambda done, total, text: None,
) -> Measurements:
    """Run a campaign on a workstation's GPU.

    Raises:
        MeasurementError: a measurement did not come out; what was measured until then is kept in ``folder``.
    """
    files = {model.network.name: (model.path, model.inputs) for model in models}
    torch = CpuMeter(gpu.process, files, gpu.nvml, patience)
    meter = GpuMeter(torch, gpu.process, gpu.nvml, patience, gpu.locking)
    found = run_campaign(campaign, lambda node: meter, folder, progress)
    about = {"meter": "PyTorch and NVML", **gpu.process.about, "clocks_locked": gpu.locking, "ran": torch.ran}
    return replace(found, environment={**about, "clocks_seen_mhz": sorted(meter.seen_mhz)})
