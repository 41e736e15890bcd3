# SPDX-License-Identifier: Apache-2.0
"""What the interfaces of the two sockets work on."""

from __future__ import annotations

from dataclasses import dataclass

from ..profiles.board import BoardDescription
from .board.desk import Desk
from .config import Config, ConfigFile
from .hardware.sensors.sampled import SampledSensors
from .surfaces import Surfaces
from .system.record import Record


@dataclass(frozen=True)
class Context:
    """What the interfaces work on; nothing of it makes the event loop wait for a file of the board."""

    version: str
    description: BoardDescription
    board: Desk
    sensors: SampledSensors
    surfaces: Surfaces
    config: Config
    config_file: ConfigFile
    started_s: float
    record: Record
