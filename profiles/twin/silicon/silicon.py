# SPDX-License-Identifier: Apache-2.0
"""Silicon of a simulated board: time and power of kernels and host over the clocks.

Based on published measurements and independent of the predictor: it counts work from shapes and knows algorithm choice, tile
quantisation, cache reuse, voltage steps and leakage. The code is frozen: one :attr:`Silicon.version` is one behaviour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ....kernels.network import Call, KernelInvocation, Network
from ...board import UNUSED, BoardDescription, load_board
from ...errors import TwinError
from .behaviour import Behaviour, KernelConditions
from .chip import AMBIENT_DIE_C, Array, Chip, Clocks, load_chip
from .chip import perturbed as other_silicon
from .host import clock_factor
from .passes import CodePass, Variation, gap_seconds, launches, seconds
from .power import BUSY_DOMAINS, cpu_idle_w, idle_w, issue_power_w, pass_energy_j, traffic_w

LAUNCH_QUEUE = 1024


class Execution(Struct, frozen=True):
    """One inference at each of n configurations; arrays of shape ``(n,)``.

    Attributes:
        latency_s: from the first call to the end of the last kernel.
        rail_energy_j: true energy of each rail, idle power included.
        host_busy_s, gpu_busy_s: time of issuing, and of kernels.
    """

    latency_s: Array
    rail_energy_j: dict[str, Array]
    host_busy_s: Array
    gpu_busy_s: Array
    dram_bytes: Array


def execute(network: Network, silicon: Silicon, clocks: Clocks, temperature_c: float = AMBIENT_DIE_C) -> Execution:
    """Run a network once at each configuration, with parameters in DRAM and activations as the previous kernel left them.

    Raises:
        TwinError: an unknown kind, or no engine for the network.
    """
    network = silicon.prepared(network)
    unique: dict[object, int] = {}
    kernels: list[KernelInvocation] = []
    for launch in network.launches:
        if unique.setdefault(launch.signature, len(kernels)) == len(kernels):
            kernels.append(launch)
    issue = silicon.issue_s(network.calls, clocks)
    gap, start = silicon.gap_s(clocks), silicon.chip.start
    activity = silicon.kernels(kernels, clocks, cold=True, temperature_c=temperature_c)
    host_bytes = silicon.host_bytes(issue.sum(axis=0), clocks)
    if np.any(host_bytes):  # spread over the frame; the host's waits for the GPU, which come of this, are left out
        times = np.bincount([unique[launch.signature] for launch in network.launches], minlength=len(kernels))
        running = times @ (activity.seconds + gap)
        lasting = np.maximum(np.maximum(issue.sum(axis=0), running), 1e-12)
        activity = silicon.kernels(kernels, clocks, cold=True, temperature_c=temperature_c, others_bytes_s=host_bytes / lasting)
    issue = issue * silicon.waits(clocks, activity.dram_bytes.sum(axis=0) / np.maximum(activity.seconds.sum(axis=0), 1e-12))

    host: Array = np.zeros(len(clocks))
    gpu: Array = np.zeros(len(clocks))
    gpu_busy = np.zeros(len(clocks))
    moved: Array = np.zeros(len(clocks))
    energy: dict[str, Array] = {rail: np.zeros(len(clocks)) for rail in silicon.busy_rails}
    queued: deque[Array] = deque(maxlen=LAUNCH_QUEUE)
    for call, cost in zip(network.calls, issue, strict=True):
        if not isinstance(call, KernelInvocation):
            host = host + cost
            continue
        if len(queued) == LAUNCH_QUEUE:  # the queue is full: the host waits for the oldest launch to finish
            host = np.maximum(host, queued[0])
        host = host + cost
        row = unique[call.signature]
        busy = activity.seconds[row]
        gpu = np.maximum(host + start.submit_s, gpu + gap) + busy
        gpu_busy = gpu_busy + busy
        moved = moved + activity.dram_bytes[row]
        queued.append(gpu)
        for rail in silicon.busy_rails:
            energy[rail] = energy[rail] + activity.energy_j[rail][row]
    latency = np.maximum(gpu + start.return_s, host)
    host_busy = issue.sum(axis=0)
    rails = {rail: power * latency for rail, power in silicon.idle_rails_w(clocks, temperature_c).items()}
    for rail in silicon.busy_rails:
        rails[rail] = rails[rail] + energy[rail]
    for rail, power in silicon.issue_rails_w(clocks).items():
        rails[rail] = rails[rail] + power * host_busy
    return Execution(latency, rails, host_busy, gpu_busy, moved)


_SHUNT_STEP_UV = 40.0  # of an INA3221 (its data sheet: 13 bits over +-163.8 mV)
_BUS_MV = 19000.0  # the AGX Xavier's supply, where a description does not know


class Activity(Struct, frozen=True):
    """GPU time in s, energy above idle by rail in J, launches, DRAM bytes; arrays of one shape."""

    seconds: Array
    energy_j: dict[str, Array]
    launches: Array
    dram_bytes: Array


class Silicon(Behaviour):
    """One simulated chip on its board.

    Args:
        node: individual, spread like MIRAGE's thirteen boards (Figure 2); None is the nominal chip.
        board: description or name; its ``twin.silicon`` names the chip.
        perturbed: variant of the chip (:func:`.chip.perturbed`); 0 for itself.
        engine: runtime in the chip's file; empty for the framework.
        dtype: element type of the engine.

    Attributes:
        rails: of the board's monitors; some contain another.
        busy_rails: rails that show a kernel's work.
        sensor_step_mw: resolution of each rail's sensor.

    Raises:
        BoardDescriptionError: unknown board.
        TwinError: no silicon for the board, a rail of unknown content, a negative node, or an unknown engine.
    """

    def __init__(
        self,
        node: int | None = 0,
        board: str | BoardDescription = "agx-xavier",
        *,
        chip: Chip | None = None,
        perturbed: int = 0,
        engine: str = "",
        dtype: str = "",
    ) -> None:
        description = load_board(board) if isinstance(board, str) else board
        if node is not None and node < 0:
            raise TwinError(f"node {node}: expected a non-negative number")
        self.board = description.name
        self.node = 0 if node is None else node
        made = other_silicon(chip or load_chip(_chip_of(description)), perturbed)
        variation = Variation.none(made) if node is None else _individual(node, made)
        if engine in made.detail.engines:
            variation = replace(variation, launch=made.detail.engines[engine].start * variation.launch)
        super().__init__(made, variation, -1 if node is None else node, engine, dtype)
        self.rails = _measured(description, self.chip)
        self.sensor_step_mw = _sensor_steps(description)
        self.busy_rails = tuple(rail for rail in self.rails if set(self.chip.rails[rail]) & set(BUSY_DOMAINS))

    @property
    def version(self) -> str:
        return self.chip.version

    def kernels(
        self,
        invocations: Sequence[KernelInvocation],
        clocks: Clocks,
        *,
        cold: bool = False,
        temperature_c: float = AMBIENT_DIE_C,
        others_bytes_s: Array | float = 0.0,
        zeros: bool = False,
    ) -> Activity:
        """Every invocation at every configuration: shape ``(len(invocations), len(clocks))``. Raises TwinError.

        Args:
            cold: True as in a network, without parameters in the caches.
            temperature_c: of the die and the DRAM.
            others_bytes_s: DRAM traffic besides the GPU's, ``(len(clocks),)`` or one value.
            zeros: True for operands of zeros.
        """
        rows, columns = np.indices((len(invocations), len(clocks)))
        others = np.broadcast_to(others_bytes_s, (len(clocks),))[columns.ravel()]
        around = KernelConditions(cold, temperature_c, others, zeros)
        activity = self._activity(invocations, rows.ravel(), clocks.take(columns.ravel()), around)
        shape = rows.shape
        return Activity(
            activity.seconds.reshape(shape),
            {rail: energy.reshape(shape) for rail, energy in activity.energy_j.items()},
            activity.launches.reshape(shape),
            activity.dram_bytes.reshape(shape),
        )

    def pairs(self, invocations: Sequence[KernelInvocation], clocks: Clocks, *, cold: bool = False) -> Activity:
        """Each invocation at the configuration of its position: shape ``(len(invocations),)``."""
        return self._activity(invocations, np.arange(len(invocations)), clocks, KernelConditions(cold))

    def _activity(
        self, invocations: Sequence[KernelInvocation], rows: NDArray[np.intp], clocks: Clocks, around: KernelConditions
    ) -> Activity:
        cold = around.inside
        others = np.broadcast_to(around.bytes_s, rows.shape)
        gap = gap_seconds(clocks, self.chip, self.variation)
        energy: dict[str, Array] = {domain: np.zeros(len(rows)) for domain in BUSY_DOMAINS}
        total = Activity(np.zeros(len(rows)), energy, np.zeros(len(rows)), np.zeros(len(rows)))
        kinds = np.array([invocation.kind for invocation in invocations])
        for kind in dict.fromkeys(kinds.tolist()):
            members = np.flatnonzero(kinds == kind)
            local = np.full(len(invocations), -1)
            local[members] = np.arange(len(members))
            samples = np.flatnonzero(local[rows] >= 0)
            calls = [invocations[int(index)] for index in members]
            for work in self.passes(kind, calls):
                running = samples[work.runs[local[rows[samples]]]]
                if not len(running):
                    continue
                own, at = local[rows[running]], clocks.take(running)
                conditions = self.conditions(work.rows(own), at, calls, own, replace(around, bytes_s=others[running]))
                part = conditions.work
                busy = conditions.longer * seconds(
                    part, conditions.clocks, self.chip, self.variation, cold=cold, supply=conditions.supply
                )
                for domain, joules in pass_energy_j(part, busy, at, self.chip, self.variation, cold=cold).items():
                    energy[domain][running] += joules
                total.seconds[running] += busy + np.where(total.launches[running] > 0, gap[running], 0.0)
                total.launches[running] += 1.0
                total.dram_bytes[running] += part.moved(cold=cold)
        return replace(total, energy_j=self._drawn_j(energy, total.seconds, clocks, around.temperature_c))

    def launch(self, work: CodePass, clocks: Clocks) -> Activity:
        """One launch of given work without issuing: shape ``(n, len(clocks))``."""
        column = CodePass(*(getattr(work, name)[:, None] for name in CodePass.__struct_fields__))
        busy = seconds(column, clocks, self.chip, self.variation, cold=False)
        energy = pass_energy_j(column, busy, clocks, self.chip, self.variation, cold=False)
        whole = {domain: np.broadcast_to(value, busy.shape) for domain, value in energy.items()}
        moved = np.broadcast_to(column.moved(cold=False), busy.shape)
        return Activity(busy, self._drawn_j(whole, busy, clocks, AMBIENT_DIE_C), np.ones(busy.shape), moved)

    def _on_rails(self, domains: Mapping[str, Array], rails: Sequence[str]) -> dict[str, Array]:
        result = {}
        for rail in rails:
            parts = [share * domains[domain] for domain, share in self.chip.rails[rail].items() if domain in domains]
            result[rail] = parts[0] if len(parts) == 1 else np.asarray(np.sum(parts, axis=0))
        return result

    def _drawn_j(self, domains: Mapping[str, Array], seconds: Array, clocks: Clocks, temperature_c: float) -> dict[str, Array]:
        energy = self._on_rails(domains, self.busy_rails)
        lasting = np.maximum(seconds, 1e-12)
        watts = self.drawn({rail: joules / lasting for rail, joules in energy.items()}, self._idle_out(clocks, temperature_c))
        return {rail: power * lasting for rail, power in watts.items()}

    def _idle_out(self, clocks: Clocks, temperature_c: float) -> dict[str, Array]:
        return self._on_rails(self._idle_domains(clocks, temperature_c), self.rails)

    def _idle_domains(self, clocks: Clocks, temperature_c: float) -> dict[str, Array]:
        domains = idle_w(self.chip, clocks, self.variation, temperature_c)
        domains["dram"] = domains["dram"] + self.variation.dram_energy * self.refresh_w(temperature_c)
        return domains

    def gap_s(self, clocks: Clocks) -> Array:
        return gap_seconds(clocks, self.chip, self.variation)

    def issue_s(self, calls: Sequence[Call], clocks: Clocks) -> Array:
        """Issue time of each call at each configuration, shape ``(len(calls), len(clocks))``."""
        factor = clock_factor(clocks, self.chip, self.variation)
        return self.issue_us(calls, self._launches(calls))[:, None] * (1e-6 * factor)[None, :]

    def issue_pairs_s(self, calls: Sequence[Call], clocks: Clocks) -> Array:
        """Issue time of each call at the configuration of its position, shape ``(len(calls),)``."""
        factor = clock_factor(clocks, self.chip, self.variation)
        return np.asarray(self.issue_us(calls, self._launches(calls)) * 1e-6 * factor)

    def issue_rails_w(self, clocks: Clocks) -> dict[str, Array]:
        rails = [rail for rail in self.rails if "cpu" in self.chip.rails[rail]]
        watts = self._on_rails({"cpu": issue_power_w(self.chip, clocks, self.variation)}, rails)
        return self.drawn(watts, self._idle_out(clocks, AMBIENT_DIE_C))

    def other_rails_w(self, clocks: Clocks, *, cores: float = 0.0, dram_bytes_s: float = 0.0) -> dict[str, Array]:
        """Power above idle of busy CPU cores and memory traffic besides the GPU's."""
        domains = {"cpu": cores * issue_power_w(self.chip, clocks, self.variation)}
        domains |= traffic_w(self.chip, clocks, self.variation, dram_bytes_s)
        rails = [rail for rail in self.rails if set(self.chip.rails[rail]) & set(domains)]
        return self.drawn(self._on_rails(domains, rails), self._idle_out(clocks, AMBIENT_DIE_C))

    def idle_rails_w(
        self, clocks: Clocks, temperature_c: float = AMBIENT_DIE_C, cluster_hz: Sequence[Array] | None = None
    ) -> dict[str, Array]:
        """Idle power of every rail; ``cluster_hz`` has a clock per cpufreq policy. Raises TwinError."""
        domains = self._idle_domains(clocks, temperature_c)
        if cluster_hz is not None:
            if len(cluster_hz) != len(self.chip.clusters):
                raise TwinError(f"expected a CPU clock for each of {len(self.chip.clusters)} clusters, got {len(cluster_hz)}")
            domains["cpu"] = cpu_idle_w(self.chip, cluster_hz, self.variation, temperature_c)
        return self.drawn(self._on_rails(domains, self.rails), None)

    def sensed(self, rails: dict[str, Array]) -> dict[str, Array]:
        """True power or energy as the board's shunts read it."""
        gain = dict(zip(self.chip.rails, self.variation.gain, strict=True))
        return {rail: value * gain[rail] for rail, value in rails.items()}

    def _launches(self, calls: Sequence[Call]) -> list[float]:
        counts = [0.0] * len(calls)
        positions: dict[str, list[int]] = {}
        for position, call in enumerate(calls):
            if isinstance(call, KernelInvocation):
                positions.setdefault(call.kind, []).append(position)
        for kind, where in positions.items():
            launched = launches(
                self.passes(kind, [call for call in map(calls.__getitem__, where) if isinstance(call, KernelInvocation)])
            )
            for position, count in zip(where, launched, strict=True):
                counts[position] = float(count)
        return counts


