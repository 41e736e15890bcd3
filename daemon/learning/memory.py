# SPDX-License-Identifier: Apache-2.0
"""What was observed of networks outlasts their leases: kept by surface, so that the next plan for the same is right at once.

What nobody predicted is kept by its user and name (:mod:`.unpredicted`).

The file is JSON, with a version; a file of another version, or that cannot be read, counts as none. To forget everything,
remove it while the daemon is stopped. It holds the last :data:`NETWORKS_KEPT` surfaces, each with its last
:data:`CONFIGURATIONS_KEPT` configurations.
"""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels.errors import KernelsError
from ...kernels.grid import FrequencyConfiguration

if TYPE_CHECKING:
    from ...kernels.correction.observation import Observation

log = logging.getLogger(__name__)

NETWORKS_KEPT = 64
CONFIGURATIONS_KEPT = 16
_VERSION = 1
_LEAST_FRAMES = 3
_HOUR_S = 3600.0
_FORGOTTEN_S = 90 * 24 * _HOUR_S
_MOST_BYTES = 4 << 20


class Memory:
    """For one thread, but for :meth:`save`.

    Args:
        path: the file.
        clock: seconds since 1970.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._known: OrderedDict[str, list[dict[str, Any]]] = _read(path)
        self._saved = True

    def remember(self, key: str, observations: Sequence[Observation]) -> None:
        """Keep what was observed of a surface; of a configuration the newest counts."""
        now_s = self._clock()
        telling = [seen for seen in observations if seen.frames >= _LEAST_FRAMES and not seen.disturbed]
        if not telling:
            return
        fresh = {tuple(seen.configuration) for seen in telling}
        before = [one for one in self._known.pop(key, []) if tuple(one["configuration"]) not in fresh]
        news = [{**asdict(seen), "configuration": list(seen.configuration), "seen_s": now_s - seen.age_s} for seen in telling]
        self._known[key] = sorted([*before, *news], key=lambda one: float(one["seen_s"]))[-CONFIGURATIONS_KEPT:]
        self._saved = False
        while len(self._known) > NETWORKS_KEPT:
            self._known.popitem(last=False)

    def forget(self, key: str) -> None:
        """Keep nothing of a surface any more."""
        self._saved = self._known.pop(key, None) is None and self._saved

    def observations(self, key: str) -> tuple[Observation, ...]:
        """What is known of a surface, its age in whole hours."""
        now_s = self._clock()
        found = []
        for one in self._known.get(key, ()):
            age_s = max(now_s - one["seen_s"], 0.0)
            if age_s < _FORGOTTEN_S:
                found.append(replace(_observation(one), age_s=age_s // _HOUR_S * _HOUR_S))
        return tuple(found)

    def save(self) -> None:
        """Write what is new into the file; what keeps it from being written is logged."""
        if self._saved:
            return
        self._saved = True
        text = json.dumps({"version": _VERSION, "networks": dict(self._known)})
        beside = self._path.with_name(f".{self._path.name}.new")
        try:
            beside.write_text(text, encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            log.warning("what was observed cannot be kept in %s: %s", self._path, error.strerror)


def _observation(one: dict[str, Any]) -> Observation:
    from ...kernels.correction.observation import Observation  # a daemon that remembers nothing starts without

    figures = {name: value for name, value in one.items() if name not in ("configuration", "seen_s")}
    return Observation(FrequencyConfiguration(*map(int, one["configuration"])), **figures)


def _read(path: Path) -> OrderedDict[str, list[dict[str, Any]]]:
    """What the file has, each entry checked; nothing where there is none of this version."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return OrderedDict()
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != _VERSION:
            return OrderedDict()
        known = OrderedDict((str(key), list(entries)[-CONFIGURATIONS_KEPT:]) for key, entries in data["networks"].items())
        for entries in known.values():
            for one in entries:
                float(one["seen_s"])
                _observation(one)
        return known
    except FileNotFoundError:
        return OrderedDict()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, KernelsError) as error:
        log.warning("%s is not read: %s", path, type(error).__name__)
        return OrderedDict()
