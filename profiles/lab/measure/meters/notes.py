# SPDX-License-Identifier: Apache-2.0
"""Notes of a meter: rejected samples, die temperature, actual GPU clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import mean
from typing import Any

from msgspec import Struct, field


class StepNotes(Struct):
    """Notes of one step.

    Attributes:
        given_up: samples rejected at every attempt, by reason.
        tried_again: rejected attempts by reason, also of samples accepted later.
        gpu_hz: requested and actual GPU clocks.
        reference_ms: host reference work between inferences, by network.
    """

    given_up: Counter[str] = field(default_factory=Counter)
    tried_again: Counter[str] = field(default_factory=Counter)
    die_c: list[float] = field(default_factory=list)
    gpu_hz: list[tuple[int, float]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    reference_ms: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StepNotes:
        pairs = [(int(held), float(real)) for held, real in data["gpu_hz"]]
        later = [dict(data.get(name, {})) for name in ("refused", "reference_ms")]  # which pages did not always have
        return cls(Counter(data["given_up"]), Counter(data["tried_again"]), list(data["die_c"]), pairs, *later)

    @classmethod
    def of(cls, pages: Iterable[StepNotes]) -> StepNotes:
        whole = cls()
        for page in pages:
            whole.given_up.update(page.given_up)
            whole.tried_again.update(page.tried_again)
            whole.die_c += page.die_c
            whole.gpu_hz += page.gpu_hz
            whole.refused.update(page.refused)
            for name, each in page.reference_ms.items():
                whole.reference_ms.setdefault(name, []).extend(each)
        return whole


class CampaignNotes:
    """One page per step of a campaign."""

    def __init__(self) -> None:
        self._pages: list[StepNotes] = []
        self.open = StepNotes()

    def turn(self) -> StepNotes:
        page, self.open = self.open, StepNotes()
        self._pages.append(page)
        return page

    def put_back(self, page: StepNotes) -> None:
        self._pages.append(page)

    def die_c(self) -> float | None:
        seen = StepNotes.of(self._pages).die_c
        return mean(seen) if seen else None

    def refused(self) -> dict[str, str]:
        return StepNotes.of([*self._pages, self.open]).refused

    def told(self) -> dict[str, Any]:
        whole = StepNotes.of(self._pages)
        found: dict[str, Any] = {"rejected": dict(whole.given_up), "measured_again": dict(whole.tried_again)}
        if whole.refused:
            found["refused"] = whole.refused
        if whole.reference_ms:
            found["reference_ms"] = whole.reference_ms
        if whole.die_c:
            found["die_c"] = [min(whole.die_c), max(whole.die_c)]
        if whole.gpu_hz:
            levels = sorted({held for held, _ in whole.gpu_hz})
            found["gpu_really_hz"] = {
                str(level): round(mean(real for held, real in whole.gpu_hz if held == level)) for level in levels
            }
        return found


def category(reason: str) -> str:
    return reason.partition(":")[0]
