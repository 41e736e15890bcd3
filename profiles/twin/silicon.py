# SPDX-License-Identifier: Apache-2.0
"""The simulated AGX Xavier's silicon: time and power of kernel invocations and of the host, as a function of the clocks.

Written from how such chips work and from published measurements, not from any predictor: it counts its own work from shapes,
takes nothing from the cost models, and knows things that no model is told (algorithm choice, tile and block quantisation, cache
reuse, voltage steps, leakage). It is frozen: whoever trains on it relies on :data:`SILICON_VERSION` meaning one behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...kernels.network import Call, KernelInvocation
from ..errors import TwinError
from .silicon_chip import AMBIENT_DIE_C, RAILS, Array, Clocks, Variation
from .silicon_conv import convolution
from .silicon_host import clock_factor, issue_us
from .silicon_kernels import passes
from .silicon_passes import Pass, gap_seconds, launches, seconds
from .silicon_power import idle_rails_w, issue_power_w, pass_energy_j

SILICON_VERSION = "agx-xavier-1"
DYNAMIC_RAILS = ("GPU", "SOC", "VDDRQ")
_BOARDS = ("agx-xavier",)


@dataclass(frozen=True)
class Activity:
    """What kernels do at some clocks: GPU time in seconds, energy above idle by rail in J, launches; arrays of one shape."""

    seconds: Array
    energy_j: dict[str, Array]
    launches: Array


class Silicon:
    """One simulated chip.

    Args:
        node: which chip; every number is another one, deterministically, spread like the thirteen boards of MIRAGE's Figure 2.
        board: the board it sits on.

    Raises:
        TwinError: there is no silicon for that board, or the node is negative.
    """

    def __init__(self, node: int = 0, board: str = "agx-xavier") -> None:
        if board not in _BOARDS:
            raise TwinError(f"no simulated silicon for board {board!r}; valid: {', '.join(_BOARDS)}")
        if node < 0:
            raise TwinError(f"node {node}: expected a non-negative number")
        self.node = node
        self.board = board
        self.variation = Variation.of(node)

    def kernels(self, invocations: Sequence[KernelInvocation], clocks: Clocks, *, cold: bool = False) -> Activity:
        """Every invocation at every configuration: arrays of shape ``(len(invocations), len(clocks))``.

        ``cold`` says that parameters have left the caches since the kernel last ran, as they have inside a network.
        """
        rows, columns = np.indices((len(invocations), len(clocks)))
        activity = self._run(invocations, rows.ravel(), clocks.take(columns.ravel()), cold)
        shape = rows.shape
        return Activity(
            activity.seconds.reshape(shape),
            {rail: energy.reshape(shape) for rail, energy in activity.energy_j.items()},
            activity.launches.reshape(shape),
        )

    def pairs(self, invocations: Sequence[KernelInvocation], clocks: Clocks, *, cold: bool = False) -> Activity:
        """Each invocation at the configuration of the same position: arrays of shape ``(len(invocations),)``."""
        return self._run(invocations, np.arange(len(invocations)), clocks, cold)

    def _run(self, invocations: Sequence[KernelInvocation], rows: NDArray[np.intp], clocks: Clocks, cold: bool) -> Activity:
        gap = gap_seconds(clocks, self.variation)
        total = Activity(np.zeros(len(rows)), {rail: np.zeros(len(rows)) for rail in DYNAMIC_RAILS}, np.zeros(len(rows)))
        kinds = np.array([invocation.kind for invocation in invocations])
        for kind in dict.fromkeys(kinds.tolist()):
            members = np.flatnonzero(kinds == kind)
            local = np.full(len(invocations), -1)
            local[members] = np.arange(len(members))
            samples = np.flatnonzero(local[rows] >= 0)
            for work in self._passes(kind, [invocations[int(index)] for index in members]):
                running = samples[work.runs[local[rows[samples]]]]
                if not len(running):
                    continue
                part, at = work.rows(local[rows[running]]), clocks.take(running)
                busy = seconds(part, at, self.variation, cold=cold)
                for rail, energy in pass_energy_j(part, busy, at, self.variation, cold=cold).items():
                    total.energy_j[rail][running] += energy
                total.seconds[running] += busy + np.where(total.launches[running] > 0, gap[running], 0.0)
                total.launches[running] += 1.0
        return total

    @staticmethod
    def _passes(kind: str, invocations: Sequence[KernelInvocation]) -> list[Pass]:
        return convolution(invocations) if kind == "conv2d" else passes(kind, invocations)

    def gap_s(self, clocks: Clocks) -> Array:
        """The pause between two queued launches."""
        return gap_seconds(clocks, self.variation)

    def issue_s(self, calls: Sequence[Call], clocks: Clocks) -> Array:
        """Host time of issuing each call at each configuration, shape ``(len(calls), len(clocks))``."""
        return issue_us(calls, self._launches(calls))[:, None] * (1e-6 * clock_factor(clocks, self.variation))[None, :]

    def issue_pairs_s(self, calls: Sequence[Call], clocks: Clocks) -> Array:
        """Host time of issuing each call at the configuration of the same position, shape ``(len(calls),)``."""
        return np.asarray(issue_us(calls, self._launches(calls)) * 1e-6 * clock_factor(clocks, self.variation))

    def issue_w(self, clocks: Clocks) -> Array:
        """Power of the CPU rail above idle while the host issues work."""
        return issue_power_w(clocks, self.variation)

    def idle_rails_w(self, clocks: Clocks, temperature_c: float = AMBIENT_DIE_C) -> dict[str, Array]:
        """Power of every rail while nothing runs."""
        return idle_rails_w(clocks, self.variation, temperature_c)

    def sensed(self, rails: dict[str, Array]) -> dict[str, Array]:
        """What this board's shunts make of true rail figures (power or energy)."""
        return {rail: value * self.variation.gain[RAILS.index(rail)] for rail, value in rails.items()}

    def _launches(self, calls: Sequence[Call]) -> list[float]:
        """Device launches of each call."""
        counts = [0.0] * len(calls)
        positions: dict[str, list[int]] = {}
        for position, call in enumerate(calls):
            if isinstance(call, KernelInvocation):
                positions.setdefault(call.kind, []).append(position)
        for kind, where in positions.items():
            launched = launches(
                self._passes(kind, [call for call in map(calls.__getitem__, where) if isinstance(call, KernelInvocation)])
            )
            for position, count in zip(where, launched, strict=True):
                counts[position] = float(count)
        return counts
