# SPDX-License-Identifier: Apache-2.0
"""Campaign on this machine's processor."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from .... import __version__
from ....kernels.cost.features import MODELLED_KINDS
from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ....kernels.kinds import ELEMENTWISE
from ....kernels.network import Call, HostOp, KernelInvocation, Network, TensorSpec, numel
from ...adapt.measurements import Measurements
from ...adapt.torch_process import TorchProcess
from ...device import Device, MeasuredDevice
from ...errors import MeasurementError
from .campaign import Campaign, CampaignSize, CampaignUnit, plan_campaign
from .meters.cpu import DTYPES, KERNEL_WORKER, CpuMeter, MeasuringWorker, TimingLimits, processor
from .meters.cpufreq import Cpufreq
from .meters.notes import CampaignNotes
from .meters.rapl import Rapl
from .meters.restarting_worker import RestartingWorker
from .steps import Progress, run_campaign
from .variation import Variations


class KernelLimits(Struct, frozen=True):
    """Largest random kernels, and their element types."""

    flops: float
    elements: float
    dtypes: tuple[str, ...]


BETWEEN_S = 0.05
"""Time between measurements without clock changes, in s."""
_MOST_CONFIGURATIONS = 4
_OF_POINTWISE = 4  # random kernels of each pointwise kind that networks have
_MOST = KernelLimits(2e9, 8e6, DTYPES)  # a processor takes a tenth of a second for them


class MeasuredModel(Struct, frozen=True):
    path: Path
    network: Network
    inputs: tuple[TensorSpec, ...]


def processor_size(random_kernels: int, clocks: int = 1) -> CampaignSize:
    """Size of a processor's campaign, at up to four clocks per kernel."""
    some = min(clocks, _MOST_CONFIGURATIONS)
    return CampaignSize(
        nodes=(0,),
        random_kernels={"conv2d": 3 * random_kernels, "matmul": 3 * random_kernels},
        random_kernels_default=random_kernels,
        configurations=some,
        network_configurations=some,
        whole_network_configurations=clocks,
        host_configurations=some,
        small_steps=True,
    )


def only_host_calls(call: Call) -> bool:
    """True if issuing a call is measured; processors issue kernels by running them."""
    return isinstance(call, HostOp)


def plan_processor(
    device: MeasuredDevice,
    models: Sequence[MeasuredModel],
    runnable: Collection[str],
    size: CampaignSize,
    seed: int = 0,
    issued: Callable[[Call], bool] = only_host_calls,
    most: KernelLimits = _MOST,
    offered: FrequencyGrid | None = None,
) -> Campaign:
    """Plan networks, their kernels, random variations, and calls that launch nothing. Raises MeasurementError.

    Args:
        runnable: kinds that the meter runs; only these get a model.
        issued: selects calls whose issue time is measured.
        offered: measured part of the device's grid; None for all of it.
    """
    networks = [model.network for model in models]
    names = [network.name for network in networks]
    for network in networks:
        if names.count(network.name) > 1:
            raise MeasurementError(f"two models are called {network.name!r}; give each file a name of its own")
        network.check_whole()

    def wanted(call: KernelInvocation) -> bool:
        largest = max(map(numel, (*call.inputs, call.output)))
        sizes = call.flops <= most.flops and largest <= most.elements
        return call.dtype in (*most.dtypes, "bool") and call.kind in runnable and sizes  # comparisons read floats

    variations = Variations(networks, seed)
    kinds = [kind for kind in (*MODELLED_KINDS, ELEMENTWISE) if any(map(wanted, variations.own(kind)))]
    pointwise = sorted({one.kind for one in variations.own(ELEMENTWISE) if wanted(one)} - set(kinds))
    # One model serves all pointwise kinds: each is drawn, and those of the networks are measured as any other kernel of theirs.
    drawn = {**dict.fromkeys(pointwise, 0), **size.random_kernels}
    drawn.setdefault(ELEMENTWISE, max(size.random_kernels_default, _OF_POINTWISE * len(pointwise)))
    return plan_campaign(
        device,
        networks,
        lambda kind, count: variations.some(kind, count, wanted) if count else (),
        replace(size, random_kernels=drawn),
        kinds=[*kinds, *pointwise],
        temperature_c=float("nan"),
        issued=issued,
        seed=seed,
        offered=offered,
    )


