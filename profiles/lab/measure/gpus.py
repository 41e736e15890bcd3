# SPDX-License-Identifier: Apache-2.0
"""Campaigns on GPUs: a workstation's by NVML, a board's by its daemon."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .... import __version__
from ....kernels.grid import FrequencyGrid
from ....kernels.network import DTYPE_BYTES, Call, HostOp
from ...adapt.measurements import Measurements
from ...board import BoardDescription
from ...device import Device
from .campaign import Campaign, CampaignUnit
from .figures import kernel_times_ms
from .meters.cpu import MeasuringWorker, TimingLimits, kernel_name
from .meters.gpu import GpuClockSetter, GpuMeter
from .meters.notes import CampaignNotes
from .meters.nvml import LockedClocks, Nvml, NvmlLibrary, gpu_device
from .meters.restarting_worker import EndingWorker, RestartingWorker
from .meters.ticks import CounterReader, EnergyCounters
from .one_twin import one_board_size
from .processor import BETWEEN_S, KernelLimits, MeasuredModel, plan_processor, processor_size, unit_s
from .steps import Progress, run_campaign

_MOST = KernelLimits(2e10, 6.4e7, ("float32", "float16"))  # the slowest board takes a tenth of a second for them
_LONGEST_S = 0.005  # of a workstation's random kernels, at its rates
_TYPES = ("float32", "float16", "bfloat16")
_TOGETHER = 16  # kernels of a workstation between two measurements of idle power
# Four ticks of NVML's counter; a short kernel repeated in a graph is not timed again next to its power.
WORKSTATION_PATIENCE = TimingLimits(power_s=0.5, power_timings=0)
_QUICK_CONFIGURATIONS, _QUICK_IDLE = 2, 30
SWITCH_S = 0.9
"""Time to set, settle and restore a board's clocks, in s."""


class Workstation(Struct, frozen=True):
    """GPU, its worker and description; ``locking`` is True if clocks are locked."""

    process: MeasuringWorker
    nvml: Nvml
    device: Device
    locking: bool


@contextlib.contextmanager
def workstation(
    library: NvmlLibrary, start: Callable[[], EndingWorker], clocks_mhz: Sequence[int] = (), index: int = 0
) -> Iterator[Workstation]:
    """GPU within the context; its locked clocks are always released. Raises MeasurementError."""
    with contextlib.closing(Nvml(library, index)) as nvml, contextlib.closing(RestartingWorker(start)) as process:
        name = re.sub(r"[^a-z0-9]+", "-", str(process.about["device_name"]).lower()).strip("-")
        yield Workstation(process, nvml, gpu_device(process, nvml, name, clocks_mhz), bool(clocks_mhz))


def plan_gpu(
    device: Device, models: Sequence[MeasuredModel], runnable: Collection[str], kernels: int, seed: int = 0
) -> Campaign:
    """Plan a processor's campaign plus the issue time of each call. Raises MeasurementError."""
    size = replace(processor_size(kernels, device.grid.size), power_kernels=_TOGETHER, graphs=True)
    return plan_processor(device, models, runnable, size, seed, issued=issued_by(runnable), most=_limits(device))


def _limits(device: Device) -> KernelLimits:
    chip, top = device.chip, device.grid.top
    flops = _LONGEST_S * top.gpu_hz * chip.flops_per_gpu_cycle["float32"]
    elements = _LONGEST_S * top.emc_hz * chip.bytes_per_emc_cycle / DTYPE_BYTES["float32"]
    return KernelLimits(flops, elements, tuple(name for name in _TYPES if name in chip.flops_per_gpu_cycle))


def issued_by(runnable: Collection[str]) -> Callable[[Call], bool]:
    return lambda call: isinstance(call, HostOp) or call.kind in runnable


