# SPDX-License-Identifier: Apache-2.0
"""What a meter sees beside its figures: samples that do not count, how warm the die is, how fast the GPU really runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import mean
from typing import Any


@dataclass
class Page:
    """Notes of one step.

    Attributes:
        given_up: samples rejected at every attempt, by reason.
        tried_again: rejected measurements, by reason, including those of samples accepted later.
        die_c: die temperatures.
        gpu_hz: GPU clocks requested, each with the actual ones.
        reference_ms: host reference work between inferences, by network.
        refused: kernels, calls and networks that the worker cannot run, with reasons; not recorded.
    """

    given_up: Counter[str] = field(default_factory=Counter)
    tried_again: Counter[str] = field(default_factory=Counter)
    die_c: list[float] = field(default_factory=list)
    gpu_hz: list[tuple[int, float]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    reference_ms: dict[str, list[float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Page:
        pairs = [(int(held), float(real)) for held, real in data["gpu_hz"]]
        later = [dict(data.get(name, {})) for name in ("refused", "reference_ms")]  # which pages did not always have
        return cls(Counter(data["given_up"]), Counter(data["tried_again"]), list(data["die_c"]), pairs, *later)

    @classmethod
    def of(cls, pages: Iterable[Page]) -> Page:
        """All of them as one."""
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


class Notebook:
    """A page for each step of a campaign, in whichever order; they are kept with its figures."""

    def __init__(self) -> None:
        self._pages: list[Page] = []
        self.open = Page()

    def turn(self) -> Page:
        """The page of the step that has ended; the next one's is open now."""
        page, self.open = self.open, Page()
        self._pages.append(page)
        return page

    def put_back(self, page: Page) -> None:
        """Add the page of a step that was kept."""
        self._pages.append(page)

    def die_c(self) -> float | None:
        """The die's mean temperature; None where none was seen."""
        seen = Page.of(self._pages).die_c
        return mean(seen) if seen else None

    def refused(self) -> dict[str, str]:
        """What the worker could not run, each with the reason."""
        return Page.of([*self._pages, self.open]).refused

    def told(self) -> dict[str, Any]:
        """It all, for the environment of a record: what was not seen is not there."""
        whole = Page.of(self._pages)
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
    """What reasons that differ in figures alone have in common: what stands before the colon."""
    return reason.partition(":")[0]
