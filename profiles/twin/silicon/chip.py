# SPDX-License-Identifier: Apache-2.0
"""What one simulated chip is, as data: its units, memory, voltages, energies, host and rails (``chips/*.yaml``), and the clocks
it runs at.

A file may be ``like`` another and then says only what differs; ``with`` names a file whose own part it takes in besides. Adding
a chip is adding one file. Families stand in ``chips/common``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...documents import DocumentError, convert, load_yaml
from ...errors import TwinError


@dataclass(frozen=True)
class Engine:
    """A runtime that compiles a network before it runs, in place of a framework that launches its operators one by one.

    Attributes:
        folds: kinds that it computes into the weights of the product before them.
        follows: kinds that a product's kernel does on its way out.
        joins: pointwise kinds of which several in a row become one launch.
        drops: kinds that it plans away: whoever writes their input writes where their reader looks.
        types: the element types that it builds for. What cannot be done in one of eight bits is done in 16.
        start_us: host time of an inference however many launches it has, on the CPU whose costs per call are listed.
        launch_us: host time of each launch there.
        start: what starting a kernel takes beside one that a framework launches: the whole network is one graph.
        rate: products' cycles beside the framework's, whose kernels are chosen by heuristics and not by measuring.
    """

    folds: tuple[str, ...]
    follows: tuple[str, ...]
    joins: tuple[str, ...]
    drops: tuple[str, ...]
    types: tuple[str, ...]
    start_us: float
    launch_us: float
    start: float
    rate: float


@dataclass(frozen=True)
class Irregular:
    """How uneven a library's choices are, each figure a standard deviation of a time's logarithm.

    Attributes:
        near: of kernels whose sizes lie within half an octave of each other, all of which get the same.
        shape: of each exact shape.
        board: of each shape on each individual: near a tie, the library's measuring takes the one or the other.
        clocks: of each shape at each pair of GPU and memory clocks.
    """

    near: float
    shape: float
    board: float
    clocks: float


@dataclass(frozen=True)
class Limiter:
    """Over-current protection that takes pulses from the GPU without its clock showing it.

    Attributes:
        watts: what the GPU's supply may draw.
        least: the share of its pulses that it always keeps.
    """

    watts: float
    least: float


@dataclass(frozen=True)
class Regulator:
    """What a rail draws for an output of P watts: ``P + fixed_w + share P + per_w P^2``; so best in the middle of its range."""

    fixed_w: float
    share: float
    per_w: float


@dataclass(frozen=True)
class Operands:
    """How the energy of operations depends on what is multiplied.

    Attributes:
        share: the part of an operation's energy that random operands cost beyond zeros.
        inside: the least that a network's own values make of that part; each kernel's lies between this and all of it.
    """

    share: float
    inside: float


@dataclass(frozen=True)
class Refresh:
    """DRAM refresh: how much more often above each temperature than at 45 degrees, what it costs then, and what it takes.

    Attributes:
        celsius, rate: the steps, ascending.
        watts: at rate 1.
        time: the share of the DRAM's time that it takes at rate 1.
    """

    celsius: tuple[float, ...]
    rate: tuple[float, ...]
    watts: float
    time: float


@dataclass(frozen=True)
class Traffic:
    """The host's own use of the memory while it issues work.

    Attributes:
        bytes_per_cycle: to and from DRAM, for each cycle that issuing takes at the reference clocks: what a call misses in the
            caches is the same at all clocks, and a host that waits for the GPU moves nothing.
        waits: by how much longer issuing takes when the GPU uses all of the bandwidth.
    """

    bytes_per_cycle: float
    waits: float


@dataclass(frozen=True)
class Detail:
    """Details of a chip.

    Attributes:
        tensor_types: element types whose dense convolutions run on tensor cores where those of single precision do not.
        narrow_types: those that plain code computes with at the chip's matrix rate, and moves as narrow as they are.
        irregular: by kind; ``other`` for the rest.
        issue_spread: of the logarithm of what issuing a call costs, by its shape.
        timing_s: what timing a kernel by itself adds to it: ``timing_cycles`` of the CPU's, in which the kernel is handed over,
            and ``timing_gpu_cycles``, in which the GPU takes in the marks before and after it, less what passes meanwhile.
        spread: how much farther individuals lie apart than thirteen boards did, by the names of Variation's factors: exponents.
        moved: bytes to and from DRAM beside what is counted, by kind.
        engines: the runtimes that can be simulated, by name.
    """

    tensor_types: tuple[str, ...]
    narrow_types: tuple[str, ...]
    irregular: Mapping[str, Irregular]
    issue_spread: float
    timing_s: float
    timing_cycles: float
    timing_gpu_cycles: float
    operands: Operands
    refresh: Refresh
    traffic: Traffic
    engines: Mapping[str, Engine]
    spread: Mapping[str, float] = field(default_factory=dict)
    moved: Mapping[str, float] = field(default_factory=dict)
    regulators: Mapping[str, Regulator] = field(default_factory=dict)
    limiter: Limiter | None = None


Array: TypeAlias = NDArray[np.float64]

CHIPS_DIR = Path(__file__).with_name("chips")
AMBIENT_DIE_C = 45.0
Domain: TypeAlias = Literal["gpu", "cpu", "soc", "dram", "cv", "other"]
"""A physical supply; ``other`` is what the module and its carrier draw whatever the clocks are."""


@dataclass(frozen=True)
class Clocks:
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
        """Every configuration of a grid, in the order in which the grid iterates."""
        cpu, gpu, emc = np.meshgrid(
            np.array(grid.cpu_khz) * 1e3, np.array(grid.gpu_hz, float), np.array(grid.emc_hz, float), indexing="ij"
        )
        return cls(cpu.ravel(), gpu.ravel(), emc.ravel())

    def take(self, index: NDArray[np.intp]) -> Clocks:
        return Clocks(self.cpu_hz[index], self.gpu_hz[index], self.emc_hz[index])

    def __len__(self) -> int:
        return len(self.gpu_hz)


@dataclass(frozen=True)
class Memory:
    """DRAM behind a fabric that the GPU clock paces.

    Attributes:
        dram_bytes_per_cycle: at the memory clock, before efficiency.
        fabric_bytes_per_cycle: at the GPU clock.
        corner: exponent of the corner between the two limits.
        sensitivity: exponent on what an access pattern reaches of a plain stream's rate, beside the AGX Xavier: chips with more
            loads under way lose less.
        emc_hz, efficiency: share of the DRAM rate that a plain stream sustains, at these memory clocks.
        latency_s, latency_gpu_cycles, latency_emc_cycles: an SM's load that misses everywhere, in its three parts.
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