def plan_board(
    board: BoardDescription,
    offered: FrequencyGrid,
    models: Sequence[MeasuredModel],
    runnable: Collection[str],
    kernels: int,
    quick: bool = False,
    seed: int = 0,
) -> Campaign:
    """Plan a campaign within a board's power mode and limits. Raises MeasurementError."""
    size = replace(one_board_size(0, kernels), warm_configurations=0, small_steps=True)
    if quick:
        few = _QUICK_CONFIGURATIONS
        size = replace(
            size, configurations=few, network_configurations=few, whole_network_configurations=few, host_configurations=few,
            idle_configurations=_QUICK_IDLE,
        )  # fmt: skip
    return plan_processor(board, models, runnable, size, seed, issued=issued_by(runnable), most=_MOST, offered=offered)


def measure_gpu(
    campaign: Campaign,
    models: Sequence[MeasuredModel],
    gpu: Workstation,
    patience: TimingLimits,
    folder: Path | None = None,
    progress: Progress = lambda done, total, text: None,
) -> Measurements:
    """Run a campaign on a workstation's GPU. Raises MeasurementError."""
    notebook = CampaignNotes()
    clocks = LockedClocks(gpu.nvml, gpu.locking, notebook)
    with contextlib.closing(CounterReader(gpu.nvml)) as ticks:
        found = _measured(campaign, models, gpu.process, ticks, clocks, patience, folder, progress, notebook)
    about = {"meter": "PyTorch and NVML", "jetdvfs": __version__, **found.environment, "clocks_locked": gpu.locking}
    seen: dict[str, Any] = {"clocks_seen_mhz": sorted(clocks.seen_mhz), "clock_reasons": dict(clocks.reasons)}
    timed, powered = (set(found.tables[name].what.tolist()) for name in ("kernel_ms", "kernel_mw"))
    seen["without_power"] = [kernel_name(found.invocations[what]) for what in sorted(timed - powered)]
    return replace(found, environment={**about, **gpu.nvml.described(), **notebook.told(), **seen})


def off_graphs(record: Measurements) -> list[float]:
    """Sum of kernel times relative to the GPU time of the network's graph, less 1, of networks whose kernels were all timed."""
    timed_ms, graphs, found = kernel_times_ms(record), record.tables["graph_gpu_ms"], list[float]()
    for number, at, graph_ms in zip(graphs.what.tolist(), graphs.configuration.tolist(), graphs.value.tolist(), strict=True):
        each_ms = [timed_ms.get(launch.signature, {}).get(at) for launch in record.networks[number].launches]
        known_ms = [one for one in each_ms if one is not None]
        if len(known_ms) == len(each_ms):
            found.append(sum(known_ms) / graph_ms - 1)
    return found


def measure_board(
    campaign: Campaign,
    models: Sequence[MeasuredModel],
    process: MeasuringWorker,
    counters: EnergyCounters,
    clocks: GpuClockSetter,
    patience: TimingLimits,
    folder: Path | None = None,
    progress: Progress = lambda done, total, text: None,
    notebook: CampaignNotes | None = None,
) -> Measurements:
    """Run a campaign on a board's GPU; rejected samples are recorded. Raises MeasurementError."""
    notebook = notebook or CampaignNotes()
    found = _measured(campaign, models, process, counters, clocks, patience, folder, progress, notebook, SWITCH_S)
    return replace(found, environment={"meter": "PyTorch and the board's sensors", **found.environment, **notebook.told()})


def _measured(
    campaign: Campaign,
    models: Sequence[MeasuredModel],
    process: MeasuringWorker,
    counters: EnergyCounters,
    clocks: GpuClockSetter,
    patience: TimingLimits,
    folder: Path | None,
    progress: Progress,
    notebook: CampaignNotes,
    switch_s: float = BETWEEN_S,
) -> Measurements:
    files = {model.network.name: (model.path, model.inputs) for model in models}
    lowest = campaign.grid.configuration((0, 0, 0))

    def lasts_s(unit: CampaignUnit) -> float:
        return unit_s(campaign, unit, patience, switch_s)

    meter = GpuMeter(process, files, counters, patience, clocks, lowest, notebook)
    found = run_campaign(campaign, lambda node: meter, folder, progress, notebook, lasts_s)
    die_c = notebook.die_c()
    about = {**process.about, "ran": meter.ran}
    if meter.event_us is not None:
        about["event_us"] = meter.event_us
    return replace(found, environment=about, temperature_c=found.temperature_c if die_c is None else die_c)