def check_version(name: str, board: str | BoardDescription) -> None:
    """Check a manifest's ``silicon_version``. Raises BoardDescriptionError, or TwinError for another version."""
    description = load_board(board) if isinstance(board, str) else board
    known = load_chip(_chip_of(description)).version
    if name != known:
        raise TwinError(f"board {description.name}: no simulated silicon {name!r}; valid: {known}")


def _chip_of(description: BoardDescription) -> str:
    return str(description.raw.get("twin", {}).get("silicon", description.name))


def _individual(node: int, chip: Chip) -> Variation:
    variation = Variation.of(node, chip)
    return replace(variation, **{name: getattr(variation, name) ** power for name, power in chip.detail.spread.items()})


def _measured(description: BoardDescription, chip: Chip) -> tuple[str, ...]:
    channels = {rail for monitor in description.monitors for rail in monitor.channels if rail != UNUSED}
    unknown = sorted(channels - set(chip.rails))
    if unknown:
        raise TwinError(f"simulated silicon {chip.name!r} has no rail {', '.join(unknown)}; valid: {', '.join(chip.rails)}")
    return tuple(rail for rail in chip.rails if rail in channels)


def _sensor_steps(description: BoardDescription) -> dict[str, float]:
    """Sensor steps: 40 microvolts over the shunt."""
    bus_mv = float(description.raw["rails"].get("bus_mv", _BUS_MV))
    return {rail: _SHUNT_STEP_UV / monitor.shunt_uohm * bus_mv for monitor in description.monitors for rail in monitor.channels}
