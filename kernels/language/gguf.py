# SPDX-License-Identifier: Apache-2.0
"""Headers of GGUF files: metadata and the table of tensors (ggml's docs/gguf.md)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from ..budget import Account
from ..errors import BudgetExceeded, ModelError
from ..network import SizedTensor, numel
from .parts import opened_part, parts_of

MAGIC = b"GGUF"
_CHUNK = 1 << 18
_KEY = 256
_TEXT = 4096
_RANK = 4
_KEPT_ITEMS = 4096
_STRING, _ARRAY = 8, 9
#: Format of a number in the metadata, by its type's number.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_ALIGNMENT = "general.alignment"
_USUAL_ALIGNMENT = 32

#: Element types by their number (``ggml_type`` in ggml.h).
TYPES: Mapping[int, str] = {
    0: "float32", 1: "float16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 9: "q8_1", 10: "q2_K", 11: "q3_K",
    12: "q4_K", 13: "q5_K", 14: "q6_K", 15: "q8_K", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl",
    21: "iq3_s", 22: "iq2_s", 23: "iq4_xs", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 29: "iq1_m",
    30: "bfloat16", 34: "tq1_0", 35: "tq2_0", 39: "mxfp4", 40: "nvfp4", 41: "q1_0",
}  # fmt: skip


class GgufHeader(Struct, frozen=True):
    said: Mapping[str, Any]
    tensors: Mapping[str, SizedTensor]


def read_gguf(stream: BinaryIO, account: Account, folder: Path | None = None, name: str = "") -> GgufHeader:
    """Read a model's headers: the file's, or those of all its parts in ``folder``, by its ``name`` there; raises ModelError or
    BudgetExceeded.
    """
    header = _read_part(stream, account)
    count = header.said.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return header
    paths = parts_of(folder, name, ".gguf", count)
    if paths is None:
        raise ModelError(
            f"the file is one of {count} parts; give the path of one, named like model-00001-of-{count:05}.gguf, with all "
            "parts in its folder"
        )
    tensors: dict[str, SizedTensor] = {}
    for path in paths:
        with opened_part(path) as part:
            own = _read_part(part, account)
        header = own if own.said.get("split.no", 0) == 0 else header
        if not tensors.keys().isdisjoint(own.tensors) or own.said.get("split.count") != count:
            raise ModelError(f"{path.name} is no part of the same model; download its parts again")
        tensors |= own.tensors
    return GgufHeader(header.said, tensors)


def _read_part(stream: BinaryIO, account: Account) -> GgufHeader:
    cursor = _Cursor(stream, account)
    if cursor.bytes(4) != MAGIC:
        raise ModelError("not a GGUF file")
    version = cursor.number("I")
    if version not in (2, 3):
        swapped = int.from_bytes(int(version).to_bytes(4, "big"), "little")
        order = " (its bytes are in the order of big-endian machines)" if swapped in (2, 3) else ""
        raise ModelError(f"GGUF of version {version}{order}; versions 2 and 3 are read: convert it again with llama.cpp")
    tensors, pairs = cursor.count("tensors"), cursor.count("members of metadata")
    said = {}
    for _ in range(pairs):
        account.step()
        key = cursor.text(_KEY)
        said[key] = cursor.value(cursor.number("I"))
    table: dict[str, SizedTensor] = {}
    end = 0
    for _ in range(tensors):
        account.step()
        name = cursor.text(_KEY)
        if name in table:
            raise ModelError(f"tensor {name!r:.80} is there twice")
        table[name], offset = cursor.tensor(name)
        end = max(end, offset + table[name].nbytes)
    alignment = said.get(_ALIGNMENT, _USUAL_ALIGNMENT)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
        raise ModelError(f"{_ALIGNMENT} is {alignment!r:.40}; expected a small number of bytes")
    needed = -(-cursor.position // alignment) * alignment + end
    if needed > cursor.size:
        raise ModelError(f"the file is cut off: its tensors end at {needed} bytes, it has {cursor.size}; download it again")
    return GgufHeader(said, table)


class _Cursor:
    def __init__(self, stream: BinaryIO, account: Account) -> None:
        self._stream, self._account = stream, account
        self.size = stream.seek(0, 2)
        stream.seek(0)
        self._most = min(account.budget.total_bytes, self.size)
        self._buffer, self._start, self._at = b"", 0, 0

    @property
    def position(self) -> int:
        return self._start + self._at

    def bytes(self, count: int) -> bytes:
        if self._at + count > len(self._buffer):
            self._fill(count)
        self._at += count
        return self._buffer[self._at - count : self._at]

    def skip(self, count: int) -> None:
        if self._at + count <= len(self._buffer):
            self._at += count
            return
        self._start, self._buffer, self._at = self.position + count, b"", 0
        self._within(0)

    def number(self, form: str) -> Any:
        return struct.unpack("<" + form, self.bytes(struct.calcsize(form)))[0]

    def count(self, what: str) -> int:
        found = int(self.number("Q"))
        most = self._account.budget.entries
        if found > most:
            raise BudgetExceeded(f"the file claims {found} {what}; at most {most} are read")
        return found

    def text(self, most: int) -> str:
        length = self.number("Q")
        if length > most:
            raise BudgetExceeded(
                f"a text of {length} bytes at {self.position} of a GGUF file; at most {most} are read there: download it again"
            )
        try:
            return self.bytes(length).decode()
        except ValueError as error:
            raise ModelError(f"a text at {self.position} is no UTF-8") from error

    def value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            length = self.number("Q")
            if length > self.size:
                raise ModelError(f"a text of {length} bytes at {self.position}, in a file of {self.size}")
            if length > _TEXT:
                self.skip(length)  # such as a chat's template
                return ""
            return self.bytes(length).decode("utf-8", "replace")
        if kind == _ARRAY:
            return self._array()
        raise ModelError(f"metadata of type {kind} at {self.position}; types 0 to 12 are known")

    def _array(self) -> Any:
        kind, length = self.number("I"), self.number("Q")
        if kind in _NUMBERS:
            size = struct.calcsize(_NUMBERS[kind])
            if length * size > self.size:
                raise ModelError(f"an array of {length} numbers at {self.position}, in a file of {self.size} bytes")
            if length > _KEPT_ITEMS:
                self.skip(length * size)
                return length
            return struct.unpack(f"<{length}{_NUMBERS[kind]}", self.bytes(length * size))
        if kind != _STRING:
            raise ModelError(f"an array of type {kind} at {self.position}; expected numbers or texts")
        if length * 8 > self.size:
            raise ModelError(f"an array of {length} texts at {self.position}, in a file of {self.size} bytes")
        for _ in range(length):
            self._account.step()
            self.skip(self.number("Q"))
        return length

    def tensor(self, name: str) -> tuple[SizedTensor, int]:
        rank = self.number("I")
        if rank > _RANK:
            raise ModelError(f"tensor {name!r:.80} has {rank} dimensions; at most {_RANK} are possible")
        shape = tuple(reversed([int(self.number("Q")) for _ in range(rank)]))
        kind, offset = self.number("I"), self.number("Q")
        if kind not in TYPES:
            raise ModelError(f"tensor {name!r:.80} is of type {kind}, which is not known; requantise it with a known one")
        if 0 in shape or numel(shape) > self._account.budget.elements:
            raise BudgetExceeded(
                f"tensor {name!r:.80} has {numel(shape)} elements; expected 1 to {self._account.budget.elements}"
            )
        if offset > self.size:
            raise ModelError(f"the file is cut off: tensor {name!r:.80} starts at {offset}, it has {self.size} bytes")
        return SizedTensor(shape, TYPES[kind]), int(offset)

    def _fill(self, count: int) -> None:
        self._start, self._at, rest = self.position, 0, self._buffer[self._at :]
        self._within(count)
        self._stream.seek(self._start + len(rest))
        wanted = max(count - len(rest), _CHUNK)
        self._buffer = rest + self._stream.read(min(wanted, self.size - self._start - len(rest)))
        if len(self._buffer) < count:
            raise ModelError(f"the file is cut off within its header, at {self._start} bytes; download it again")

    def _within(self, count: int) -> None:
        end = self._start + count
        if end > self.size:
            raise ModelError(f"the file is cut off within its header: {self.size} bytes; download it again")
        if end > self._most:
            raise BudgetExceeded(f"the header has more than {self._most} bytes, the most that is read")
