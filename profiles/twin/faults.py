# SPDX-License-Identifier: Apache-2.0
"""Scripted misbehaviour of a simulated board, as seen on real ones."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from ..errors import TwinError

CLOCKS = ("cpu", "gpu", "emc")
MISBEHAVIOURS = {
    "nvpmodel": ("lies", "complains", "hangs", "hangs-on-query", "hangs-under-load"),
    "jetson_clocks": ("lies", "hangs"),
}
"""Misbehaviours of the board's programs."""


class _Refusal(Struct):
    number: int
    access: str
    left: int | None


class Faults(Struct):
    """Present faults; paths are the tree's own, with links followed.

    Attributes:
        stuck: clocks (``cpu``, ``gpu``, ``emc``) that accept requests without moving, or run at a given rate.
        silent_rails: rails whose current reads zero.
        share: remaining pulses of CPU and GPU clocks, unseen by drivers.
        fever_c: additional degrees, such as from a blocked vent.
    """

    stuck: dict[str, int | None] = field(default_factory=dict)
    silent_rails: set[str] = field(default_factory=set)
    share: float = 1.0
    fever_c: float = 0.0
    tools: dict[str, set[str]] = field(default_factory=dict)
    _refusals: dict[str, _Refusal] = field(default_factory=dict)
    _vanished: set[str] = field(default_factory=set)
    _slow: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refuse(self, path: str, number: int = errno.EINVAL, *, access: str = "write", times: int | None = None) -> None:
        """Let every (or the next ``times``) ``write`` or ``read`` of a file fail."""
        with self._lock:
            self._refusals[path] = _Refusal(number, access, times)

    def vanish(self, path: str) -> None:
        self._vanished.add(path)

    def slow_down(self, path: str, seconds: float) -> None:
        self._slow[path] = seconds

    def stick(self, clock: str, rate: int | None = None) -> None:
        """Keep a clock where it is, or at ``rate`` (kHz for the CPU, else Hz)."""
        if clock not in CLOCKS:
            raise TwinError(f"fault: no clock {clock!r}; valid: {', '.join(CLOCKS)}")
        self.stuck[clock] = rate

    def silence(self, rail: str) -> None:
        self.silent_rails.add(rail)

    def misbehave(self, tool: str, how: str) -> None:
        if how not in MISBEHAVIOURS.get(tool, ()):
            valid = "; ".join(f"{name}: {', '.join(known)}" for name, known in MISBEHAVIOURS.items())
            raise TwinError(f"fault: no way {how!r} for {tool!r} to misbehave; valid: {valid}")
        self.tools.setdefault(tool, set()).add(how)

    def clear(self) -> None:
        with self._lock:
            for collection in (self.stuck, self.silent_rails, self.tools, self._refusals, self._vanished, self._slow):
                collection.clear()
            self.share, self.fever_c = 1.0, 0.0

    def check(self, path: str, access: str) -> None:
        with self._lock:
            refusal = self._refusals.get(path)
            if refusal is None or refusal.access != access:
                return
            if refusal.left is not None:
                refusal.left -= 1
                if refusal.left <= 0:
                    del self._refusals[path]
        raise OSError(refusal.number, os.strerror(refusal.number), path)

    def vanished(self, path: str) -> bool:
        return bool(self._vanished) and any(path == gone or path.startswith(f"{gone}/") for gone in tuple(self._vanished))

    def hold_up(self, path: str) -> float:
        return self._slow.get(path, 0.0)

    def script(self, request: Mapping[str, Any]) -> None:
        """Apply one fault in JSON; raises TwinError if invalid:

        ``{"kind": "refuse", "path": ..., "errno": "EINVAL", "access": "write", "times": null}``, ``{"kind": "vanish", "path":
        ...}``, ``{"kind": "slow", "path": ..., "seconds": 2}``, ``{"kind": "stuck", "clock": "gpu", "rate": null}``, ``{"kind":
        "silent", "rail": "GPU"}``, ``{"kind": "heat", "degrees": 40}``, ``{"kind": "throttle", "share": 0.25}``, ``{"kind":
        "tool", "tool": "nvpmodel", "how": "lies"}``, ``{"kind": "clear"}``.
        """
        try:
            match request.get("kind"):
                case "refuse":
                    number = getattr(errno, str(request.get("errno", "EINVAL")))
                    times = request.get("times")
                    access = str(request.get("access", "write"))
                    self.refuse(str(request["path"]), int(number), access=access, times=None if times is None else int(times))
                case "vanish":
                    self.vanish(str(request["path"]))
                case "slow":
                    self.slow_down(str(request["path"]), float(request["seconds"]))
                case "stuck":
                    rate = request.get("rate")
                    self.stick(str(request["clock"]), None if rate is None else int(rate))
                case "silent":
                    self.silence(str(request["rail"]))
                case "heat":
                    self.fever_c = float(request["degrees"])
                case "throttle":
                    self.share = float(request["share"])
                case "tool":
                    self.misbehave(str(request["tool"]), str(request["how"]))
                case "clear":
                    self.clear()
                case kind:
                    raise TwinError(
                        f"fault: kind {kind!r}; valid: refuse, vanish, slow, stuck, silent, heat, throttle, tool, clear"
                    )
        except KeyError as error:
            raise TwinError(f"fault {dict(request)!r:.120}: {error} is missing") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise TwinError(f"fault {dict(request)!r:.120}: {error}") from error
