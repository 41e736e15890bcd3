# SPDX-License-Identifier: Apache-2.0
"""One simulated chip as data (``chips/*.yaml``): units, memory, voltages, energies, host, rails and clocks.

A file may be ``like`` another and override parts; ``with`` adds another file's own part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...documents import DocumentError, convert, laid_over, load_yaml
from ...errors import TwinError


class EngineRuntime(Struct, frozen=True):
    """Runtime that compiles a network before running it.

    Attributes:
        folds: kinds computed into the weights of the preceding product.
        follows: kinds done within a product's kernel.
        joins: pointwise kinds merged in a row.
        drops: kinds without a launch.
        types: element types of builds; work without an 8-bit form is done in 16.
        start_us: host time of an inference, on the reference CPU.
        launch_us: host time of each launch there.
        start: factor on a kernel's start: the network is one graph.
        rate: factor on products' cycles by element type; ``float32`` for a missing type.
        traffic: factor on products' bytes by element type; 1 for a missing one.
    """

    folds: tuple[str, ...]
    follows: tuple[str, ...]
    joins: tuple[str, ...]
    drops: tuple[str, ...]
    types: tuple[str, ...]
    start_us: float
    launch_us: float
    start: float
    rate: Mapping[str, float]
    traffic: Mapping[str, float] = field(default_factory=dict)


class LibraryUnevenness(Struct, frozen=True):
    """Unevenness of a library's choices, as standard deviations of log time.

    Attributes:
        near: shared by kernels within half an octave of size.
        shape, board: of each exact shape, and of it on each individual.
        clocks: of each shape at each pair of GPU and memory clocks.
    """

    near: float
    shape: float
    board: float
    clocks: float


class CurrentLimiter(Struct, frozen=True):
    """Over-current protection that removes GPU pulses unseen by its clock.

    Attributes:
        watts: limit of the GPU's supply.
        least: share of pulses that always remain.
    """

    watts: float
    least: float


class Regulator(Struct, frozen=True):
    """Input power of a rail at output P watts: ``P + fixed_w + share P + per_w P^2``."""

    fixed_w: float
    share: float
    per_w: float


class Operands(Struct, frozen=True):
    """Dependence of energy on operands.

    Attributes:
        share: part of an operation's energy that random operands cost beyond zeros.
        inside: least share of that part for values within a network.
    """

    share: float
    inside: float


class Refresh(Struct, frozen=True):
    """DRAM refresh above each of the ascending temperatures: rate relative to 45 degrees, and power and share of time at rate
    1.
    """

    celsius: tuple[float, ...]
    rate: tuple[float, ...]
    watts: float
    time: float


class Traffic(Struct, frozen=True):
    """Memory traffic of the issuing host.

    Attributes:
        bytes_per_cycle: DRAM bytes per cycle of issuing at the reference clocks.
        waits: factor on issuing when the GPU uses all bandwidth.
    """

    bytes_per_cycle: float
    waits: float


class ChipDetails(Struct, frozen=True):
    """Details of a chip.

    Attributes:
        tensor_types: types of dense convolutions on tensor cores besides single precision.
        narrow_types: types that plain code computes at the chip's matrix rate.
        irregular: by kind; ``other`` for the rest.
        issue_spread: of the logarithm of a call's issue cost, by shape.
        timing_s: time of timing a kernel alone: ``timing_cycles`` of the CPU and ``timing_gpu_cycles``, less overlap.
        spread: exponents on Variation's factors, relative to thirteen boards.
        moved: factor on counted DRAM bytes, by kind.
        batched: share of a convolution's cycles on plain lanes saved at large batches.
        engines: simulated runtimes by name.
    """

    tensor_types: tuple[str, ...]
    narrow_types: tuple[str, ...]
    irregular: Mapping[str, LibraryUnevenness]
    issue_spread: float
    timing_s: float
    timing_cycles: float
    timing_gpu_cycles: float
    operands: Operands
    refresh: Refresh
    traffic: Traffic
    engines: Mapping[str, EngineRuntime]
    spread: Mapping[str, float] = field(default_factory=dict)
    moved: Mapping[str, float] = field(default_factory=dict)
    batched: float = 0.0
    regulators: Mapping[str, Regulator] = field(default_factory=dict)
    limiter: CurrentLimiter | None = None


Array: TypeAlias = NDArray[np.float64]

CHIPS_DIR = Path(__file__).with_name("chips")
AMBIENT_DIE_C = 45.0
Domain: TypeAlias = Literal["gpu", "cpu", "soc", "dram", "cv", "other"]
"""Physical supply; ``other`` is clock-independent power of module and carrier."""


class Clocks(Struct, frozen=True):
    """Frequency configurations as arrays of equal shape, in Hz."""

    cpu_hz: Array
    gpu_hz: Array
    emc_hz: Array

    @classmethod
    def of(cls, configurations: Iterable[FrequencyConfiguration]) -> Clocks:
        rows = np.array([tuple(configuration) for configuration in configurations], np.float64).reshape(-1, 3)
        return cls(rows[:, 0] * 1e3, rows[:, 1].copy(), rows[:, 2].copy())

    @classmethod
    def over(cls, grid: FrequencyGrid) -> Clocks:
        cpu, gpu, emc = np.meshgrid(
            np.array(grid.cpu_khz) * 1e3, np.array(grid.gpu_hz, float), np.array(grid.emc_hz, float), indexing="ij"
        )
        return cls(cpu.ravel(), gpu.ravel(), emc.ravel())

    def take(self, index: NDArray[np.intp]) -> Clocks:
        return Clocks(self.cpu_hz[index], self.gpu_hz[index], self.emc_hz[index])

    def __len__(self) -> int:
        return len(self.gpu_hz)


class MemorySystem(Struct, frozen=True):
    """DRAM behind a fabric at the GPU clock.

    Attributes:
        dram_bytes_per_cycle: at the memory clock, before efficiency.
        fabric_bytes_per_cycle: at the GPU clock.
        corner: exponent of the corner between both limits.
        sensitivity: exponent on an access pattern's rate, relative to the AGX Xavier.
        emc_hz, efficiency: sustained share of the DRAM rate at these memory clocks.
        latency_s, latency_gpu_cycles, latency_emc_cycles: parts of an SM's load that misses everywhere.
    """

    dram_bytes_per_cycle: float
    fabric_bytes_per_cycle: float
    corner: float
    sensitivity: float
    emc_hz: tuple[float, ...]
    efficiency: tuple[float, ...]
    latency_s: float
    latency_gpu_cycles: float
    latency_emc_cycles: float


class KernelStart(Struct, frozen=True):
    """Start of a kernel, ``gap`` between queued ones, and host round trip."""

    start_s: float
    start_cycles: float
    gap_s: float
    gap_cycles: float
    submit_s: float  # from the doorbell to the GPU's front end
    return_s: float  # from the last kernel's end to the waiting thread


class VoltageCurve(Struct, frozen=True):
    """Voltage of a rail over its clock: flat up to a knee, then rising by the regulator's steps."""

    volts: float
    knee_hz: float
    span_hz: float
    linear: float
    square: float
    step_mv: float