@dataclass(frozen=True)
class Start:
    """Starting a kernel (``start``), the pause between two queued ones (``gap``), and the way there and back."""

    start_s: float
    start_cycles: float
    gap_s: float
    gap_cycles: float
    submit_s: float  # from the doorbell to the GPU's front end
    return_s: float  # from the last kernel's end to the waiting thread


@dataclass(frozen=True)
class Curve:
    """A rail's voltage: flat up to a knee, then rising with the clock; given in the regulator's steps."""

    volts: float
    knee_hz: float
    span_hz: float
    linear: float
    square: float
    step_mv: float


@dataclass(frozen=True)
class Levels:
    """A rail with a few levels, tied to the memory clock."""

    emc_hz: tuple[float, ...]
    volts: tuple[float, ...]
    step_mv: float


@dataclass(frozen=True)
class Voltages:
    gpu: Curve
    cpu: Curve
    soc: Levels


@dataclass(frozen=True)
class Energies:
    """Energy of work above idle; of the GPU, the CPU and the memory controller at 1 V."""

    operation_j: float
    l2_byte_j: float
    fabric_byte_j: float
    soc_byte_j: float  # where the square of the voltage is 0.5
    soc_active_w: float  # while a kernel runs
    dram_byte_j: float
    dram_active_w: float  # while a kernel runs
    active_gpu_j: float  # per GPU cycle while a kernel runs
    active_core_j: float  # per CPU cycle of the thread that issues work


