# SPDX-License-Identifier: Apache-2.0
"""The container of a TorchScript file: a zip archive, read within bounds and without its weights.

PyTorch stores entries aligned to 64 bytes; re-packed archives may deflate them. Only the table of contents is read up front. No
size in the file is trusted.
"""

from __future__ import annotations

import struct
import zlib
from typing import BinaryIO, NamedTuple

from ..budget import Budget
from ..errors import BudgetExceeded, ModelError

_END = struct.Struct("<4s4H2IH")
_END64_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x1
_LONGEST_COMMENT = 0xFFFF
_IN_ZIP64 = 0xFFFFFFFF


class ArchiveEntry(NamedTuple):
    offset: int
    compressed: int
    size: int
    method: int
    crc: int
    flags: int


class Archive:
    """The entries of a zip archive, by their path below the archive's top folder; the stream stays open.

    Raises ModelError or BudgetExceeded.
    """

    def __init__(self, stream: BinaryIO, budget: Budget) -> None:
        self._stream = stream
        self._budget = budget
        self._read_bytes = 0
        try:
            self._length = stream.seek(0, 2)
        except (OSError, ValueError) as error:
            raise ModelError(f"model file: expected a regular file that can be read at any position ({error})") from error
        count, size, offset = self._end_of_directory()
        if count > budget.entries:
            raise BudgetExceeded(f"archive has {count} entries; at most {budget.entries} are read")
        if size > budget.directory_bytes:
            raise BudgetExceeded(f"archive's directory has {size} bytes; at most {budget.directory_bytes} are read")
        entries = _directory(self._at(offset, size), count)
        folder, slash, _ = next(iter(entries), "").partition("/")
        prefix = folder + slash if slash else ""  # torch.export before 2.8 wrote no folder
        self._entries = {name[len(prefix) :]: entry for name, entry in entries.items() if name.startswith(prefix)}

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def size(self, name: str) -> int:
        return self._entries[name].size

    def read(self, name: str, limit: int = 0) -> bytes:
        """One entry, decompressed and checked.

        Raises:
            ModelError: no such entry, or its bytes are damaged.
            BudgetExceeded: it is larger than the budget allows.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise ModelError(f"archive has no entry {name!r}")
        limit = limit or self._budget.entry_bytes
        if entry.size > limit:
            raise BudgetExceeded(f"archive entry {name!r} has {entry.size} bytes; at most {limit} are read")
        self._read_bytes += entry.size
        if self._read_bytes > self._budget.total_bytes:
            raise BudgetExceeded(
                f"archive holds more than the {self._budget.total_bytes} bytes of code and structure that are read"
            )
        if entry.flags & _ENCRYPTED or entry.method not in (_STORED, _DEFLATED):
            raise ModelError(f"archive entry {name!r}: expected it stored or deflated, not encrypted")
        header = self._at(entry.offset, _LOCAL.size)
        signature, *_, name_length, extra_length = _LOCAL.unpack(header)
        if signature != b"PK\x03\x04":
            raise ModelError(f"archive entry {name!r} does not start where the archive's directory says")
        if entry.compressed > limit + 1024:
            raise ModelError(f"archive entry {name!r}: compressed size is larger than its contents can need")
        data = self._at(entry.offset + _LOCAL.size + name_length + extra_length, entry.compressed)
        if entry.method == _DEFLATED:
            data = _inflate(name, data, entry.size)
        if len(data) != entry.size or zlib.crc32(data) != entry.crc:
            raise ModelError(f"archive entry {name!r} is damaged: size or checksum differs from the archive's directory")
        return data

    def _at(self, offset: int, size: int) -> bytes:
        if offset < 0 or offset + size > self._length:
            raise ModelError(f"archive is truncated: bytes {offset} to {offset + size} lie outside its {self._length} bytes")
        try:
            self._stream.seek(offset)
            data = self._stream.read(size)
        except OSError as error:
            raise ModelError(f"model file cannot be read: {error}") from error
        if len(data) != size:
            raise ModelError("model file became shorter while it was read")
        return data

    def _end_of_directory(self) -> tuple[int, int, int]:
        tail_size = min(self._length, _END.size + _LONGEST_COMMENT)
        tail_start = self._length - tail_size
        tail = self._at(tail_start, tail_size)
        position = tail.rfind(b"PK\x05\x06")
        if position < 0 or position + _END.size > tail_size:
            starts_as_zip = self._length >= 4 and self._at(0, 4) == b"PK\x03\x04"
            raise ModelError(
                "archive is truncated: its directory is missing; copy or download it again"
                if starts_as_zip
                else "not a TorchScript file: expected the zip archive that torch.jit.save writes"
            )
        _, _, _, _, count, size, offset, _ = _END.unpack_from(tail, position)
        end = tail_start + position
        if end >= _END64_LOCATOR.size and (count == 0xFFFF or size == _IN_ZIP64 or offset == _IN_ZIP64):
            signature, _, offset64, _ = _END64_LOCATOR.unpack(self._at(end - _END64_LOCATOR.size, _END64_LOCATOR.size))
            if signature == b"PK\x06\x07":
                signature, *_, count, size, offset = _END64.unpack(self._at(offset64, _END64.size))
                if signature != b"PK\x06\x06":
                    raise ModelError("archive is damaged: its 64-bit directory is not where the archive says")
        return count, size, offset


def _directory(data: bytes, count: int) -> dict[str, ArchiveEntry]:
    entries: dict[str, ArchiveEntry] = {}
    position = 0
    for _ in range(count):
        try:
            head = _CENTRAL.unpack_from(data, position)
        except struct.error as error:
            raise ModelError("archive is damaged: its directory ends early") from error
        if head[0] != b"PK\x01\x02":
            raise ModelError("archive is damaged: its directory has an entry of another kind")
        flags, method, crc, compressed, size = (head[place] for place in (3, 4, 7, 8, 9))
        name_length, extra_length, comment_length, offset = *head[10:13], head[16]
        position += _CENTRAL.size
        name = data[position : position + name_length].decode("utf-8", "replace")
        if _IN_ZIP64 in (size, compressed, offset):
            extra = data[position + name_length : position + name_length + extra_length]
            size, compressed, offset = _zip64_sizes(extra, size, compressed, offset)
        position += name_length + extra_length + comment_length
        if name in entries:
            raise ModelError(f"archive is damaged: two entries are named {name!r:.80}")
        entries[name] = ArchiveEntry(offset, compressed, size, method, crc, flags)
    return entries


def _zip64_sizes(extra: bytes, *values: int) -> tuple[int, int, int]:
    """Replace each 32-bit value that refers to the 64-bit field by the next number of that field."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        if kind == 1:
            field = extra[position + 4 : position + 4 + length]
            wide = iter(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
            size, compressed, offset = (next(wide, value) if value == _IN_ZIP64 else value for value in values)
            return size, compressed, offset
        position += 4 + length
    size, compressed, offset = values
    return size, compressed, offset


def _inflate(name: str, data: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, size + 1)
    except zlib.error as error:
        raise ModelError(f"archive entry {name!r} is damaged: {error}") from error
