# SPDX-License-Identifier: Apache-2.0
"""Simulated and real Jetson Orin Nano Super: four workloads over its clocks, and rail power.

In ONNX Runtime: matrix-vector and square products, MobileNetV2, a small vision transformer; and a language model's decoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ....kernels.network import KernelInvocation, Network
from ...board import load_board
from ...reference import reference_network
from ...twin.silicon.chip import Array, Chip, Clocks
from ...twin.silicon.passes import CodePass
from ...twin.silicon.silicon import Silicon, execute
from ...twin.variant import installed
from .fit import FittedQuantity, Report, numbers, product, read_rows

BOARD = "orin-nano-8gb"
LATENCIES = "orin_nano_super_latency_emc_gpu.csv"
POWER = "orin_nano_super_power_cells.csv"
TRANSITIONS = "orin_nano_super_transition_write_times.csv"
KERNELS = {name: f"jetson_orin_nano_8gb_{name}.csv" for name in ("matmul", "linear", "vector_add")}
LIMIT = 0.15
_CPU_HZ = 1.728e9
_LONG_MS = 0.5
# Kernels of ONNX Runtime relative to the framework's of the chip's file, and the cost of issuing one.
_LIBRARY = {"depthwise": 20.7, "hardtanh": 0.66, "add": 0.66, "mul": 0.66, "gelu": 0.66, "softmax": 1.85, "clone": 0.57}
_FLOAT32 = 1.34  # single-precision products: a mixture of plain and tensor-core kernels
_ISSUE = 1.54


def _rowwise(kind: str, *shape: int, inputs: int = 1) -> KernelInvocation:
    return KernelInvocation(kind, "", (shape,) * inputs, shape, "float32", {})


def _transformer(layers: int = 12, tokens: int = 197, width: int = 384, heads: int = 6) -> Network:
    depth = width // heads
    patches = KernelInvocation(
        "conv2d", "", ((1, 3, 224, 224),), (1, width, 14, 14), "float32",
        {"weight": (width, 3, 16, 16), "bias": True, "stride": (16, 16), "padding": (0, 0), "dilation": (1, 1), "groups": 1},
    )  # fmt: skip
    block = [
        _rowwise("layer_norm", tokens, width),
        product(tokens, width, 3 * width),
        _rowwise("add", tokens, 3 * width),
        *[_rowwise("clone", heads, tokens, depth)] * 3,
        product(tokens, depth, tokens, heads),
        _rowwise("mul", heads, tokens, tokens),
        _rowwise("softmax", heads, tokens, tokens),
        product(tokens, tokens, depth, heads),
        _rowwise("clone", tokens, width),
        product(tokens, width, width),
        *[_rowwise("add", tokens, width)] * 2,
        _rowwise("layer_norm", tokens, width),
        product(tokens, width, 4 * width),
        _rowwise("add", tokens, 4 * width),
        _rowwise("gelu", tokens, 4 * width),
        product(tokens, 4 * width, width),
        *[_rowwise("add", tokens, width)] * 2,
    ]
    return Network("vit", (), (patches, *block * layers, _rowwise("layer_norm", tokens, width), product(1, width, 1000)))


def _folded(network: Network) -> Network:
    return Network(network.name, (), tuple(call for call in network.launches if call.kind != "batch_norm"))


WORKLOADS: Mapping[str, Network] = {
    "proxy": Network("proxy", (), (product(1, 4096, 4096, dtype="float16"),) * 12),
    "cproxyv1": Network("cproxyv1", (), (product(2048, 2048, 2048, dtype="float16"),) * 4),
    "cproxyv2": Network("cproxyv2", (), (product(1024, 1024, 1024, dtype="float16"),) * 64),
    "mobilenet": _folded(reference_network("mobilenet_v2")),
    "vit": _transformer(),
}


def runtime(chip: Chip) -> Chip:
    """Chip under ONNX Runtime instead of its file's framework."""
    rates = {**chip.rates, "float32": replace(chip.rate("float32"), matrix=_FLOAT32)}
    return replace(chip, rates=rates, library=_LIBRARY, host=replace(chip.host, scale=chip.host.scale * _ISSUE))


