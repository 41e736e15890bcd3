# SPDX-License-Identifier: Apache-2.0
"""Calls that exporters of ONNX write out in ways that depend on sizes and neighbours, each accounted for by a function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from jetdvfs.kernels.network import KernelInvocation, numel
from jetdvfs.tests.zoo.reference import RECTIFIES
from jetdvfs.tests.zoo.rewritings import key_of, pooled, steps_of

if TYPE_CHECKING:
    from jetdvfs.tests.zoo.rewritten import Accounts


def pools(accounts: Accounts) -> None:
    """Adaptive means, as ``torch._decomp`` spells them: plain means where sizes divide, else windows picked and their
    mean, or where some are shorter, masked, summed, divided.
    """
    for launch in accounts.run:
        key = key_of(launch)
        if launch.kind != "adaptive_avg_pool2d" or not accounts.missing[key]:
            continue
        elements, needed = key[1], pooled(launch)
        if needed <= accounts.extra:
            accounts.missing[key] -= 1
            accounts.extra -= needed
            accounts.extra -= Counter({("clone", elements): 1})  # the windows stand first in memory
            accounts.note("adaptive_avg_pool2d written out")
    accounts.missing = +accounts.missing


def unrolled(accounts: Accounts) -> None:
    """Plain recurrent layers, which the newer exporter writes step by step."""
    for launch in accounts.run:
        key = key_of(launch)
        if launch.kind != "rnn" or not accounts.missing[key]:
            continue
        for activation in ("relu", "tanh"):
            needed, besides = steps_of(launch, activation)
            if needed <= accounts.extra:
                accounts.missing -= Counter({key: 1})
                accounts.extra -= needed
                accounts.extra -= besides
                accounts.note("rnn written out")
                break


def rectified(accounts: Accounts) -> None:
    """``relu`` before bounds: the newer exporter makes one ``Clip`` of both, whose lower bound is zero if it was less.

    As many as the file has of those.
    """
    clips = accounts.nodes.get(RECTIFIES, 0)
    for launch, source in zip(accounts.run, accounts.sources, strict=True):
        if launch.kind not in ("hardtanh", "clamp", "clamp_min") or source < 0 or accounts.run[source].kind != "relu":
            continue
        key = key_of(accounts.run[source])
        if clips and accounts.missing[key]:
            clips -= 1
            accounts.missing -= Counter({key: 1})
            accounts.note("relu within bounds left out")


def squares(accounts: Accounts) -> None:
    """``pow`` by two: what is multiplied by itself."""
    for launch, writers in zip(accounts.listed, accounts.reads, strict=True):
        key, size = key_of(launch), numel(launch.output)
        itself = len(set(launch.inputs)) == len(set(writers)) == 1 and writers[0] >= 0
        if launch.kind == "mul" and itself and accounts.extra[key] and accounts.missing["pow", size]:
            accounts.extra -= Counter({key: 1})
            accounts.missing -= Counter({("pow", size): 1})
            accounts.note("squares written out")


def columns(accounts: Accounts) -> None:
    """``im2col``: padded, its rows picked, and of these the columns."""
    for place, last in enumerate(accounts.listed):
        first = _writer(accounts, place)
        if last.kind != "index" or first < 0 or accounts.listed[first].kind != "index":
            continue
        pad = _writer(accounts, first)
        pieces = [last, accounts.listed[first], *(accounts.listed[p] for p in (pad,) if p >= 0)]
        key, needed = ("im2col", numel(last.output)), Counter(map(key_of, pieces[:2]))
        if len(pieces) > 2 and pieces[2].kind == "constant_pad_nd":
            needed[key_of(pieces[2])] += 1
        if accounts.missing[key] and needed <= accounts.extra:
            accounts.missing -= Counter({key: 1})
            accounts.extra -= needed
            accounts.note("im2col written out")


def windows(accounts: Accounts) -> None:
    """Windows that PyTorch only looks at: picked out of the memory in one row, which is made so first."""
    for place, launch in enumerate(accounts.listed):
        size = numel(launch.output)
        if launch.kind != "index" or len(launch.inputs[0]) != 1 or not accounts.windows[size]:
            continue
        accounts.windows[size] -= 1
        row = _writer(accounts, place)
        pieces = [launch, *(accounts.listed[row : row + 1] if row >= 0 and accounts.listed[row].kind == "clone" else ())]
        if accounts.extra.keys() & set(map(key_of, pieces)):
            accounts.extra -= Counter(map(key_of, pieces))
            accounts.note("windows picked")


def padded(accounts: Accounts) -> None:
    """Zeros around a picture that the convolution behind them puts there itself: it is listed with as large a picture, zeros
    included, and no launch before it makes them.
    """
    taken: set[int] = set()
    for launch, source in zip(accounts.run, accounts.sources, strict=True):
        if not launch.kind.startswith("conv") or source < 0 or accounts.run[source].kind != "constant_pad_nd":
            continue
        pad, whole = key_of(accounts.run[source]), _with_zeros(launch)
        for place, other in enumerate(accounts.listed):
            alike = key_of(other) == key_of(launch) and other.output == launch.output and _with_zeros(other) == whole
            writer = _writer(accounts, place)
            inside = writer < 0 or accounts.listed[writer].kind != "constant_pad_nd"
            if accounts.missing[pad] and alike and inside and place not in taken:
                taken.add(place)
                accounts.missing -= Counter({pad: 1})
                accounts.note("zeros put around by the convolution")
                break


def _with_zeros(convolution: KernelInvocation) -> tuple[int, ...]:
    """How large the picture is that a convolution goes over."""
    picture, padding = convolution.inputs[0], convolution.params.get("padding")
    around = padding if isinstance(padding, tuple) else ()
    return (*picture[:2], *(size + 2 * int(zeros) for size, zeros in zip(picture[2:], around, strict=True)))


def _writer(accounts: Accounts, place: int) -> int:
    """Which launch made what one reads first; -1: none."""
    reads = accounts.reads[place]
    return reads[0] if reads else -1


#: In the order in which they are tried.
WRITTEN_OUT: tuple[Callable[[Accounts], None], ...] = (
    pools,
    unrolled,
    rectified,
    squares,
    columns,
    windows,
    padded,
)
