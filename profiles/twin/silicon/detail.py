# SPDX-License-Identifier: Apache-2.0
"""Details of a simulated chip, as data: unevenness, regulators, refresh, traffic, limiters, engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