def _decoding(chip: Chip) -> CodePass:
    cycles = np.array([22.0e6])
    return CodePass.of(1, cycles=cycles, l2_bytes=1.05e9, dram_bytes=1.05e9, overlap=2.3, operations=0.55 * cycles * chip.lanes)


class _Cell(Struct, frozen=True):
    """Measured state: ``slm`` decodes at full speed, empty is idle; ``per_s`` None is back to back."""

    workload: str
    per_s: float | None
    loaded: bool = False


def _cell(group: str, name: str) -> _Cell | None:
    if group == ".":  # MobileNetV2 at 100 Hz with stress-ng
        return _Cell("mobilenet", 100.0, loaded="baseline" not in name and "p3hi" not in name)
    workload = name.removeprefix("gov_").rpartition("_")[2].replace("cnn", "mobilenet")
    if workload == "idle":
        return _Cell("", 0.0)
    if workload == "slm":
        return _Cell("slm", None)
    if workload not in WORKLOADS:
        return None
    if group == "campaign_g2/partA":
        return _Cell(workload, {"mobilenet": 25.0, "vit": 5.0, "proxy": 5.0}.get(workload, 4.0))
    if group == "campaign_g2/partB":
        return _Cell(workload, 50.0 if workload == "mobilenet" else 25.0, loaded="adv0" not in name)
    if group == "pilot_emc":
        return _Cell(workload, 25.0 if workload == "mobilenet" else 3.0)
    return _Cell(workload, 8.0)


def compare(folder: Path) -> Report:
    silicon = Silicon(None, BOARD)
    return Report(
        BOARD,
        silicon.chip,
        "four workloads on a Jetson Orin Nano Super (dankang21/jetson-latency-lab), kernels on another (branes-ai/graphs)",
        (*_latencies(folder, silicon), *_power(folder, silicon), *_transitions(folder), *_kernels(folder, silicon)),
        (
            "cproxyv2 at EMC 3199 and GPU 1020 MHz is left out of the limit: the board is slower there than at lower clocks.",
            "Single kernels: another board, before the Super firmware, at its highest clocks; nothing was fitted to them.",
            "Kernels and host costs are ONNX Runtime's. CPU and memory use of other programs is as measured; their power"
            " is only reported, since it depends on their work.",
        ),
    )


def _latencies(folder: Path, silicon: Silicon) -> list[FittedQuantity]:
    rows = list(read_rows(folder, LATENCIES))
    emc, gpu, p50 = (numbers(rows, name, LATENCIES) for name in ("emc_mhz", "gpu_mhz", "p50_us"))
    names = np.array([row["workload"] for row in rows])
    ours = Silicon(None, BOARD, chip=runtime(silicon.chip))
    fits = []
    for name in np.unique(names).tolist():
        mine = names == name
        clocks = Clocks(np.full(mine.sum(), _CPU_HZ), 1e6 * gpu[mine], _emc_hz(emc[mine]))
        simulated = 1e3 * execute(WORKLOADS[name], ours, clocks).latency_s
        odd = (name == "cproxyv2") & (emc[mine] == 3199) & (gpu[mine] == 1020)
        measured = p50[mine] / 1e3
        fits.append(FittedQuantity(f"{name}, ms", measured[~odd], simulated[~odd], None, LIMIT, every=True))
        if odd.any():
            fits.append(FittedQuantity(f"{name} at EMC 3199 and GPU 1020 MHz, ms", measured[odd], simulated[odd]))
    return fits


def _emc_hz(mhz: Array) -> Array:
    return np.where(mhz == 665, 665.6e6, 1e6 * mhz)


def _power(folder: Path, silicon: Silicon) -> list[FittedQuantity]:
    rows = list(read_rows(folder, POWER))
    chosen = [(row, cell) for row in rows if (cell := _cell(row["group"], row["cell"])) is not None]
    rows = [row for row, _ in chosen]
    cells = [cell for _, cell in chosen]
    watts = cell_watts(silicon, cells, rows)
    alone = np.array([not cell.loaded for cell in cells])
    fits = []
    for rail in silicon.rails:
        measured = numbers(rows, f"{rail.lower()}_mw", POWER) / 1e3
        fits.append(FittedQuantity(f"{rail}, W", measured[alone], watts[rail][alone], None, LIMIT, every=True))
        fits.append(FittedQuantity(f"{rail} with other programs, W", measured[~alone], watts[rail][~alone]))
    return fits