@dataclass(frozen=True)
class Steps:
    """A power that goes with the memory clock, linearly between the clocks given."""

    emc_hz: tuple[float, ...]
    watts: tuple[float, ...]


@dataclass(frozen=True)
class Idle:
    """Power while nothing runs: leakage at 1 V and 45 degrees, constant parts, and energy per cycle of what keeps toggling."""

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
    dram_levels: Steps  # on top of both
    cv_w: float
    other_w: float


@dataclass(frozen=True)
class Host:
    """The CPU that issues work, against the one whose costs per call are listed (:mod:`.kinds`, :mod:`.host`).

    Attributes:
        scale: how much longer a call takes at this chip's reference clocks.
        cycles, misses, fixed: which shares of that go with the CPU clock, with memory, and with neither.
    """

    scale: float
    reference_cpu_hz: float
    reference_emc_hz: float
    cycles: float
    misses: float
    fixed: float


@dataclass(frozen=True)
class Rate:
    """Multiply-adds of an element type per lane and cycle, in plain code and in matrix products, and the energy of such a
    cycle beside one in single precision."""

    vector: float
    matrix: float
    energy: float


_SINGLE = Rate(1.0, 1.0, 1.0)
# Assumed, and of every chip so far: no measurement of a real board tells them apart.
_UNGATED_LEAKAGE = 0.3  # the share of the GPU's leakage that is not of its SMs
_L2_KEEPS, _L2_LOSES_OVER = 0.55, 1.1  # shares of the L2 up to which nothing is lost, and over which ever more is


@dataclass(frozen=True)
class Chip:
    """One simulated chip on its module.

    Attributes:
        name: of its file.
        version: of its behaviour; models trained on it record this.
        seed: from which its individuals are drawn.
        sm_lanes: single-precision lanes of an SM.
        rates: by element type; others count as single precision.
        tensor_cores: whether dense convolutions run on them, in the element type given (single precision as ``tf32``);
            otherwise they run as single precision whatever the type is.
        library: instructions of a kernel beside those on the AGX Xavier, by kind or by kind and element type
            (``depthwise.float16``); frameworks differ in how well they are written.
        l2_floor: share of data that a kernel left in the L2, however little, that the next one finds in DRAM.
        clusters: CPU cores of each cpufreq policy, in the board's order.
        rails: what each rail of the board measures: a share (with losses) of each physical domain.
        detail: unevenness, regulators, refresh, engines and what else the behaviour knows of it.
    """

    name: str
    version: str
    seed: int
    sm_count: int
    sm_lanes: int
    sm_threads: float
    rates: Mapping[str, Rate]
    tensor_cores: bool
    library: Mapping[str, float]
    l2_bytes: int
    l2_floor: float
    l2_bytes_per_cycle: float
    memory: Memory
    start: Start
    voltages: Voltages
    energies: Energies
    idle: Idle
    host: Host
    clusters: tuple[int, ...]
    rails: Mapping[str, Mapping[Domain, float]]
    detail: Detail

    @property
    def lanes(self) -> int:
        return self.sm_count * self.sm_lanes

    def gated(self, sm_count: int) -> Chip:
        """The chip with only so many SMs powered (as ``tpc_pg_mask`` leaves them; two to a TPC on newer chips)."""
        share = sm_count / self.sm_count
        idle = replace(
            self.idle,
            gpu_leakage_w=self.idle.gpu_leakage_w * (_UNGATED_LEAKAGE + (1.0 - _UNGATED_LEAKAGE) * share),
            gpu_cycle_j=self.idle.gpu_cycle_j * share,
        )
        energies = replace(self.energies, active_gpu_j=self.energies.active_gpu_j * share)
        return replace(self, sm_count=sm_count, idle=idle, energies=energies)

    def rate(self, dtype: str) -> Rate:
        return self.rates.get(dtype, _SINGLE)

    def work(self, kind: str, dtype: str) -> float:
        """Instructions of a kernel beside those on the AGX Xavier."""
        return self.library.get(f"{kind}.{dtype}", self.library.get(kind, 1.0))

    def missing(self, footprint: Array) -> Array:
        """The share of accesses to ``footprint`` bytes, already touched, that leave the L2."""
        return np.asarray(np.maximum(self.reread(footprint), self.l2_floor))

    def reread(self, footprint: Array) -> Array:
        """The same for accesses soon after one another, by other blocks of the same kernel."""
        ratio = footprint / self.l2_bytes
        return np.asarray(np.clip((ratio - _L2_KEEPS) / _L2_LOSES_OVER, 0.0, 1.0))


