# SPDX-License-Identifier: Apache-2.0
"""Observations that outlast leases, by user and program, so that the next plan is right at once.

Each user has a share, and reads and drops only its own; root all. An unreadable file, or one of another version, counts as
empty. Entries are in order of arrival, so a clock set back displaces nothing.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from ....kernels.errors import KernelsError
from ....kernels.grid import FrequencyConfiguration
from ....kernels.stored_files import replacing

if TYPE_CHECKING:
    from ....kernels.correction.observation import Observation

log = logging.getLogger(__name__)

PROGRAMS_KEPT = 256
PROGRAMS_PER_USER = 32
CONFIGURATIONS_KEPT = 16
_VERSION = 2
_LEAST_FRAMES = 3
_HOUR_S = 3600.0
_FORGOTTEN_S = 90 * 24 * _HOUR_S
_UNKNOWN_AGE_S = 24 * _HOUR_S
_MOST_BYTES = 8 << 20
_NOT_OBSERVED = ("configuration", "seen_s", "predicted_ms")


class ProgramKey(NamedTuple):
    """A user's program: the digest of a network's surface, or an application's name."""

    uid: int
    program: str


class ProgramSummary(Struct, frozen=True):
    """Summary of one program; ``seen_s`` is in seconds since 1970, ``factor`` the median of observed over predicted latency."""

    uid: int
    name: str
    app: str
    frames: int
    configurations: int
    seen_s: float
    factor: float | None


class _ProgramObservations(Struct, frozen=True):
    name: str
    app: str
    observed: tuple[Mapping[str, Any], ...] = ()


class ObservationStore:
    """Observations by user and program, with ``clock`` in seconds since 1970. For one thread, except :meth:`save`."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, board: str = "") -> None:
        self._path, self._board = path, board
        self._clock = clock
        self._known: OrderedDict[ProgramKey, _ProgramObservations] = _read(path)
        self._saved = True

    def remember(
        self,
        key: ProgramKey,
        observations: Sequence[Observation],
        *,
        name: str = "",
        app: str = "",
        predicted_ms: Callable[[FrequencyConfiguration], float | None] = lambda _: None,
    ) -> None:
        """Keep a program's observations, the newest of each configuration; ``predicted_ms`` is uncorrected."""
        now_s = self._clock()
        telling = [seen for seen in observations if seen.frames >= _LEAST_FRAMES and not seen.disturbed]
        if not telling:
            return
        fresh = {tuple(seen.configuration) for seen in telling}
        program = self._known.pop(key, _ProgramObservations(name, app))
        before = [one for one in program.observed if tuple(one["configuration"]) not in fresh]
        news = [
            {
                **asdict(seen),
                "configuration": list(seen.configuration),
                "seen_s": now_s - seen.age_s,
                "predicted_ms": predicted_ms(seen.configuration),
            }
            for seen in sorted(telling, key=lambda seen: -seen.age_s)
        ]
        self._known[key] = _ProgramObservations(name, app, tuple([*before, *news][-CONFIGURATIONS_KEPT:]))
        self._saved = False
        self._bound(key.uid)

    def _bound(self, uid: int) -> None:
        shares = Counter(key.uid for key in self._known)
        while shares[uid] > PROGRAMS_PER_USER or len(self._known) > PROGRAMS_KEPT:
            most = uid if shares[uid] > PROGRAMS_PER_USER else shares.most_common(1)[0][0]
            del self._known[next(key for key in self._known if key.uid == most)]
            shares[most] -= 1

    def forget(self, key: ProgramKey) -> None:
        self._saved = self._known.pop(key, None) is None and self._saved

    def drop(self, uid: int | None, name: str | None) -> int:
        gone = [key for key, program in self._known.items() if _matches(key, program, uid, name)]
        for key in gone:
            self.forget(key)
        return len(gone)

    def learned(self, uid: int | None, name: str | None = None) -> list[ProgramSummary]:
        return [_summary(key, program) for key, program in reversed(self._known.items()) if _matches(key, program, uid, name)]

    def summary(self, key: ProgramKey) -> ProgramSummary | None:
        return _summary(key, self._known[key]) if key in self._known and self.observations(key) else None

    def observations(self, key: ProgramKey) -> tuple[Observation, ...]:
        now_s = self._clock()
        found = []
        program = self._known.get(key)
        for one in program.observed if program is not None else ():
            age_s = now_s - one["seen_s"]
            # The system clock was set back: age unknown.
            age_s = _UNKNOWN_AGE_S if age_s < -_HOUR_S else max(age_s, 0.0)
            if age_s < _FORGOTTEN_S:
                found.append(replace(_observation(one), age_s=age_s // _HOUR_S * _HOUR_S))
        return tuple(found)

    def save(self) -> None:
        if self._saved:
            return
        self._saved = True
        programs = [{**key._asdict(), **asdict(program)} for key, program in tuple(self._known.items())]
        try:
            with replacing(self._path, 0o644) as file:
                file.write(json.dumps({"version": _VERSION, "board": self._board, "programs": programs}).encode())
        except OSError as error:
            log.warning("observations cannot be kept in %s: %s", self._path, error.strerror)


def _matches(key: ProgramKey, program: _ProgramObservations, uid: int | None, name: str | None) -> bool:
    return uid in (None, key.uid) and name in (None, program.name or program.app)


def _summary(key: ProgramKey, program: _ProgramObservations) -> ProgramSummary:
    factors = [
        one["latency_ms"] / one["predicted_ms"] for one in program.observed if one["predicted_ms"] and one.get("latency_ms")
    ]
    return ProgramSummary(
        uid=key.uid,
        name=program.name,
        app=program.app,
        frames=sum(int(one["frames"]) for one in program.observed),
        configurations=len(program.observed),
        seen_s=max(float(one["seen_s"]) for one in program.observed),
        factor=median(factors) if factors else None,
    )


def _observation(one: Mapping[str, Any]) -> Observation:
    from ....kernels.correction.observation import Observation  # not needed without memory

    figures = {name: value for name, value in one.items() if name not in _NOT_OBSERVED}
    return Observation(FrequencyConfiguration(*map(int, one["configuration"])), **figures)


def _read(path: Path) -> OrderedDict[ProgramKey, _ProgramObservations]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return OrderedDict()
        data = json.loads(path.read_text(encoding="utf-8"))
        if (version := int(data["version"])) != _VERSION:
            aside = path.replace(path.with_name(f"{path.name}.version-{version}"))
            log.warning("%s: version %d, expected %d; set aside as %s for its release", path, version, _VERSION, aside.name)
            return OrderedDict()
        known: OrderedDict[ProgramKey, _ProgramObservations] = OrderedDict()
        for item in data["programs"]:
            observed = tuple(item["observed"])[-CONFIGURATIONS_KEPT:]
            for one in observed:
                float(one["seen_s"])
                if one["predicted_ms"] is not None and not float(one["predicted_ms"]) > 0:
                    raise ValueError("predicted_ms")
                _observation(one)
            if observed:
                key = ProgramKey(int(item["uid"]), str(item["program"]))
                known[key] = _ProgramObservations(str(item["name"]), str(item["app"]), observed)
        return known
    except FileNotFoundError:
        return OrderedDict()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, KernelsError) as error:
        log.warning("%s is not read: %s", path, type(error).__name__)
        return OrderedDict()
