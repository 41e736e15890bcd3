# SPDX-License-Identifier: Apache-2.0
"""Surfaces on disk, so that known networks are answered in milliseconds after a restart.

The file name is a digest of everything that determines the surface; the content repeats it with a checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from pathlib import Path

from msgspec.structs import asdict

from ... import __version__
from ...kernels.cost import COST_VERSION
from ...kernels.errors import CostModelError
from ...kernels.execution import NO_OVERHEAD, FrameOverhead
from ...kernels.grid import FrequencyGrid
from ...kernels.stored_files import replacing
from ...kernels.surface import Surface
from .identity import BundleIdentity

_MAGIC = b"JDVFS-SURFACE\x00\x01\x00"
_DIGEST_BYTES = hashlib.sha256().digest_size
_HEADER_BYTES = len(_MAGIC) + 2 * _DIGEST_BYTES
_SUFFIX = ".surface"


def surface_key(
    profile: BundleIdentity,
    network_digest: str,
    method: str,
    execution: str | None = None,
    frame_overhead: FrameOverhead = NO_OVERHEAD,
    gpu_share: float | None = 1.0,
) -> str:
    """Key of a surface: work, method, execution, profile, board description and release."""
    parts = [__version__, COST_VERSION, profile.digest, network_digest, method, execution, asdict(frame_overhead), gpu_share]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class SurfaceCache:
    """Folder of surfaces, bounded in number and size; the least recently used goes first.

    An unreadable or unwritable folder acts as an empty one.
    """

    def __init__(self, folder: Path, *, most: int = 256, most_bytes: int = 64 << 20) -> None:
        self._folder = folder
        self._most = most
        self._most_bytes = most_bytes

    def get(self, key: str, grid: FrequencyGrid) -> Surface | None:
        """Surface of this key over this grid, or None; an invalid file is removed."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            if path.stat().st_size > self._most_bytes:
                raise OSError
            content = path.read_bytes()
            surface = _opened(content, key, grid)
            if surface is None:
                path.unlink(missing_ok=True)
                return None
            os.utime(path)
            return surface
        return None

    def put(self, key: str, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self._path(key), 0o644, durable=False) as file:
                file.write(_MAGIC + bytes.fromhex(key) + hashlib.sha256(data).digest() + data)
            self._trim()

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"

    def _trim(self) -> None:
        """Remove the oldest beyond the bounds, and remains of killed writers."""
        aged = sorted(((path.stat().st_mtime_ns, path.stat().st_size, path) for path in self._folder.iterdir()), reverse=True)
        total = 0
        for number, (_, size, path) in enumerate(aged):
            total += size
            if number >= self._most or total > self._most_bytes or path.suffix != _SUFFIX:
                path.unlink(missing_ok=True)


def _opened(content: bytes, key: str, grid: FrequencyGrid) -> Surface | None:
    expected = _MAGIC + bytes.fromhex(key)
    data = content[_HEADER_BYTES:]
    if not content.startswith(expected) or content[len(expected) : _HEADER_BYTES] != hashlib.sha256(data).digest():
        return None
    try:
        surface = Surface.load(io.BytesIO(data))
    except CostModelError:
        return None
    return surface if surface.grid == grid else None
