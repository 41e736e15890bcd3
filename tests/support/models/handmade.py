# SPDX-License-Identifier: Apache-2.0
"""TorchScript archives made by hand, so that tests can say byte by byte what is in them."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping

#: The pickle of a module of class ``__torch__.M`` without attributes.
PLAIN_MODULE = b"\x80\x02c__torch__\nM\n)\x81}b."
EMPTY_CONSTANTS = b"\x80\x02)."


def text(value: str) -> bytes:
    """A string in a pickle."""
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def sizes(*values: int) -> bytes:
    """A tuple of integers in a pickle."""
    return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"


def tensor(key: str, *shape: int, storage: str = "FloatStorage", count: int | None = None) -> bytes:
    """A contiguous tensor in a pickle, its data in the archive's entry ``data/<key>`` of ``count`` elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    where = (
        b"("
        + text("storage")
        + f"ctorch\n{storage}\n".encode()
        + text(key)
        + text("cpu")
        + b"J"
        + struct.pack("<i", step if count is None else count)
        + b"tQ"
    )
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + where
        + b"K\x00"
        + sizes(*shape)
        + sizes(*strides)
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )


def module(attributes: Mapping[str, bytes], name: str = "M") -> bytes:
    """The pickle of a module of class ``__torch__.<name>`` with these attributes."""
    pairs = b"".join(text(key) + value for key, value in attributes.items())
    return b"\x80\x02c__torch__\n" + name.encode() + b"\n)\x81}(" + pairs + b"ub."


def forward(*lines: str, arguments: str = "x: Tensor") -> str:
    """The code of class ``M`` with a ``forward`` of these lines."""
    body = "".join(f"    {line}\n" for line in lines)
    head = "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n"
    return f"{head}  def forward(self: __torch__.M,\n    {arguments}) -> Tensor:\n{body}"


def archive(
    code: str, data: bytes = PLAIN_MODULE, constants: bytes = EMPTY_CONSTANTS, more: Mapping[str, bytes] | None = None
) -> bytes:
    """A TorchScript archive with this code in ``code/__torch__.py``."""
    entries = {
        "data.pkl": data,
        "constants.pkl": constants,
        "code/__torch__.py": code.encode(),
        "version": b"3\n",
        **(more or {}),
    }
    return zipped({f"model/{name}": content for name, content in entries.items()})


def zipped(entries: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in entries.items():
            file.writestr(zipfile.ZipInfo(name), content, method)
    return buffer.getvalue()
