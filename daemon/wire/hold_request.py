# SPDX-License-Identifier: Apache-2.0
"""The request for a lease, from the command line to the daemon. Loads the standard library only."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from ..errors import UsageError
from . import protocol

if TYPE_CHECKING:
    from typing_extensions import Self

    from .input_values import Configuration


class HoldOptions(TypedDict, total=False):
    """Members of :class:`HoldRequest` by keyword, except network and target."""

    configuration: Configuration | None
    fps: float | None
    confidence: float | None
    method: str | None
    execution: str | None
    beside: Mapping[str, float] | None
    reason: str
    app: str | None
    ceiling_c: float | None
    battery_wh: float | None
    trust_frames: bool
    standby: bool


class HoldRequest(NamedTuple):
    """Request for a lease: a target, with or without a network, or a configuration.

    Attributes:
        network: handle of a network loaded on the connection.
        target: such as ``latency_ms=20``.
        configuration: clocks, by name, in order or as text. Text may have ``max`` and ``min`` of the permitted clocks as the
            lease begins, and empty clocks, left to their governors (``,612,``).
        confidence: probability, 0.5 to below 1, of keeping the target; None for the median.
        reason: shown in the status and in the log.
        app: the application's name; by default the program's.
        ceiling_c: highest temperature of any zone meanwhile, in degrees Celsius.
        battery_wh: charge now, for a target of hours, if the board does not report it.
        trust_frames: count all frames, even against the roofline or prediction.
        standby: clocks may be lowered while no frames come.
    """

    network: str | None = None
    target: str | None = None
    configuration: Configuration | None = None
    fps: float | None = None
    confidence: float | None = None
    method: str | None = None
    execution: str | None = None
    beside: Mapping[str, float] | None = None
    reason: str = ""
    app: str | None = None
    ceiling_c: float | None = None
    battery_wh: float | None = None
    trust_frames: bool = False
    standby: bool = True

    @classmethod
    def of(cls, target: str | Self | None, options: HoldOptions) -> Self:
        if not isinstance(target, cls):
            return cls(target=target, **options)  # type: ignore[arg-type]
        if options:
            raise UsageError(f"{', '.join(options)}: already in the request")
        return target

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> Self:
        text = parameters.get("configuration_text")
        given = {name: value for name, value in parameters.items() if name in cls._fields and value is not None}
        if text is None:
            return cls(**given)
        if "configuration" in given:
            raise UsageError("Hold: expected either configuration or configuration_text")
        return cls(**given, configuration=text)

    def members(self, names: Collection[str]) -> dict[str, Any]:
        return {name: value for name, value in self.parameters().items() if name in names}

    def parameters(self) -> dict[str, Any]:
        """Parameters of ``Hold``, None if not given; raises UsageError."""
        given = self._asdict()
        del given["configuration"]
        from . import input_values  # the daemon only reads requests

        given |= input_values.clocks(self.configuration)
        app = input_values.short(self.app or Path(sys.argv[0] or "python").name)
        return {
            **given,
            "reason": self.reason[: protocol.TEXT_CHARACTERS],
            "app": app,
            "trust_frames": self.trust_frames or None,
            "standby": None if self.standby else False,
        }
