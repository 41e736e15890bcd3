# SPDX-License-Identifier: Apache-2.0
"""Whether what jetdvfs lists of a file is what PyTorch dispatches, and what a difference comes from.

Of TorchScript and ``torch.export`` the file itself is run: *equal* means the same launches in the same order, each with its
kind, output, element type, parameters, operations and bytes. A list that ends early is *explained* where it is equal so far and
PyTorch, at that very place, looks at the numbers in a tensor, or where it differs in products of stacks alone that PyTorch 2.15
does as one. Of ONNX, whose exporters rewrite, see ``rewritten.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from jetdvfs.kernels.network import DTYPE_BYTES, KernelInvocation, Network

#: The formats of files that are judged by the module they were exported from (``rewritten.py``).
ONNX = ("onnx", "onnx-dynamo")
VERDICTS = ("equal", "explained", "refused", "wrong")
#: Of what could not be judged: the exporter writes no such file, or PyTorch does not run what it wrote.
UNJUDGED = ("not written", "not run")

#: Parameters that tell which of CUDA's kernels runs, which the dispatcher does not.
_CUDAS_OWN = ("channels_last", "math")


class Judgement(Struct, frozen=True):
    """One of :data:`VERDICTS`, and in one line why, unless the lists are equal."""

    verdict: str
    why: str = ""


class Dispatched(Struct, frozen=True):
    """What PyTorch did.

    Attributes:
        launches: in order.
        looks: where it looked at the numbers in a tensor: how many launches before, and by which operator.
        sorts: of each launch why an exporter may leave it out: it depends on no input (``constant``), is the same call on the
            same tensors as one before (``repeated``), returns what it is given (``idle``), laid out in another way (``layout``)
            or as wider integers (``widened``), is a ``cat`` for another one alone (``joined``), or nothing uses what it makes
            (``unused``); empty where it may not.
        trouble: the error that ended it early; empty where none did.
        sources: of each launch which one made its first operand; -1 where none did.
        made: the shapes of what came out.
        windows: how many numbers each view by strides or in windows shows.
    """

    launches: tuple[KernelInvocation, ...]
    looks: tuple[tuple[int, str], ...]
    sorts: tuple[str, ...] = ()
    trouble: str = ""
    sources: tuple[int, ...] = ()
    made: tuple[tuple[int, ...], ...] = ()
    windows: tuple[int, ...] = ()


def essence(launch: KernelInvocation) -> tuple[Any, ...]:
    """A launch without where it was called and which of its operands is a weight.

    The product of one matrix is the same with a dimension for it or without, as PyTorch 2.15 has it.
    """
    params = tuple(sorted((name, value) for name, value in launch.params.items() if name not in _CUDAS_OWN))
    output = launch.output
    if launch.kind == "matmul" and launch.params.get("batch") == 1 and len(output) == 3:
        output = output[1:]
    return (launch.kind, output, launch.dtype, params, launch.flops, launch.bytes)


def shown(launch: KernelInvocation | None) -> str:
    """A launch in a line of the report."""
    if launch is None:
        return "nothing"
    inputs = " ".join("x".join(map(str, shape)) or "scalar" for shape in launch.inputs)
    return f"{launch.kind}({inputs})->{'x'.join(map(str, launch.output)) or 'scalar'}:{launch.dtype}"


def judge(ours: Network, theirs: Dispatched) -> Judgement:
    """The same file, listed and run."""
    listed, expected = ours.launches, theirs.launches
    differs = first_difference(listed, expected)
    if ours.boundary is None:
        if theirs.trouble and differs == len(expected):
            return Judgement("not run", theirs.trouble)
        if differs is None:
            return Judgement("equal")
        if first_difference(_with_stacks_as_one(listed, expected), expected) is None:
            return Judgement("explained", "products of stacks that PyTorch 2.15 does as one")
        return _wrong(listed, expected, differs)
    if differs is not None and differs < len(listed):
        return _wrong(listed, expected, differs)
    end = ours.boundary
    looked = sorted({operator for place, operator in theirs.looks if place == len(listed)})
    if looked:
        return Judgement("explained", f"ends at {end.operator}, where PyTorch looks at data ({', '.join(looked)})")
    return Judgement("refused", f"ends at {end.operator} ({end.reason}) although PyTorch looks at no data there")


def first_difference(listed: Sequence[KernelInvocation], expected: Sequence[KernelInvocation]) -> int | None:
    """The place of the first launch in which two lists differ."""
    for place, (ours, theirs) in enumerate(zip(listed, expected, strict=False)):
        if essence(ours) != essence(theirs):
            return place
    return None if len(listed) == len(expected) else min(len(listed), len(expected))


def _with_stacks_as_one(listed: Sequence[KernelInvocation], expected: Sequence[KernelInvocation]) -> list[KernelInvocation]:
    """What is listed, with those products of a stack by one matrix as a product of all rows that are run so."""
    whole = [(ours, _as_one(ours), theirs) for ours, theirs in zip(listed, expected, strict=False)]
    made = [one if essence(one) == essence(theirs) else ours for ours, one, theirs in whole]
    return [*made, *listed[len(made) :]]


def _as_one(launch: KernelInvocation) -> KernelInvocation:
    """The matrix is read once then, not once for each member of the stack."""
    if launch.kind != "matmul" or len(launch.inputs) != 1:
        return launch
    batch, m, k, n = (int(launch.params[name]) for name in ("batch", "m", "k", "n"))  # type: ignore[arg-type]
    less = (batch - 1) * k * n * DTYPE_BYTES[launch.dtype]
    params = {**launch.params, "batch": 1, "m": batch * m}
    return replace(launch, params=params, output=(batch * m, n), bytes=launch.bytes - less)


def _wrong(listed: Sequence[KernelInvocation], expected: Sequence[KernelInvocation], place: int) -> Judgement:
    ours = listed[place] if place < len(listed) else None
    theirs = expected[place] if place < len(expected) else None
    more = ""
    if ours is not None and theirs is not None and shown(ours) == shown(theirs):
        more = f" [{_details(ours)} / {_details(theirs)}]"
    scope = f" in {(ours or theirs).scope}" if (ours or theirs) and (ours or theirs).scope else ""  # type: ignore[union-attr]
    lengths = f"{len(listed)} launches, {len(expected)} run"
    return Judgement("wrong", f"launch {place}: {shown(ours)} listed, {shown(theirs)} run{more}{scope}; {lengths}")


def _details(launch: KernelInvocation) -> str:
    return f"{dict(launch.params)} {launch.flops} FLOPs {launch.bytes} bytes"
