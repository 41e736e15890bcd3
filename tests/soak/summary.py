# SPDX-License-Identifier: Apache-2.0
"""What many scenarios came to, in figures."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from jetdvfs.tests.soak.play import Outcome
from jetdvfs.tests.soak.scenario import scenario

_NUMBERS = re.compile(r"\d[\d.]*")
_SEEDS_NAMED = 8


@dataclass
class Figures:
    """Adds up outcomes."""

    played: int = 0
    failed: int = 0
    _troubles: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _themes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    _status_ms: list[float] = field(default_factory=list)
    _own_ms: list[float] = field(default_factory=list)
    _blocked_ms: list[float] = field(default_factory=list)
    _bare_ms: list[float] = field(default_factory=list)
    _answered_ms: list[float] = field(default_factory=list)
    _seconds: list[float] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.played += 1
        self.failed += bool(outcome.troubles)
        for text in {_NUMBERS.sub("#", text) for text in outcome.troubles}:
            self._troubles[text].append(outcome.seed)
        for theme in scenario(outcome.seed).themes:
            self._themes[theme][0] += 1
            self._themes[theme][1] += bool(outcome.troubles)
        self._status_ms += [one.status_ms for one in outcome.samples if not one.said]
        self._own_ms += [one.own_ms for one in outcome.samples if not one.said]
        self._blocked_ms += [one.blocked_ms for one in outcome.samples if not one.said]
        self._bare_ms += [one.bare_ms for one in outcome.samples]
        self._answered_ms += outcome.answered_ms
        self._seconds.append(outcome.seconds)

    def text(self, elapsed_s: float) -> str:
        """The summary."""
        lines = [f"{self.played} scenarios in {elapsed_s / 60:.1f} min, {sum(self._seconds) / max(1, self.played):.2f} s each"]
        for name, values in (
            ("another user's status", self._status_ms),
            ("  of it the daemon's part", self._own_ms),
            ("another user's other calls", self._blocked_ms),
            ("a bare byte meanwhile", self._bare_ms),
            ("clients' calls", self._answered_ms),
        ):
            lines.append(f"{name:28} {distribution(values)}")
        lines.append("themes: " + "; ".join(f"{name} {n} ({bad} failed)" for name, (n, bad) in sorted(self._themes.items())))
        lines.append(f"{self.failed} scenarios failed")
        for text, seeds in sorted(self._troubles.items(), key=lambda item: -len(item[1])):
            named = ", ".join(map(str, seeds[:_SEEDS_NAMED])) + (", ..." if len(seeds) > _SEEDS_NAMED else "")
            lines.append(f"{len(seeds):5}  {text}\n       seeds {named}")
        return "\n".join(lines)


def distribution(values_ms: Sequence[float]) -> str:
    """Median and tail."""
    if not values_ms:
        return "none"
    ranked = sorted(values_ms)
    shares = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    found = [f"{name} {ranked[min(len(ranked) - 1, int(share * len(ranked)))]:.1f}" for name, share in shares]
    return f"{', '.join(found)}, most {ranked[-1]:.1f} ms ({len(ranked)} of them)"
