# SPDX-License-Identifier: Apache-2.0
"""A campaign on the processor that this runs on: what is measured of it, and the record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ... import __version__
from ...kernels.cost.features import MODELLED_KINDS
from ...kernels.grid import FrequencyGrid
from ...kernels.kinds import ELEMENTWISE
from ...kernels.network import Call, HostOp, KernelInvocation, Network, TensorSpec, numel
from ..device import Device, MeasuredDevice
from ..errors import MeasurementError
from .campaign import Campaign, CampaignSize, Unit, plan_campaign
from .measurements import Measurements
from .meters.cpu import DTYPES, CpuMeter, Patience, processor
from .meters.rapl import Rapl
from .meters.torch_process import TorchProcess
from .steps import Progress, run_campaign
from .variation import Variations


@dataclass(frozen=True)
class Most:
    """The largest random kernels that are measured, and the element types."""

    flops: float
    elements: float
    dtypes: tuple[str, ...]


BETWEEN_S = 0.05
"""From one figure to the next where no clocks are set: operands are made."""
_MOST = Most(2e9, 8e6, DTYPES)  # a processor takes a tenth of a second for them


@dataclass(frozen=True)
class Model:
    """A model file that is measured as a whole, and what it launches."""

    path: Path
    network: Network
    inputs: tuple[TensorSpec, ...]


def processor_size(random_kernels: int) -> CampaignSize:
    """How much is measured: so many random kernels of each kind, and three times as many convolutions and products."""
    return CampaignSize(
        nodes=(0,),
        random_kernels={"conv2d": 3 * random_kernels, "matmul": 3 * random_kernels},
        random_kernels_default=random_kernels,
        configurations=1,
        network_configurations=1,
        whole_network_configurations=1,
        host_configurations=1,
        small_steps=True,
    )


def only_host_calls(call: Call) -> bool:
    """Whether issuing a call is measured on a processor, which issues kernels by running them."""
    return isinstance(call, HostOp)


def plan_processor(
    device: MeasuredDevice,
    models: Sequence[Model],
    runnable: Collection[str],
    size: CampaignSize,
    seed: int = 0,
    issued: Callable[[Call], bool] = only_host_calls,
    most: Most = _MOST,
    offered: FrequencyGrid | None = None,
) -> Campaign:
    """Decide what is measured: the networks, their kernels and random ones around them, and calls that launch nothing.

    Args:
        runnable: the kinds that the meter can run; kernels of others get no model.
        issued: the calls whose issuing is measured.
        most: the largest kernels that are measured.
        offered: the part of the device's grid that is measured; None for all of it.

    Raises:
        MeasurementError: two models have one name, or a model's list of launches ends early.
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
        return call.dtype in most.dtypes and call.kind in runnable and sizes

    variations = Variations(networks, seed)
    kinds = [kind for kind in (*MODELLED_KINDS, ELEMENTWISE) if any(map(wanted, variations.own(kind)))]
    return plan_campaign(
        device,
        networks,
        lambda kind, count: variations.some(kind, count, wanted),
        size,
        kinds=kinds,
        temperature_c=float("nan"),
        issued=issued,
        seed=seed,
        offered=offered,
    )


def about_s(campaign: Campaign, patience: Patience, switch_s: float = BETWEEN_S) -> float:
    """How long a campaign takes in real time, roughly, in s.

    Args:
        switch_s: how long clocks take to be set.
    """
    return sum(unit_s(campaign, unit, patience, switch_s) for unit in campaign.units)


def unit_s(campaign: Campaign, unit: Unit, patience: Patience, switch_s: float = BETWEEN_S) -> float:
    """The same of one of its units: figures are taken one after the other."""
    kernel_s, power_s = switch_s + patience.kernel_s, switch_s + patience.lead_s + patience.power_s
    apart = bool(campaign.board.host_rails)  # else what the host draws is measured each time, to be taken off
    each = {
        "kernel_ms": kernel_s, "host_us": kernel_s, "idle_mw": power_s,
        "kernel_mw": (2 if apart else 3) * power_s + kernel_s + 2 * patience.kernel_s,
        "host_active_mw": (2 * power_s + (2 * patience.kernel_s if apart else 0)) * max(unit.configurations // 8, 1),
        "network": (power_s if campaign.board.energy_rails else 0.0) + switch_s + patience.network_s,
    }  # fmt: skip
    return each[unit.kind] * campaign.samples(unit)


def measure_processor(
    campaign: Campaign,
    models: Sequence[Model],
    process: TorchProcess,
    rapl: Rapl,
    patience: Patience,
    folder: Path | None = None,
    progress: Progress = lambda done, total, text: None,
) -> Measurements:
    """Run a campaign on this machine's processor.

    Raises:
        MeasurementError: a measurement did not come out; what was measured until then is kept in ``folder``.
    """
    files: Mapping[str, tuple[Path, Sequence[TensorSpec]]] = {
        model.network.name: (model.path, model.inputs) for model in models
    }
    meter = CpuMeter(process, files, rapl, patience)
    found = run_campaign(campaign, lambda node: meter, folder, progress, lasts_s=lambda unit: unit_s(campaign, unit, patience))
    return replace(
        found, environment={"meter": "PyTorch on the processor", "jetdvfs": __version__, **process.about, "ran": meter.ran}
    )


def start_processor(python: str, threads: int, root: Path = Path("/")) -> tuple[TorchProcess, Rapl, Device]:
    """The worker, the power counters and the processor as it describes itself.

    Raises:
        MeasurementError: that Python cannot be started, or has no PyTorch.
    """
    process, rapl = TorchProcess(python, threads=threads), Rapl(root)
    try:
        return process, rapl, processor(process, rapl)
    except BaseException:
        process.close()
        raise
