# SPDX-License-Identifier: Apache-2.0
"""The request for a lease: one value from the command line to the daemon. Loads the standard library only.

A new option of ``Hold`` is a member here (with its type among the options), one of ``Hold`` in ``calls.py``, and an argument of
``jetdvfs hold``.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ..errors import UsageError
from . import protocol

if TYPE_CHECKING:
    from typing_extensions import Self

    from .asked import Configuration


class HoldOptions(TypedDict, total=False):
    """The options of a request by keyword: the members of :class:`HoldRequest` but its network and target."""

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


@dataclass(frozen=True)
class HoldRequest:
    """A request for a lease: for a target, with a network or without, or for a configuration.

    Attributes:
        network: handle of a network that is loaded on the connection.
        target: such as ``latency_ms=20``.
        configuration: clocks, by name, in order or as text; text may say ``max`` and ``min``, of the clocks that may be set as
            the lease begins, and leave clocks empty, which their governors go on to choose (``,612,``).
        fps: frames per second.
        confidence: probability, 0.5 to below 1, with which the target must be kept; None for the median.
        method, execution, beside: as for :meth:`jetdvfs.daemon.wire.client.Client.predict`.
        reason: shown in the status and in the log.
        app: name of the application; by default that of the program.
        ceiling_c: temperature that no zone of the board may exceed while it is held, in degrees Celsius.
        battery_wh: with a target of hours, the charge of the battery now, if the board does not report it.
        trust_frames: believe all frames, also those that the network's roofline or prediction contradict.
        standby: clocks may be lowered while no frames come (``idle`` of the daemon's configuration).
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
        """A request as it was given: whole, or by its target and options.

        Raises:
            UsageError: options were given with a whole request.
        """
        if not isinstance(target, cls):
            return cls(target=target, **options)  # type: ignore[arg-type]
        if options:
            raise UsageError(f"{', '.join(options)}: already in the request")
        return target

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> Self:
        """The request of a call, by its checked parameters; those of other calls that are members here count likewise.

        Raises:
            UsageError: it has two configurations.
        """
        text = parameters.get("configuration_text")
        members = {field.name for field in fields(cls)}
        given = {name: value for name, value in parameters.items() if name in members and value is not None}
        if text is None:
            return cls(**given)
        if "configuration" in given:
            raise UsageError("Hold: expected either configuration or configuration_text")
        return cls(**given, configuration=text)

    def members(self, names: Collection[str]) -> dict[str, Any]:
        """The parameters of a call that has fewer of them than ``Hold``; errors as of :meth:`parameters`."""
        return {name: value for name, value in self.parameters().items() if name in names}

    def parameters(self) -> dict[str, Any]:
        """The parameters of ``Hold``; None for those that are not given.

        Raises:
            UsageError: the configuration is none.
        """
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "configuration"}
        from . import asked  # the daemon only reads requests

        given |= asked.clocks(self.configuration)
        app = asked.short(self.app or Path(sys.argv[0] or "python").name)
        return {
            **given,
            "reason": self.reason[: protocol.TEXT_CHARACTERS],
            "app": app,
            "trust_frames": self.trust_frames or None,
            "standby": None if self.standby else False,
        }
