# SPDX-License-Identifier: Apache-2.0
"""What the log and the journal say of clocks and leases."""

from __future__ import annotations

from ...kernels.grid import FrequencyConfiguration
from ..hardware.axes import megahertz, title
from ..leases import Lease


def about(lease: Lease) -> dict[str, object]:
    """What the journal says of a lease."""
    holder = lease.holder
    return {"lease": lease.id, "app": holder.app, "pid": holder.pid, "uid": holder.uid, "target": lease.need.target}


def in_words(configuration: FrequencyConfiguration) -> str:
    return ", ".join(f"{title(axis)} {megahertz(axis, level)}" for axis, level in configuration._asdict().items())


def listed(configuration: FrequencyConfiguration) -> str:
    return ",".join(map(str, configuration))
