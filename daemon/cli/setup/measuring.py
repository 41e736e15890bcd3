# SPDX-License-Identifier: Apache-2.0
"""Measuring a board in setup, adapting a profile to it, and proving it."""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from ....kernels.cost.model import surface
from ....kernels.grid import FrequencyConfiguration
from ....kernels.network import Network
from ....kernels.surface import Surface
from ....kernels.units import AXES
from ....profiles.adapt.adapting import bundle_adapted, disagreement, idling_as, observed_of
from ....profiles.adapt.measurements import TABLES, MeasurementRows, Measurements
from ....profiles.adapt.prior import next_observation, prior_of
from ....profiles.bundle.bundle import Bundle, load_bundle
from ....profiles.bundle.writing import install_bundle
from ....profiles.errors import MeasurementError
from ...planning.limits import Limits
from ...planning.plan import plan
from ...wire.client import Client
from .board import BoardFacts, ObservedRun, SetUpBoard, spread_out
from .runners import Candidate, Runner


def cooled(observed: ObservedRun, expected: Surface) -> ObservedRun:
    """An observation with powers at a surface's temperature, by the expected share of leakage."""
    if expected.heat is None or observed.die_c is None:
        return observed
    at = expected.grid.index(observed.configuration)
    idle_mw, leakage_mw = float(expected.idle_mw[at]), float(expected.leakage_mw[at])
    found_idle_mw, scale = observed.idle_mw, 1.0
    if found_idle_mw is not None and observed.idle_die_c is not None:
        scale = found_idle_mw / (idle_mw + leakage_mw * float(expected.heat.growth(observed.idle_die_c)))
        found_idle_mw = scale * idle_mw
    power_mw = observed.power_mw
    if power_mw is not None:
        power_mw -= scale * leakage_mw * float(expected.heat.growth(observed.die_c))
    return replace(observed, idle_mw=found_idle_mw, power_mw=power_mw)


_RUN_S, _INFERENCES, _LONGEST_RUN_S = 1.0, 20, 6.0
_MOST = 2_000
_MOST_REJECTED = 5  # in a row; then repetition does not help
_PROOF = 3
_CHECK_EVERY = 3  # observations between two checks of the profile, which take some surfaces each


class SetupPlan(Struct, frozen=True):
    """Plan of a setup, of at most ``seconds``.

    With ``accuracy``, configurations are those of uncertain plans, until they are known to this share.
    """

    board: SetUpBoard
    known: BoardFacts
    candidates: tuple[Candidate, ...]
    seconds: float
    record: Path
    name: str
    into: Path | None
    accuracy: float | None = None


class PredictionCheck(Struct, frozen=True):
    what: str
    configuration: FrequencyConfiguration
    predicted_ms: float
    observed_ms: float
    predicted_mw: float
    observed_mw: float

    def cells(self) -> list[str]:
        return [
            self.what, *self.configuration.mhz_texts,
            f"{self.predicted_ms:.2f}", f"{self.observed_ms:.2f}", f"{self.predicted_ms / self.observed_ms - 1:+.1%}",
            f"{self.predicted_mw / 1e3:.2f}", f"{self.observed_mw / 1e3:.2f}",
            f"{self.predicted_mw / self.observed_mw - 1:+.1%}",
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "configuration": self.configuration._asdict()}


