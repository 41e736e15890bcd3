# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of a process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Resources:
    """What a process has of the machine."""

    descriptors: int
    threads: int
    children: int
    kilobytes: int

    @classmethod
    def of(cls, pid: int) -> Resources | None:
        """Those of a process; None where there is none."""
        place = Path(f"/proc/{pid}")
        try:
            status = (place / "status").read_text()
            children = sum(len((task / "children").read_text().split()) for task in (place / "task").iterdir())
            found = {line.split(":")[0]: line.split() for line in status.splitlines()}
            return cls(len(list((place / "fd").iterdir())), int(found["Threads"][1]), children, int(found["VmRSS"][1]))
        except (OSError, KeyError):
            return None


def is_ending(pid: int) -> bool:
    """Whether a process has been killed, though a thread of it may still hang in the kernel."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"