class VoltageLevels(Struct, frozen=True):
    """Rail with few levels, tied to the memory clock."""

    emc_hz: tuple[float, ...]
    volts: tuple[float, ...]
    step_mv: float


class Voltages(Struct, frozen=True):
    gpu: VoltageCurve
    cpu: VoltageCurve
    soc: VoltageLevels


class Energies(Struct, frozen=True):
    """Energy of work above idle, of GPU, CPU and memory controller at 1 V."""

    operation_j: float
    l2_byte_j: float
    fabric_byte_j: float
    soc_byte_j: float  # where the square of the voltage is 0.5
    soc_active_w: float  # while a kernel runs
    dram_byte_j: float
    dram_active_w: float  # while a kernel runs
    active_gpu_j: float  # per GPU cycle while a kernel runs
    active_core_j: float  # per CPU cycle of the thread that issues work


class PowerSteps(Struct, frozen=True):
    """Power over the memory clock, linear between the given clocks."""

    emc_hz: tuple[float, ...]
    watts: tuple[float, ...]


class IdlePower(Struct, frozen=True):
    """Idle power: leakage at 1 V and 45 degrees, constants, and energy per cycle."""

    gpu_leakage_w: float
    gpu_cycle_j: float
    cpu_leakage_w: float
    cpu_w: float
    cpu_cycle_j: float  # all clusters together
    soc_leakage_w: float
    soc_w: float
    soc_cycle_j: float  # per memory clock
    dram_w: float
    dram_cycle_j: float
    dram_levels: PowerSteps  # on top of both
    cv_w: float
    other_w: float