_OF_ONE_CHIP = ("like", "version", "seed")


def list_chips(folder: Path = CHIPS_DIR) -> tuple[str, ...]:
    """The names of the chips that are described."""
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


@lru_cache(maxsize=64)
def load_chip(name: str, folder: Path = CHIPS_DIR) -> Chip:
    """Read one chip.

    Raises:
        TwinError: there is no such chip (the text lists those there are), or its file is malformed.
    """
    if name not in list_chips(folder):
        raise TwinError(f"no simulated silicon {name!r}; valid: {', '.join(list_chips(folder))}")
    try:
        return convert({"name": name, **_raw(name, folder)}, Chip, exact=True)
    except DocumentError as error:
        path = folder / f"{name}.yaml"
        raise TwinError(error.in_file(f"chip file {path}", path.read_text(encoding="utf-8"))) from error


def own_parameters(name: str, folder: Path = CHIPS_DIR) -> dict[str, Any]:
    """The parameters in a chip's own file, by dotted name, except its version and its seed.

    Raises:
        TwinError: there is no such chip, or its file is malformed.
    """
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
    merged = _merged(_raw(str(like), folder), raw)
    if "rails" in raw:  # another module's rails replace these, one by one would leave some behind
        merged["rails"] = raw["rails"]
    return merged


def _own(name: str, folder: Path) -> dict[str, Any]:
    """What a file says, laid over what the file says that it goes ``with``: not what that one is like."""
    raw = _read(name, folder)
    other = raw.pop("with", None)
    if other is None:
        return raw
    below = {key: value for key, value in _own(str(other), folder).items() if key not in _OF_ONE_CHIP}
    return _merged(below, raw)


def _read(name: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{name}.yaml"
    try:
        raw = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise TwinError(f"chip file {path}: {error}") from error
    if not isinstance(raw, dict):
        raise DocumentError(f"expected a mapping, got {raw!r:.60}")
    return raw


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        merged[key] = _merged(merged[key], value) if isinstance(value, dict) and isinstance(merged.get(key), dict) else value
    return merged


T = TypeVar("T")
_KINDS = ("conv2d", "depthwise", "matmul", "batch_norm", "relu", "add", "max_pool2d", "cat", "softmax", "layer_norm", "clone")
_LIBRARY, _HOST, _ENERGY, _IDLE, _MEMORY = 0.25, 0.25, 0.2, 0.15, 0.1  # standard deviations of logarithms


def perturbed(chip: Chip, seed: int) -> Chip:
    """The chip with other figures, the same for the same seed; itself for 0."""
    if not seed:
        return chip
    random = np.random.default_rng([chip.seed, seed])

    def other(value: float, deviation: float) -> float:
        return float(value * np.exp(random.normal(0.0, deviation)))

    def scaled(part: T, deviation: float) -> T:
        numbers = {one.name: getattr(part, one.name) for one in fields(part)}  # type: ignore[arg-type]
        changed: dict[str, Any] = {name: other(value, deviation) for name, value in numbers.items() if isinstance(value, float)}
        return replace(part, **changed)  # type: ignore[type-var]

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
