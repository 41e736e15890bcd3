# SPDX-License-Identifier: Apache-2.0
"""Default clocks of the operator while no lease is held, as a lease."""

from __future__ import annotations

import os

from msgspec import Struct

from ...kernels.errors import GridError
from ...kernels.grid import governed, parse_configuration
from ...kernels.units import AXES
from ..errors import UsageError
from ..planning.lease_plan import LeasePlan
from ..planning.limits import Limits
from .lease import Holder

DEFAULT_APP = "jetdvfsd"


def operator() -> Holder:
    return Holder("default", os.getpid(), 0, DEFAULT_APP, yields=True)


class DefaultClocks(Struct, frozen=True):
    """Planner of the default lease: ``max``, ``min``, or ``CPU,GPU,EMC`` of numbers and these words; empty for governors."""

    text: str
    member: str = "default"

    def plan(self, limits: Limits) -> LeasePlan:
        ranges = {axis: getattr(limits, axis) or () for axis in AXES}
        try:
            configuration = parse_configuration(self.text, ranges)
        except GridError as error:
            raise UsageError(f"{self.member}: {error}") from error
        return LeasePlan(configuration, planner=self, limits=limits, governed=governed(self.text))

    @property
    def reason(self) -> str:
        return f"default: {self.text}, while no other lease is held"