class HostProcessor(Struct, frozen=True):
    """Issuing CPU, relative to the reference (:mod:`.kinds`, :mod:`.host`).

    Attributes:
        scale: factor on a call's time at this chip's reference clocks.
        cycles, misses, fixed: shares of that by CPU clock, memory, and neither.
    """

    scale: float
    reference_cpu_hz: float
    reference_emc_hz: float
    cycles: float
    misses: float
    fixed: float


class LaneRate(Struct, frozen=True):
    """Multiply-adds per lane and cycle, in plain code and products, and energy relative to single precision."""

    vector: float
    matrix: float
    energy: float


_SINGLE = LaneRate(1.0, 1.0, 1.0)
# Assumed, and of every chip so far: no measurement of a real board tells them apart.
_UNGATED_LEAKAGE = 0.3  # the share of the GPU's leakage that is not of its SMs
_L2_KEEPS, _L2_LOSES_OVER = 0.55, 1.1  # shares of the L2 up to which nothing is lost, and over which ever more is


class Chip(Struct, frozen=True):
    """One simulated chip on its module.

    Attributes:
        version: of its behaviour, recorded by trained models.
        seed: of its individuals.
        sm_lanes: single-precision lanes of an SM.
        rates: by element type; the rest counts as single precision.
        tensor_cores: True if dense convolutions run there, in the type given (single precision as ``tf32``).
        library: factor on instructions relative to the AGX Xavier, by kind, or kind and type (``depthwise.float16``).
        l2_floor: least share of L2 data that the next kernel finds in DRAM.
        clusters: CPU cores of each cpufreq policy.
        rails: share, with losses, of each physical domain in each rail.
    """

    name: str
    version: str
    seed: int
    sm_count: int
    sm_lanes: int
    sm_threads: float
    rates: Mapping[str, LaneRate]
    tensor_cores: bool
    library: Mapping[str, float]
    l2_bytes: int
    l2_floor: float
    l2_bytes_per_cycle: float
    memory: MemorySystem
    start: KernelStart
    voltages: Voltages
    energies: Energies
    idle: IdlePower
    host: HostProcessor
    clusters: tuple[int, ...]
    rails: Mapping[str, Mapping[Domain, float]]
    detail: ChipDetails

    @property
    def lanes(self) -> int:
        return self.sm_count * self.sm_lanes

    def gated(self, sm_count: int) -> Chip:
        """Chip with this number of powered SMs (``tpc_pg_mask``; two to a TPC on newer chips)."""
        share = sm_count / self.sm_count
        idle = replace(
            self.idle,
            gpu_leakage_w=self.idle.gpu_leakage_w * (_UNGATED_LEAKAGE + (1.0 - _UNGATED_LEAKAGE) * share),
            gpu_cycle_j=self.idle.gpu_cycle_j * share,
        )
        energies = replace(self.energies, active_gpu_j=self.energies.active_gpu_j * share)
        return replace(self, sm_count=sm_count, idle=idle, energies=energies)

    def rate(self, dtype: str) -> LaneRate:
        return self.rates.get(dtype, _SINGLE)

    def work(self, kind: str, dtype: str) -> float:
        """Factor on a kernel's instructions relative to the AGX Xavier."""
        return self.library.get(f"{kind}.{dtype}", self.library.get(kind, 1.0))

    def missing(self, footprint: Array) -> Array:
        """Share of accesses to ``footprint`` touched bytes that leave the L2."""
        return np.asarray(np.maximum(self.reread(footprint), self.l2_floor))

    def reread(self, footprint: Array) -> Array:
        """The same for accesses shortly after each other, by other blocks of the kernel."""
        ratio = footprint / self.l2_bytes
        return np.asarray(np.clip((ratio - _L2_KEEPS) / _L2_LOSES_OVER, 0.0, 1.0))