def measure(what: SetupPlan, runner: Runner, client: Client, progress: Callable[[int, int, str], None]) -> Measurements:
    """Observe networks until the time is over, in addition to an earlier record; raises MeasurementError."""
    board, end, start = what.board, time.monotonic() + what.seconds, time.monotonic()
    record = _begun(what, runner)
    expected = surface(what.candidates[0].network, prior_of(load_bundle(what.known.prior), board.description).cost)
    rejected: list[str] = []
    order = _EvenOrder(what, record) if what.accuracy is None else _LeastCertainOrder(what, what.accuracy)
    pace_ms: dict[str, float] = {}
    for _ in range(_MOST):
        left_s = end - time.monotonic()
        if left_s <= 0 and _all_seen(record, what):
            break
        chosen = order.next(record)
        if chosen is None:
            break
        candidate, configuration = chosen
        text = f"{candidate.network.name}, {max(left_s, 0.0):.0f} s left{order.note}"
        progress(int(min(time.monotonic() - start, what.seconds)), int(what.seconds) + 1, text)
        seconds = min(max(_RUN_S, _INFERENCES * pace_ms.get(candidate.network.name, 0.0) / 1e3), _LONGEST_RUN_S)
        seen = board.observe(client, runner, candidate, configuration, seconds)
        pace_ms[candidate.network.name] = seen.latency_ms
        if seen.rejected or seen.power_mw is None:
            rejected.append(seen.rejected or "power could not be read")
            if len(rejected) >= _MOST_REJECTED:
                advice = ": let it cool" if "throttle" in rejected[-1] else ""
                kept = f"{len(record.tables['network_ms'])} are kept in {what.record}, and the clocks are back"
                raise MeasurementError(
                    f"{len(rejected)} observations one after the other do not count ({rejected[-1]}){advice}; {kept}"
                )
            continue
        rejected.clear()
        record = _with(record, what, candidate.network, cooled(seen, expected))
        record.save(what.record)
    progress(1, 1, "measured")
    return record


class _EvenOrder:
    note = ""

    def __init__(self, what: SetupPlan, record: Measurements) -> None:
        configurations = spread_out(what.board.grid, _MOST, seed=len(record.tables["network_ms"]))
        self._each = zip(itertools.cycle(what.candidates), configurations, strict=False)

    def next(self, record: Measurements) -> tuple[Candidate, FrequencyConfiguration] | None:
        return next(self._each)


class _LeastCertainOrder:
    def __init__(self, what: SetupPlan, accuracy: float) -> None:
        self._what, self._accuracy, self.note = what, accuracy, ""
        self._before = prior_of(load_bundle(what.known.prior), what.board.description)
        self._tried: list[set[FrequencyConfiguration]] = [set() for _ in what.candidates]
        self._check_at, self._off = 0, math.inf

    def next(self, record: Measurements) -> tuple[Candidate, FrequencyConfiguration] | None:
        candidates = self._what.candidates
        observed = observed_of(record, [candidate.network for candidate in candidates])
        before = idling_as(self._before, record)
        surfaces = [surface(candidate.network, before.cost) for candidate in candidates]
        tried = [done | {one.configuration for one in seen} for done, seen in zip(self._tried, observed, strict=True)]
        choice = next_observation(surfaces, observed, tried, self._what.board.grid)
        if choice is None:
            return None
        known = choice.uncertainty
        if known <= self._accuracy:  # each network corrected by itself; the board's factors are installed
            count = len(record.tables["network_ms"])
            if count >= self._check_at:
                pairs = zip((candidate.network for candidate in candidates), observed, strict=True)
                self._off = disagreement(before, self._what.board.description, list(pairs))
                self._check_at = count + _CHECK_EVERY if self._off < math.inf else count
            known = max(known, self._off)
        if known <= self._accuracy:
            return None
        self._tried[choice.network].add(choice.configuration)
        if known < math.inf:
            self.note = f", plans known to {known:.1%}"
        return candidates[choice.network], choice.configuration


def adapt(what: SetupPlan, record: Measurements) -> tuple[Bundle, Path]:
    prior = load_bundle(what.known.prior)
    with tempfile.TemporaryDirectory(prefix="jetdvfs-setup-") as scratch:
        folder = Path(scratch) / what.name
        command = f"jetdvfs-lab adapt {prior.manifest.name} {what.record.name} --name {what.name} --out {what.name}"
        bundle_adapted(prior, record, what.name, command, folder)
        installed = install_bundle(folder, what.into)
    return load_bundle(installed), installed


