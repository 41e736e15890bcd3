# SPDX-License-Identifier: Apache-2.0
"""Frames reported for one lease, as evidence on the clocks in force.

Reports lack start times: ends are assumed evenly spread. Frames begun before the clocks were set, the first at new clocks and
the first after a pause are no evidence.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from ...kernels.grid import FrequencyConfiguration
from ..hardware.sensors.sampled import TimedValue
from .credible_range import CredibleRange, OutlierTracker
from .missed_targets import JUDGED, doubted, heavier, shifted, typical

if TYPE_CHECKING:
    from ...kernels.correction.observation import Observation

FRAMES_KEPT = 512
_TYPICAL_OF = 32
_CONFIGURATIONS_KEPT = 32
_POWERS_KEPT = 16
_PAUSE_S = 1.0
_POWER_SETTLES_S = 0.5
_ALWAYS_BUSY = 0.9

Company = frozenset[str]


class ClockSetting(NamedTuple):
    """Clocks in force since a monotonic time; ``disturbed`` by heat, over-current or deviating clocks."""

    configuration: FrequencyConfiguration
    since_s: float
    disturbed: bool = False


class _PowerReading(NamedTuple):
    power_mw: float
    die_c: float | None


class _FrameGroup(Struct):
    latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_TYPICAL_OF))
    powers: deque[_PowerReading] = field(default_factory=lambda: deque(maxlen=_POWERS_KEPT))
    frames: int = 0
    last_s: float = 0.0
    period_ms: float | None = None
    doubt: float = 0.0


class FrameLog:
    """Frames of one lease. For one thread.

    Attributes:
        recent_ms: trusted latencies at the clocks in force, oldest first.
        first_ms: recent first frames after a pause or at other clocks.
    """

    def __init__(self) -> None:
        self.reported = 0
        self.late = 0
        self.recent_ms: deque[float] = deque(maxlen=_TYPICAL_OF)
        self.last_s: float | None = None
        self.first_frames = 0
        self.first_ms: deque[float] = deque(maxlen=_TYPICAL_OF)
        self.doubts = OutlierTracker()
        self._latencies_ms: deque[float] = deque()
        self._ranked_ms: list[float] = []
        self._setting: ClockSetting | None = None
        self._company: Company = frozenset()
        self._untried = True
        self._steady_s = 0.0
        self._power_s = 0.0
        self._seen: OrderedDict[tuple[FrequencyConfiguration, Company], _FrameGroup] = OrderedDict()

    def report(
        self,
        latencies_ms: Iterable[float],
        now_s: float = 0.0,
        setting: ClockSetting | None = None,
        *,
        company: Company = frozenset(),
        limit_ms: float | None = None,
        period_ms: float | None = None,
        where: CredibleRange | None = None,
    ) -> None:
        """Note frames that have just ended, oldest first; ``where`` is the credible range."""
        where = where or CredibleRange()
        latencies = list(latencies_ms)
        if not latencies:
            return
        before_s, self.last_s = self.last_s, now_s
        self._rank(latencies)
        self.reported += len(latencies)
        self.late += sum(latency > limit_ms for latency in latencies) if limit_ms is not None else 0
        if setting is None:
            return
        # The usual idle time between frames is no pause.
        usual_s = (period_ms or 0.0) * len(latencies) / 1e3
        paused = before_s is None or now_s - before_s - sum(latencies) / 1e3 > max(_PAUSE_S, usual_s)
        moved = self._setting is None or setting[:2] != self._setting[:2]
        if moved or company != self._company:
            self.recent_ms.clear()
        if paused or moved or company != self._company:
            self._steady_s = now_s
        self._setting, self._company = setting, company
        trusted = _trusted(latencies, before_s, now_s, setting.since_s)
        # The first frame after a pause, or at other clocks, is slow by itself.
        self._untried = self._untried or paused or moved
        if self._untried and trusted:
            self.first_ms.append(trusted[0])
            self.first_frames += 1
            trusted, self._untried = trusted[1:], False
        self.recent_ms.extend(trusted)
        self.doubts.note(trusted, where, now_s)
        trusted = [latency for latency in trusted if where.side(latency) is None]
        if not trusted or setting.disturbed:
            return
        seen = self._seen_at(setting.configuration, company)
        if seen.doubt:  # from another load
            seen.latencies_ms.clear()
            seen.powers.clear()
            seen.frames, seen.doubt = 0, 0.0
        seen.latencies_ms.extend(trusted)
        seen.frames += len(trusted)
        seen.last_s = now_s
        if period_ms is None and before_s is not None and not paused:
            period_ms = 1e3 * (now_s - before_s) / len(latencies)
        if period_ms is not None:
            seen.period_ms = period_ms

    def power(
        self,
        rails: Mapping[str, TimedValue[float]],
        energy_rails: Collection[str],
        die_c: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Note the power of all rails and the die in degrees Celsius, if read at constant clocks while frames came."""
        setting = self._setting
        if setting is None or setting.disturbed or not energy_rails or any(rail not in rails for rail in energy_rails):
            return
        samples = [rails[rail] for rail in energy_rails]
        oldest_s = min(sample.time_s for sample in samples)
        seen = self._seen.get((setting.configuration, self._company))
        if seen is None or oldest_s <= self._power_s or oldest_s < max(setting.since_s, self._steady_s) + _POWER_SETTLES_S:
            return
        self._power_s = oldest_s
        # A failing monitor reads zero; a working board draws power.
        if (drawn_mw := sum(sample.value for sample in samples)) > 0:
            seen.powers.append(_PowerReading(drawn_mw, die_c()))

    def renew(self, unforeseen: float = 1.0) -> None:
        """Keep only the last frames at the clocks in force, for a missed target.

        If they became slower, or by ``unforeseen`` than expected, observations elsewhere count as one frame that much longer.
        """
        if (here := self._here) is not None:
            if (factor := heavier(tuple(here.latencies_ms))) != 1.0 or (factor := unforeseen) != 1.0:
                self._other_load(here, factor)
            last = min(len(self.recent_ms) or JUDGED, JUDGED)
            here.latencies_ms = deque(list(here.latencies_ms)[-last:], maxlen=_TYPICAL_OF)

    def shift(self) -> float:
        """Ratio of latency after to before a change of load at these clocks, else 1; earlier observations then count little."""
        here = self._here
        if here is None or (factor := shifted(tuple(here.latencies_ms))) == 1.0:
            return 1.0
        self._other_load(here, factor)
        here.latencies_ms = deque(list(here.latencies_ms)[-JUDGED:], maxlen=_TYPICAL_OF)
        here.powers.clear()
        return factor

    @property
    def _here(self) -> _FrameGroup | None:
        return None if self._setting is None else self._seen.get((self._setting.configuration, self._company))

    def _other_load(self, here: _FrameGroup, factor: float) -> None:
        for seen in self._seen.values():
            if seen is not here:
                seen.latencies_ms = deque((factor * one for one in seen.latencies_ms), maxlen=_TYPICAL_OF)
                seen.frames, seen.doubt = 1, math.hypot(seen.doubt, doubted(factor))
                # The busy share stays that of the power readings.
                seen.period_ms = None if seen.period_ms is None else factor * seen.period_ms

    def recall(self, before: Iterable[Observation], now_s: float) -> None:
        for one in before:
            if (one.configuration, frozenset()) not in self._seen and one.latency_ms is not None:
                seen = self._seen_at(one.configuration, frozenset())
                seen.latencies_ms.append(one.latency_ms)
                seen.powers.extend(() if one.power_mw is None else (_PowerReading(one.power_mw, one.temperature_c),))
                seen.frames, seen.last_s, seen.period_ms = one.frames, now_s - one.age_s, one.period_ms
                seen.doubt = one.doubt

    def forget(self) -> None:
        self._seen.clear()
        self.recent_ms.clear()
        self.doubts = OutlierTracker()

    @property
    def credible(self) -> int:
        return sum(seen.frames for seen in self._seen.values())

    @property
    def powers(self) -> int:
        return 0 if (here := self._here) is None else len(here.powers)

    def observations(self, now_s: float, company: Company) -> list[Observation]:
        from ...kernels.correction.observation import Observation  # a daemon starts without

        return [
            Observation(
                configuration,
                latency_ms=latency_ms,
                power_mw=fmean(one.power_mw for one in seen.powers) if seen.powers else None,
                frames=seen.frames,
                age_s=max(now_s - seen.last_s, 0.0),
                period_ms=seen.period_ms if seen.period_ms and latency_ms < _ALWAYS_BUSY * seen.period_ms else None,
                temperature_c=_mean_c(seen.powers),
                doubt=seen.doubt,
            )
            for (configuration, with_whom), seen in self._seen.items()
            if with_whom == company and (latency_ms := median(seen.latencies_ms)) > 0
        ]

    def observed(self) -> dict[str, float] | None:
        ranked = self._ranked_ms
        if not ranked:
            return None

        def quantile(share: float) -> float:
            return ranked[min(len(ranked) - 1, int(share * len(ranked)))]

        return {
            "frames": len(ranked),
            "mean_ms": fmean(ranked),
            "p50_ms": quantile(0.50),
            "p95_ms": quantile(0.95),
            "last_ms": typical(list(islice(reversed(self._latencies_ms), JUDGED))),
        }

    def _rank(self, latencies_ms: Iterable[float]) -> None:
        for latency in latencies_ms:
            self._latencies_ms.append(latency)
            insort(self._ranked_ms, latency)
            if len(self._latencies_ms) > FRAMES_KEPT:
                del self._ranked_ms[bisect_left(self._ranked_ms, self._latencies_ms.popleft())]

    def _seen_at(self, configuration: FrequencyConfiguration, company: Company) -> _FrameGroup:
        key = (configuration, company)
        seen = self._seen.setdefault(key, _FrameGroup())
        self._seen.move_to_end(key)
        while len(self._seen) > _CONFIGURATIONS_KEPT:
            self._seen.popitem(last=False)
        return seen


def _mean_c(powers: Iterable[_PowerReading]) -> float | None:
    known = [one.die_c for one in powers if one.die_c is not None]
    return fmean(known) if known else None


def _trusted(latencies_ms: Sequence[float], before_s: float | None, now_s: float, since_s: float) -> list[float]:
    if before_s is not None and before_s >= since_s:
        return list(latencies_ms)
    began_s = before_s if before_s is not None else since_s
    each_s = (now_s - began_s) / len(latencies_ms)
    return [
        latency for number, latency in enumerate(latencies_ms, 1) if began_s + number * each_s - latency / 1e3 >= since_s - 1e-9
    ]