_OF_ONE_CHIP = ("like", "version", "seed")


def list_chips(folder: Path = CHIPS_DIR) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


@lru_cache(maxsize=64)
def load_chip(name: str, folder: Path = CHIPS_DIR) -> Chip:
    """Read one chip. Raises TwinError if unknown or malformed."""
    if name not in list_chips(folder):
        raise TwinError(f"no simulated silicon {name!r}; valid: {', '.join(list_chips(folder))}")
    try:
        return convert({"name": name, **_raw(name, folder)}, Chip, exact=True)
    except DocumentError as error:
        path = folder / f"{name}.yaml"
        raise TwinError(error.in_file(f"chip file {path}", path.read_text(encoding="utf-8"))) from error


def own_parameters(name: str, folder: Path = CHIPS_DIR) -> dict[str, Any]:
    """Parameters of a chip's own file by dotted name. Raises TwinError."""
    load_chip(name, folder)
    raw = _read(name, folder)
    return dict(_flat({key: value for key, value in raw.items() if key not in ("version", "seed")}))


def _flat(raw: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in raw.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _raw(name: str, folder: Path) -> dict[str, Any]:
    raw = _own(name, folder)
    like = raw.pop("like", None)
    if like is None:
        return raw
    merged = laid_over(_raw(str(like), folder), raw)
    if "rails" in raw:  # another module's rails replace these, one by one would leave some behind
        merged["rails"] = raw["rails"]
    return merged


def _own(name: str, folder: Path) -> dict[str, Any]:
    """File data over that of its ``with`` file."""
    raw = _read(name, folder)
    other = raw.pop("with", None)
    if other is None:
        return raw
    below = {key: value for key, value in _own(str(other), folder).items() if key not in _OF_ONE_CHIP}
    return laid_over(below, raw)


def _read(name: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{name}.yaml"
    try:
        raw = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise TwinError(f"chip file {path}: {error}") from error
    if not isinstance(raw, dict):
        raise DocumentError(f"expected a mapping, got {raw!r:.60}")
    return raw


T = TypeVar("T", bound=Struct)
_KINDS = ("conv2d", "depthwise", "matmul", "batch_norm", "relu", "add", "max_pool2d", "cat", "softmax", "layer_norm", "clone")
_LIBRARY, _HOST, _ENERGY, _IDLE, _MEMORY = 0.25, 0.25, 0.2, 0.15, 0.1  # standard deviations of logarithms


def perturbed(chip: Chip, seed: int) -> Chip:
    """Chip with parameters varied by seed; unchanged for 0."""
    if not seed:
        return chip
    random = np.random.default_rng([chip.seed, seed])

    def other(value: float, deviation: float) -> float:
        return float(value * np.exp(random.normal(0.0, deviation)))

    def scaled(part: T, deviation: float) -> T:
        numbers = asdict(part)
        changed: dict[str, Any] = {name: other(value, deviation) for name, value in numbers.items() if isinstance(value, float)}
        return replace(part, **changed)

    library = {**dict.fromkeys(_KINDS, 1.0), **chip.library}
    return replace(
        chip,
        version=f"{chip.version}~{seed}",
        seed=chip.seed + seed,
        library={kind: other(factor, _LIBRARY) for kind, factor in library.items()},
        l2_bytes_per_cycle=other(chip.l2_bytes_per_cycle, _MEMORY),
        memory=replace(
            chip.memory,
            dram_bytes_per_cycle=other(chip.memory.dram_bytes_per_cycle, _MEMORY),
            fabric_bytes_per_cycle=other(chip.memory.fabric_bytes_per_cycle, _MEMORY),
        ),
        start=scaled(chip.start, _MEMORY),
        energies=scaled(chip.energies, _ENERGY),
        idle=scaled(chip.idle, _IDLE),
        host=replace(chip.host, scale=other(chip.host.scale, _HOST)),
    )
