# SPDX-License-Identifier: Apache-2.0
"""ONNX files written by hand, field by field, so that tests need no ``onnx`` package and can write what it would not."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

FLOAT, INT64, BOOL = 1, 7, 9


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = b""
    while value >= 0x80:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def field(number: int, value: Any) -> bytes:
    """A field: of an integer, a floating-point number, or bytes and text."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name: str, shape: Sequence[int], numbers: Sequence[int] | bytes = b"", kind: int = FLOAT) -> bytes:
    data = numbers if isinstance(numbers, bytes) else struct.pack(f"<{len(numbers)}q", *numbers)
    return b"".join(field(1, size) for size in shape) + field(2, kind) + field(8, name) + field(9, data)


def attribute(name: str, value: Any) -> bytes:
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    if isinstance(value, str):
        return field(1, name) + field(4, value) + field(20, 3)
    if isinstance(value, float):
        return field(1, name) + field(2, value) + field(20, 1)
    if isinstance(value, bytes):  # a graph
        return field(1, name) + field(6, value) + field(20, 5)
    return field(1, name) + b"".join(field(8, item) for item in value) + field(20, 7)


def node(
    operator: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", domain: str = "", **attributes: Any
) -> bytes:
    made = b"".join(field(1, item) for item in inputs) + b"".join(field(2, item) for item in outputs)
    made += field(3, name) + field(4, operator) + (field(7, domain) if domain else b"")
    return made + b"".join(field(5, attribute(key, value)) for key, value in attributes.items())


def noted(made: bytes, call: str) -> bytes:
    """A node with the call that it stands for, as PyTorch's newer exporter notes it."""
    return made + field(9, field(1, "pkg.torch.onnx.fx_node") + field(2, call))


def called(made: bytes, line: str) -> bytes:
    """A node with the line of Python that made it, likewise."""
    trace = f'File "model.py", line 7, in forward\n    {line}'
    return made + field(9, field(1, "pkg.torch.onnx.stack_trace") + field(2, trace))


def declared(name: str, shape: Sequence[int | str], kind: int = FLOAT) -> bytes:
    sizes = b"".join(field(1, field(1, size) if isinstance(size, int) else field(2, size)) for size in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, sizes)))


def graph(nodes: Sequence[bytes], inputs: Sequence[bytes], outputs: Sequence[str], weights: Sequence[bytes] = ()) -> bytes:
    made = b"".join(field(1, item) for item in nodes) + b"".join(field(5, item) for item in weights)
    made += b"".join(field(11, item) for item in inputs)
    return made + b"".join(field(12, declared(item, ())) for item in outputs)


def model(content: bytes, version: int = 17, functions: Sequence[bytes] = ()) -> bytes:
    opset = field(8, field(1, "") + field(2, version))
    return field(1, 8) + field(7, content) + opset + b"".join(field(25, item) for item in functions)
