# SPDX-License-Identifier: Apache-2.0
"""Protocol-buffer messages, read lazily field by field (protobuf.dev/programming-guides/encoding).

Weights are skipped, which ready-made parsers would load.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from ..budget import Account
from ..errors import BudgetExceeded, ModelError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_BLOCK = 8192


class Field(NamedTuple):
    """Field of a message: number, encoding, and value, which for bytes is their start; ``end`` is the end."""

    number: int
    wire: int
    value: int
    end: int


class Wire:
    """File as fields, read in blocks within the budget."""

    def __init__(self, stream: BinaryIO, account: Account) -> None:
        self._stream = stream
        self._account = account
        self._start = 0
        self._block = b""
        self._read_bytes = 0
        self.length = stream.seek(0, 2)

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Fields of the message between two positions. Raises ModelError if malformed."""
        place = start
        while place < end:
            self._account.step()
            key, place = self._varint(place, end)
            number, wire = key >> 3, key & 7
            if wire == VARINT:
                value, place = self._varint(place, end)
                yield Field(number, wire, value, place)
            elif wire == BYTES:
                size, place = self._varint(place, end)
                if size > end - place:
                    raise ModelError(f"ONNX file is damaged: a field of {size} bytes at {place} ends outside its message")
                yield Field(number, wire, place, place + size)
                place += size
            elif wire in (FIXED32, FIXED64):
                size = 4 if wire == FIXED32 else 8
                yield Field(number, wire, int.from_bytes(self.bytes(place, place + size), "little"), place + size)
                place += size
            else:
                raise ModelError(f"ONNX file is damaged: byte {place} starts a field of an unknown type")
        if place != end:
            raise ModelError(f"ONNX file is damaged: a message ends at {place}, not at {end}")

    def bytes(self, start: int, end: int) -> bytes:
        """Bytes between two positions. Raises ModelError, BudgetExceeded."""
        size = end - start
        if size > self._account.budget.entry_bytes:
            raise BudgetExceeded(f"ONNX file: a value of {size} bytes; at most {self._account.budget.entry_bytes} are read")
        at = start - self._start
        if at < 0 or at + size > len(self._block):
            self._fetch(start, max(size, min(_BLOCK, self.length - start)))
            at = 0
        return self._block[at : at + size]

    def text(self, field: Field) -> str:
        """Text of a field, at most 1024 bytes."""
        if field.wire != BYTES:
            raise ModelError(f"ONNX file is damaged: field {field.number} at {field.end} should be text")
        return self.bytes(field.value, min(field.end, field.value + 1024)).decode("utf-8", "replace")

    def packed(self, field: Field) -> list[int]:
        """Repeated integer field: one number, or a run."""
        if field.wire != BYTES:
            return [signed(field.value)]
        self._account.items((field.end - field.value) // 1)
        numbers = []
        place = field.value
        while place < field.end:
            number, place = self._varint(place, field.end)
            numbers.append(signed(number))
        return numbers

    def floats(self, field: Field) -> list[float]:
        """Repeated single-precision field: one number, or a run."""
        if field.wire == FIXED32:
            return [single(field.value)]
        if field.wire != BYTES:
            raise ModelError(f"ONNX file is damaged: field {field.number} at {field.end} should hold floating-point numbers")
        count = self._account.items((field.end - field.value) // 4)
        return list(struct.unpack(f"<{count}f", self.bytes(field.value, field.value + 4 * count)))

    def _varint(self, place: int, end: int) -> tuple[int, int]:
        at = place - self._start
        if at < 0 or at + 10 > len(self._block):
            self._fetch(place, min(_BLOCK, self.length - place))
            at = 0
        block = self._block
        value = shift = 0
        try:
            while True:
                byte = block[at]
                at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 63:
                    raise ModelError(f"ONNX file is damaged: byte {place} starts a number of more than 64 bits")
        except IndexError:
            raise ModelError("ONNX file is damaged: it ends within a number") from None
        if self._start + at > end:
            raise ModelError(f"ONNX file is damaged: a number at {place} ends outside its message")
        return value & 0xFFFF_FFFF_FFFF_FFFF, self._start + at

    def _fetch(self, start: int, size: int) -> None:
        if start < 0 or size < 0 or start + size > self.length:
            raise ModelError(f"ONNX file is truncated: bytes {start} to {start + size} lie outside its {self.length} bytes")
        self._read_bytes += size
        if self._read_bytes > self._account.budget.total_bytes:
            raise BudgetExceeded(
                f"ONNX file holds more than the {self._account.budget.total_bytes} bytes of graph that are read"
            )
        try:
            self._stream.seek(start)
            self._block = self._stream.read(size)
        except OSError as error:
            raise ModelError(f"model file cannot be read: {error}") from error
        if len(self._block) != size:
            raise ModelError("model file became shorter while it was read")
        self._start = start


def signed(value: int) -> int:
    """Two's complement of protocol buffers."""
    return value - (1 << 64) if value >= 1 << 63 else value


def single(value: int) -> float:
    return float(struct.unpack("<f", value.to_bytes(4, "little"))[0])
