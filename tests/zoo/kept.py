# SPDX-License-Identifier: Apache-2.0
"""What an attempt found out that does not depend on jetdvfs, kept so that its list can be judged again without an export.

That is the exported file without its weights' numbers, and what PyTorch dispatched. A weight becomes as many zeros, which
compress to next to nothing; those of at most :data:`_STEERING_BYTES` stay, since numbers that steer a network are small.
"""

from __future__ import annotations

import functools
import gzip
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from jetdvfs.kernels.network import TensorSpec
from jetdvfs.tests.support.paths import ROOT
from jetdvfs.tests.zoo.comparison import Dispatched

#: Numbers of so many bytes and less are kept as they are.
_STEERING_BYTES = 64 << 10
#: What is kept of one attempt has at most so many bytes, compressed: with every model in six formats, 20 GB at the very most.
_KEPT_BYTES = 8 << 20
_LOCAL_HEADER = struct.Struct("<26xHH")


class Evidence(Struct, frozen=True):
    """What a list is held against.

    Attributes:
        inputs: what the file is listed for.
        dispatched: what PyTorch did.
        numbers: the inputs as arrays, of ONNX files alone.
        exporting: the module was told that it is exported.
    """

    inputs: tuple[TensorSpec, ...]
    dispatched: Dispatched
    numbers: tuple[Any, ...] = ()
    exporting: bool = False


def name(title: str, how: str) -> str:
    """Of what is kept of a model in a format, without an ending."""
    return f"{title}.{how}".replace("/", "_").replace(" ", "_")


def keep(folder: Path, title: str, how: str, path: Path, evidence: Evidence) -> bool:
    """Keep a file and its evidence, unless they are large; whether they are kept."""
    data = without_weights(path)
    packed = gzip.compress(pickle.dumps((path.suffix, data, evidence)), compresslevel=1)
    if len(packed) > _KEPT_BYTES:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name(title, how)}.kept").write_bytes(packed)
    return True


def find(folder: Path, title: str, how: str, into: Path) -> tuple[Path, Evidence] | None:
    """What was kept, its file written into a folder; None where nothing is."""
    kept = folder / f"{name(title, how)}.kept"
    if not kept.exists():
        return None
    suffix, data, evidence = pickle.loads(gzip.decompress(kept.read_bytes()))
    path = into / f"model{suffix}"
    path.write_bytes(data)
    return path, evidence


def without_weights(path: Path) -> bytes:
    """A file with zeros for the numbers of all larger weights; nothing else of it changes, not even its length."""
    data = bytearray(path.read_bytes())
    for start, length in _in_onnx(path, data) if path.suffix == ".onnx" else _in_archive(path, data):
        if length > _STEERING_BYTES:
            data[start : start + length] = bytes(length)
    return bytes(data)


def _in_archive(path: Path, data: bytearray) -> Iterator[tuple[int, int]]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            folders = entry.filename.split("/")[:-1]
            if entry.compress_type == zipfile.ZIP_STORED and {"data", "constants"} & set(folders):
                named, extra = _LOCAL_HEADER.unpack_from(data, entry.header_offset)
                yield entry.header_offset + 30 + named + extra, entry.file_size


def _in_onnx(path: Path, data: bytearray) -> Iterator[tuple[int, int]]:
    import onnx

    place = 0
    for weight in onnx.load(path, load_external_data=False).graph.initializer:
        found = data.find(weight.raw_data, place) if len(weight.raw_data) > _STEERING_BYTES else -1
        if found >= 0:
            place = found + len(weight.raw_data)
            yield found, len(weight.raw_data)


@functools.cache
def code() -> str:
    """A number for the code that lists and judges, as it stood when this was first asked."""
    total = 0
    for path in sorted((*ROOT.glob("kernels/**/*.py"), *ROOT.glob("tests/zoo/*.py"))):
        total = zlib.crc32(path.read_bytes(), total)
    return f"{total:08x}"