def about_s(campaign: Campaign, patience: TimingLimits, switch_s: float = BETWEEN_S) -> float:
    return sum(unit_s(campaign, unit, patience, switch_s) for unit in campaign.units)


def unit_s(campaign: Campaign, unit: CampaignUnit, patience: TimingLimits, switch_s: float = BETWEEN_S) -> float:
    kernel_s, power_s = switch_s + patience.kernel_s, switch_s + patience.lead_s + patience.power_s
    apart = bool(campaign.board.host_rails)  # else host power is measured each time and subtracted
    once_s = (1 if apart else 2) * (power_s - switch_s)
    # Single measurements and clock changes are shared by the kernels of a unit.
    together = campaign.size.power_kernels > 1
    shared_s = (once_s + switch_s) / len(unit.what) if together else once_s + (3 if apart else 4) * switch_s
    each = {
        "kernel_ms": kernel_s, "host_us": kernel_s, "idle_mw": power_s,
        "kernel_mw": shared_s + power_s - switch_s + patience.power_timings * patience.kernel_s,
        "host_active_mw": (2 * power_s + (2 * patience.kernel_s if apart else 0)) * max(unit.configurations // 8, 1),
        "network": (power_s if campaign.board.energy_rails else 0.0) + switch_s + patience.network_s,
        "graph": (power_s if campaign.board.energy_rails else 0.0) + kernel_s,
    }  # fmt: skip
    return each[unit.kind] * campaign.samples(unit)


class Processor(Struct, frozen=True):
    process: MeasuringWorker
    rapl: Rapl
    device: Device
    clocks: Cpufreq
    clocks_mhz: tuple[int, ...] = ()


@contextlib.contextmanager
def this_processor(python: str, threads: int, clocks_mhz: Sequence[int] = (), root: Path = Path("/")) -> Iterator[Processor]:
    """Processor within the context; a locked clock is always released. Raises MeasurementError."""
    with (
        contextlib.closing(Cpufreq(clocks_mhz, root)) as clocks,
        contextlib.closing(RestartingWorker(lambda: TorchProcess(python, threads=threads, worker=KERNEL_WORKER))) as process,
    ):
        if clocks_mhz:
            clocks.set(FrequencyConfiguration(0, max(clocks_mhz) * 1_000_000, 0))  # at which its rates are measured
        rapl = Rapl(root)
        yield Processor(process, rapl, processor(process, rapl, clocks_mhz=clocks_mhz), clocks, tuple(clocks_mhz))


def measure_processor(
    campaign: Campaign,
    models: Sequence[MeasuredModel],
    machine: Processor,
    patience: TimingLimits,
    folder: Path | None = None,
    progress: Progress = lambda done, total, text: None,
) -> Measurements:
    """Run a campaign on this processor. Raises MeasurementError; ``folder`` keeps finished steps."""
    files: Mapping[str, tuple[Path, Sequence[TensorSpec]]] = {
        model.network.name: (model.path, model.inputs) for model in models
    }
    notebook = CampaignNotes()
    meter = CpuMeter(machine.process, files, machine.rapl, patience, clocks=machine.clocks, notebook=notebook)
    found = run_campaign(
        campaign, lambda node: meter, folder, progress, notebook, lambda unit: unit_s(campaign, unit, patience)
    )
    locked = {"clocks_locked_mhz": list(machine.clocks_mhz)} if machine.clocks_mhz else {}
    about = {"meter": "PyTorch on the processor", "jetdvfs": __version__, **machine.process.about, "ran": meter.ran}
    refused = notebook.refused()
    return replace(found, environment={**about, **locked, **({"refused": refused} if refused else {})})
