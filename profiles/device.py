# SPDX-License-Identifier: Apache-2.0
"""Device properties for measurement and training."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct, field

from ..kernels.errors import KernelsError
from ..kernels.grid import FrequencyGrid
from .board import ChipRates
from .documents import DocumentError, Text, convert
from .errors import MeasurementError


class MeasuredDevice(Protocol):
    """A :class:`~jetdvfs.profiles.board.BoardDescription` or a :class:`Device`."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def grid(self) -> FrequencyGrid: ...

    @property
    def chip(self) -> ChipRates: ...

    @property
    def energy_rails(self) -> tuple[str, ...]: ...

    @property
    def host_rails(self) -> tuple[str, ...]: ...

    @property
    def own_memory(self) -> bool: ...


class Device(Struct, frozen=True):
    """Device without a board description.

    Attributes:
        grid: the measured configuration if clocks are never set.
        chip: rates of its roofline bound.
        energy_rails: sensors that sum to the energy of an inference, if any; ``host_rails`` feed the host alone.
        own_memory: the GPU's memory is not the host's, so neither waits for the other's traffic.
    """

    name: Text
    grid: FrequencyGrid
    chip: ChipRates
    energy_rails: tuple[Text, ...] = ()
    host_rails: tuple[Text, ...] = field(default=())
    own_memory: bool = False

    @property
    def title(self) -> str:
        return self.name

    @classmethod
    def from_json(cls, data: Any) -> Device:
        """Read the JSON form. Raises MeasurementError."""
        try:
            return convert(data, cls)
        except (DocumentError, KernelsError) as error:
            raise MeasurementError(f"device: {error}") from error