def cell_watts(silicon: Silicon, cells: Sequence[_Cell], rows: Sequence[Mapping[str, str]]) -> dict[str, Array]:
    names = ("cpu_mhz_mean", "gr3d_mhz_mean", "emc_mhz", "gpu_temp_c", "cpu_util_mean", "emc_util_mean")
    cpu, gpu, emc, celsius, cpu_share, emc_share = (numbers(list(rows), name, POWER) for name in names)
    ours = Silicon(None, BOARD, chip=runtime(silicon.chip))
    total: dict[str, Array] = {rail: np.zeros(len(rows)) for rail in silicon.rails}
    for index, cell in enumerate(cells):
        at = Clocks(1e6 * cpu[[index]], 1e6 * gpu[[index]], _emc_hz(emc[[index]]))
        rails = ours.idle_rails_w(at, float(celsius[index]))
        per_s, busy, moved = cell.per_s or 0.0, 0.0, 0.0
        work: Mapping[str, Array] = {}
        if cell.workload == "slm":
            activity = ours.launch(_decoding(ours.chip), at)
            per_s, work = 1.0 / float(activity.seconds[0, 0]), {rail: joules[0] for rail, joules in activity.energy_j.items()}
        elif cell.workload:
            run = execute(WORKLOADS[cell.workload], ours, at, float(celsius[index]))
            work = {rail: joules - rails[rail] * run.latency_s for rail, joules in run.rail_energy_j.items()}
            busy, moved = float(run.host_busy_s[0]), per_s * float(run.dram_bytes[0])
        others = ours.other_rails_w(
            at,
            cores=max(cpu_share[index] / 100.0 * sum(ours.chip.clusters) - busy * per_s, 0.0),
            dram_bytes_s=max(emc_share[index] / 100.0 * 32.0 * at.emc_hz[0] - moved, 0.0) if cell.loaded else 0.0,
        )
        for rail in total:
            total[rail][index] = (rails[rail] + per_s * work.get(rail, 0.0) + others.get(rail, 0.0))[0]
    return total


def _transitions(folder: Path) -> list[FittedQuantity]:
    rows = [row for row in read_rows(folder, TRANSITIONS) if row["run"] == "pilot_trans"]
    blocks = installed(load_board(BOARD)).section("twin")["transitions"]
    domains = [row["pair"].partition("_")[0] for row in rows]
    simulated = np.array([float(blocks[domain]["blocks_ms"]) for domain in domains])
    measured = numbers(rows, "write_us_p50", TRANSITIONS) / 1e3
    return [FittedQuantity("blocking of a clock's write, ms", measured, simulated, None, LIMIT, every=True)]


def _kernels(folder: Path, silicon: Silicon) -> list[FittedQuantity]:
    grid = load_board(BOARD).firmware["base"]
    clocks = Clocks.of([grid.top])
    fits = []
    for name, file in KERNELS.items():
        rows = list(read_rows(folder, file))
        measured = 1e3 * numbers(rows, "latency_s", file)
        calls = [_kernel(name, [int(size) for size in row["shape"].split("x")]) for row in rows]
        simulated = np.array([1e3 * float(execute(Network("", (), (call,)), silicon, clocks).latency_s[0]) for call in calls])
        long = measured > _LONG_MS
        fits.append(FittedQuantity(f"{name} on its own, ms", measured[long], simulated[long]))
    return fits


def _kernel(name: str, sizes: Sequence[int]) -> KernelInvocation:
    if name == "vector_add":
        return KernelInvocation("add", "", ((sizes[0],),) * 2, (sizes[0],), "float16", {})
    rows, second, third = sizes
    return product(rows, second, third, dtype="float16") if name == "linear" else product(rows, third, second, dtype="float16")
