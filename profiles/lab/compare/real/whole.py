# SPDX-License-Identifier: Apache-2.0
"""Published whole-network measurements of real boards, as records.

``agx-orin-layers`` (branes-ai/graphs): torchvision networks on an AGX Orin 64GB, sums of fused layers timed through an
interpreter. ``gpu-clock-sweeps`` (iloudaros/LoudVA): Inception V3 over GPU clocks of a Jetson Nano and a Xavier NX.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from .....kernels.decompose import decompose
from .....kernels.grid import FrequencyConfiguration
from .....kernels.network import KernelInvocation, Network, TensorSpec
from ....board import load_board
from ....errors import ComparisonDataError, MeasurementError
from ....reference import reference_network
from ...networks.record import MeasuredNetwork, RecordContents, RecordRow, device_features
from ..agx_orin import BOARD, LAYERS, MODES, MeasuredMode
from ..batches import NETWORK as SWEPT
from ..batches import cells
from ..fit import numbers, read_rows

_TYPES = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}
_ALL_SM = max(mode.sm_count for mode in MODES.values())
_IMAGE = 224
_SWEPT_BOARDS = {"NX": "xavier-nx", "Nano": "nano"}


def agx_orin_layers(data: Path) -> Iterator[MeasuredNetwork]:
    """Network per model, type and batch; a row, the median run, per power mode. GFLOP/s are of the active part of the GPU.

    Raises ComparisonDataError, or MeasurementError without torchvision.
    """
    rows = list(read_rows(data, LAYERS))
    runs: dict[tuple[str, str, int], dict[str, dict[str, float]]] = {}
    try:
        for row, latency_ms in zip(rows, numbers(rows, "lat_mean_ms", LAYERS).tolist(), strict=True):
            case = runs.setdefault((row["model"], row["precision"], int(row["batch"])), {})
            run = case.setdefault(row["thermal_profile"], {})
            key = f"{row['calib_dir']} {row['date']}"
            run[key] = run.get(key, 0.0) + latency_ms
    except (KeyError, ValueError) as error:
        raise ComparisonDataError(f"the table of layers is not as it was published ({error!r:.120})") from error
    traced: Callable[[int], Network] | None = None
    before = ""
    for (model, precision, batch), modes in sorted(runs.items()):
        if model != before or traced is None:
            traced, before = _traced(model), model
        dtype = _TYPES[precision]
        network = _of_type(traced(batch), f"{model} x{batch} {precision}", dtype)
        found = tuple(
            RecordRow(f"{BOARD} 0", _orin(MODES[mode], dtype), {"latency_ms": float(np.median(list(taken.values())))})
            for mode, taken in sorted(modes.items())
        )
        yield MeasuredNetwork(network.name, re.split(r"[\d_]", model)[0], network, found)


def _orin(mode: MeasuredMode, dtype: str) -> tuple[float, ...]:
    board = load_board(BOARD)
    configuration = FrequencyConfiguration(int(mode.cpu_hz / 1e3), int(mode.gpu_hz), int(mode.emc_hz))
    host, _, moved, memory = device_features(board.chip, [configuration], board.chip.dram_gib)[0]
    flops = board.chip.flops_per_gpu_cycle[dtype] * mode.gpu_hz * mode.sm_count / _ALL_SM / 1e9
    return float(host), float(flops), float(moved), float(memory)


def _traced(model: str) -> Callable[[int], Network]:
    try:
        import torch
        import torchvision
    except (ImportError, RuntimeError) as error:  # RuntimeError: its operators do not load with this PyTorch
        raise MeasurementError(f"the networks are torchvision's, which cannot be loaded here ({error})") from error
    folder = tempfile.TemporaryDirectory(prefix="jetdvfs-networks-")
    path = Path(folder.name) / f"{model}.pt"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        module = torchvision.models.get_model(model, weights=None).eval()
        torch.jit.save(torch.jit.trace(module, torch.zeros(1, 3, _IMAGE, _IMAGE), check_trace=False), str(path))

    def listed(batch: int) -> Network:
        assert folder  # as long as it is listed from
        return decompose(path, [TensorSpec((batch, 3, _IMAGE, _IMAGE))], name=model)

    return listed


def _of_type(network: Network, name: str, dtype: str) -> Network:
    if dtype == "float32":
        return replace(network, name=name)
    inputs = tuple(replace(spec, dtype=dtype) for spec in network.inputs)
    calls = tuple(
        replace(call, dtype=dtype, bytes=call.bytes // 2) if isinstance(call, KernelInvocation) else call
        for call in network.calls
    )
    return replace(network, name=name, inputs=inputs, calls=calls)


def gpu_clock_sweeps(data: Path) -> Iterator[MeasuredNetwork]:
    """Inception V3 by batch, a row per board and GPU clock. Raises ComparisonDataError."""
    rows: dict[int, list[RecordRow]] = {}
    for directory, measured in cells(data).items():
        board = load_board(_SWEPT_BOARDS[directory])
        for cell in measured:
            device = device_features(board.chip, [board.grid.top._replace(gpu_hz=round(cell.gpu_hz))], board.chip.dram_gib)[0]
            values = {"latency_ms": cell.latency_ms, "energy_mj": cell.energy_mj}
            rows.setdefault(cell.batch, []).append(RecordRow(f"{board.name} 0", tuple(map(float, device)), values))
    for batch, own in sorted(rows.items()):
        network = replace(reference_network(SWEPT, batch), name=f"{SWEPT} x{batch}")
        yield MeasuredNetwork(network.name, SWEPT, network, tuple(own))


#: Measurements by name: description in a record, and networks.
PUBLISHED: Mapping[str, tuple[RecordContents, Callable[[Path], Iterator[MeasuredNetwork]]]] = {
    "agx-orin-layers": (
        RecordContents(
            "a Jetson AGX Orin 64GB, torchvision's networks, in four power modes (branes-ai/graphs)", False, ("latency_ms",),
            "sums of layers that were timed one by one, through an interpreter",
        ),
        agx_orin_layers,
    ),
    "gpu-clock-sweeps": (
        RecordContents(
            "a Jetson Nano and a Xavier NX, Inception V3 over clocks of the GPU (iloudaros/LoudVA)", False,
            ("latency_ms", "energy_mj"), "other clocks taken to be at the top; energy is the board's mean power times latency",
        ),
        gpu_clock_sweeps,
    ),
}  # fmt: skip
