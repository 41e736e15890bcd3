# SPDX-License-Identifier: Apache-2.0
"""Where one version of the silicon differs from another. This is version 1, which shipped profiles were trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....kernels.network import Call, KernelInvocation, Network
from .chip import AMBIENT_DIE_C, Array, Chip, Clocks
from .host import issue_us
from .kinds import passes
from .passes import Pass
from .voltage import Variation


@dataclass(frozen=True)
class Around:
    """What goes on around a kernel. Version 1 feels ``inside`` only, by what the caches hold.

    Attributes:
        inside: whether it runs in a network: its parameters have left the caches, the host issues further work meanwhile,
            and what it computes with is not random.
        temperature_c: of the die and the DRAM.
        bytes_s: what others than the GPU move to and from DRAM, at each configuration or at all alike.
        zeros: whether it is given zeros in place of random operands.
    """

    inside: bool = False
    temperature_c: float = AMBIENT_DIE_C
    bytes_s: Array | float = 0.0
    zeros: bool = False


@dataclass(frozen=True)
class Felt:
    """How a pass runs at some clocks: the pass, the clocks that it effectively has, the share of the bandwidth that is left to
    it, and how much longer it takes than that explains."""

    work: Pass
    clocks: Clocks
    supply: Array | float = 1.0
    longer: Array | float = 1.0


class Behaviour:
    """Version 1.

    Attributes:
        chip: whose behaviour.
        node: how the individual differs; ``number`` is which one, -1 the nominal chip.
    """

    def __init__(self, chip: Chip, node: Variation, number: int) -> None:
        self.chip = chip
        self.node = node
        self.number = number

    def prepared(self, network: Network) -> Network:
        """The network as it is launched."""
        return network

    def passes(self, kind: str, calls: Sequence[KernelInvocation]) -> list[Pass]:
        """The passes of invocations of one kind.

        Raises:
            TwinError: version 2 does not know the kind, or not in this form.
        """
        return passes(self.chip, kind, calls)

    def felt(
        self, work: Pass, clocks: Clocks, calls: Sequence[KernelInvocation], rows: NDArray[np.intp], around: Around
    ) -> Felt:
        """How rows of a pass run, each at the clocks of the same position; ``rows`` says which call each row is of."""
        return Felt(work, clocks)

    def issue_us(self, calls: Sequence[Call], launches: Sequence[float]) -> Array:
        """Issue times at the reference clocks, shape ``(len(calls),)``, in microseconds."""
        return issue_us(calls, launches)

    def timing_s(self, clocks: Clocks) -> Array | float:
        """What timing a kernel by itself adds to its time."""
        return 0.0

    def host_bytes(self, listed_s: Array) -> Array | float:
        """What the host moves to and from DRAM while it issues work that takes so long at the reference clocks."""
        return 0.0

    def waits(self, clocks: Clocks, bytes_s: Array) -> Array | float:
        """How much longer issuing takes while the GPU moves so much."""
        return 1.0

    def refresh_w(self, temperature_c: float) -> float:
        """What the DRAM's refresh draws more than at 45 degrees."""
        return 0.0

    def drawn(self, rails: Mapping[str, Array], before: Mapping[str, Array] | None) -> dict[str, Array]:
        """What rails draw for given loads behind their regulators, in W; beyond what they draw for loads ``before``."""
        return dict(rails)
