# SPDX-License-Identifier: Apache-2.0
"""A guest's disk as a power cut leaves it, made of the disk before and the log of its writes."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

# The format of the kernel's dm-log-writes: a sector about the log, then for each entry a sector and its data.
_HEADER = struct.Struct("<QQQQ")
_SECTOR = 512
_FLUSH, _FORCED, _DISCARD = 1, 2, 4


def disk_after_cut(before: Path, writes: Path, cut_at: int, after: Path, seed: int) -> None:
    """Write the disk as a power cut leaves it, when the log of ``writes`` was ``cut_at`` bytes long.

    Writes that a later flush covers are kept; of the others, a random half.
    """
    subprocess.run(["cp", "--sparse=always", before, after], check=True)
    entries: list[tuple[int, int, int, int]] = []
    with writes.open("rb") as read, after.open("r+b") as disk:
        place = _SECTOR
        while place + _SECTOR <= cut_at:
            read.seek(place)
            sector, count, flags, _ = _HEADER.unpack(read.read(_HEADER.size))
            data_at, length = place + _SECTOR, 0 if flags & _DISCARD else count * _SECTOR
            place = data_at + length
            if place <= cut_at:
                entries.append((sector * _SECTOR, data_at, length, flags))
        flushed = max((number for number, entry in enumerate(entries) if entry[3] & _FLUSH), default=-1)
        chance = random.Random(seed)
        for number, (to, data_at, length, flags) in enumerate(entries):
            if number < flushed or flags & _FORCED or chance.random() < 0.5:
                read.seek(data_at)
                disk.seek(to)
                disk.write(read.read(length))