def prove(what: SetupPlan, bundle: Bundle, runner: Runner, client: Client) -> list[PredictionCheck]:
    first, grid = what.candidates[0], what.board.grid
    predicted = surface(first.network, bundle.cost)
    warm = predicted.heat is not None
    limits = Limits.within({axis: (grid.levels(axis)[0], grid.levels(axis)[-1]) for axis in AXES})
    chosen = [("least energy", plan(predicted, "min-energy", limits=limits).configuration)]
    chosen += [("any", one) for one in spread_out(grid, _PROOF + 1, seed=10_007)[2:]]
    rows = []
    for name, configuration in chosen:
        seen = what.board.observe(client, runner, first, configuration, _RUN_S)
        if seen.power_mw is None or seen.rejected:
            continue
        there = predicted.warmed(seen.die_c) if warm and seen.die_c is not None else predicted
        expected = there.at(seen.configuration)
        rows.append(
            PredictionCheck(name, seen.configuration, expected.latency_ms, seen.latency_ms, expected.power_mw, seen.power_mw)
        )
    return rows


def _begun(what: SetupPlan, runner: Runner) -> Measurements:
    networks = tuple(candidate.network for candidate in what.candidates)
    description = what.board.description
    if what.record.exists():
        found = Measurements.load(what.record)
        if (found.board, bool(found.silicon_version)) != (description.name, runner.simulated):
            theirs = f"{'the simulated' if found.silicon_version else 'a real'} {found.board}"
            raise MeasurementError(f"{what.record}: is of another board, {theirs}; give another --record")
        known = {one.digest for one in found.networks}
        return replace(found, networks=(*found.networks, *(one for one in networks if one.digest not in known)))
    return Measurements(
        board=description.name,
        silicon_version="simulated" if runner.simulated else "",
        temperature_c=what.known.manifest.measured_at_c,
        rails=what.board.sensors.energy_rails,
        invocations=(),
        calls=(),
        networks=networks,
        tables={name: MeasurementRows.joined([]) for name in TABLES},
        environment={"meter": runner.what, **what.board.at_first()},
    )


def _all_seen(record: Measurements, what: SetupPlan) -> bool:
    seen = {record.networks[place].digest for place in set(record.tables["network_ms"].what.tolist())}
    return all(candidate.network.digest in seen for candidate in what.candidates)


def _with(record: Measurements, what: SetupPlan, network: Network, observed: ObservedRun) -> Measurements:
    grid = what.board.description.grid
    flat = np.array([np.ravel_multi_index(grid.index(observed.configuration), grid.shape)], np.int64)
    position = np.array([[one.digest for one in record.networks].index(network.digest)], np.int64)
    node = np.zeros(1, np.int64)
    assert observed.power_mw is not None
    more = {"network_ms": (position, observed.latency_ms), "network_mw": (position, observed.power_mw)}
    if observed.idle_mw is not None:
        more["idle_mw"] = (node, observed.idle_mw)
    tables = dict(record.tables)
    if observed.die_c is not None:
        low_c, high_c = record.environment.get("die_c", (observed.die_c, observed.die_c))
        range_c = [min(low_c, observed.die_c), max(high_c, observed.die_c)]
        record = replace(record, environment={**record.environment, "die_c": range_c})
    for name, (of, value) in more.items():
        tables[name] = MeasurementRows.joined([tables[name], MeasurementRows(of, node, flat, np.array([value]))])
    if not observed.launches_ms:
        return replace(record, tables=tables)
    kernels = {kernel.signature: kernel for kernel in (*record.invocations, *network.launches)}
    numbers = {signature: number for number, signature in enumerate(kernels)}
    of = np.array([numbers[launch.signature] for launch in network.launches])
    rows = MeasurementRows(of, np.zeros(len(of), np.int64), np.repeat(flat, len(of)), np.array(observed.launches_ms))
    tables["kernel_ms"] = MeasurementRows.joined([tables["kernel_ms"], rows])
    return replace(record, tables=tables, invocations=tuple(kernels.values()))
