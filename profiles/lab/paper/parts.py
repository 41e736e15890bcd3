# SPDX-License-Identifier: Apache-2.0
"""What of a record is left out and predicted: one board after the other, or, of an only board, some networks and kernels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...adapt.measurements import Measurements
from ...errors import MeasurementError
from ..train.assembly import Fold

_PARTS = 5
_KERNELS = ("kernel_ms", "kernel_mw", "gap_us", "timing_us")
_NETWORKS = ("network_ms", "network_mw", "fixed_network_ms", "fixed_network_mw")


@dataclass(frozen=True)
class Part:
    """What is left out at once.

    Attributes:
        name: of it, for people.
        known: what is trained on.
        judged: what is predicted.
        networks: those of it, by position.
        fold: networks whose own kernels are not trained on either; None where other boards know all of them.
    """

    name: str
    known: Measurements
    judged: Measurements
    networks: tuple[int, ...]
    fold: Fold | None = None


def parts_of(record: Measurements, left_out: Sequence[int]) -> list[Part]:
    """What is left out of a record, one after the other.

    Args:
        left_out: the boards, where there are several.

    Raises:
        MeasurementError: there is one board, and less than two networks whose launches are known.
    """
    if len(record.nodes) > 1:
        every = tuple(range(len(record.networks)))
        others = [set(record.nodes) - {node} for node in left_out]
        return [
            Part(f"board {node}", on_boards(record, rest), on_boards(record, {node}), every)
            for node, rest in zip(left_out, others, strict=True)
        ]
    measured = set(map(int, record.tables["network_ms"].what))
    whole = [what for what, network in enumerate(record.networks) if network.launches and what in measured]
    if len(whole) < 2:
        raise MeasurementError(
            f"the record is of one board and {len(whole)} networks with known launches; leaving some out takes two or more"
        )
    rng = np.random.default_rng(0)
    order, count = rng.permutation(whole), min(_PARTS, len(whole))
    signatures = [{launch.signature for launch in network.launches} for network in record.networks]
    of_networks = set().union(*signatures)
    random = [what for what, kernel in enumerate(record.invocations) if kernel.signature not in of_networks]
    shuffled = rng.permutation(random)
    return [
        _without(record, tuple(map(int, order[number::count])), set(map(int, shuffled[number::count])), signatures)
        for number in range(count)
    ]


def on_boards(record: Measurements, nodes: set[int]) -> Measurements:
    """The record with the rows of these boards alone."""
    return replace(record, tables={name: rows.where(np.isin(rows.node, list(nodes))) for name, rows in record.tables.items()})


def _without(
    record: Measurements, networks: tuple[int, ...], random: set[int], signatures: Sequence[Collection[object]]
) -> Part:
    """These networks with the kernels that are theirs alone, and some random kernels."""
    others: set[object] = set().union(*(own for what, own in enumerate(signatures) if what not in networks))
    theirs = set().union(*(signatures[what] for what in networks)) - others
    kernels = random | {what for what, kernel in enumerate(record.invocations) if kernel.signature in theirs}
    known, judged = dict(record.tables), dict(record.tables)
    for names, left in ((_KERNELS, kernels), (_NETWORKS, set(networks))):
        for name in names:
            rows = record.tables[name]
            out = np.isin(rows.what, list(left))
            known[name], judged[name] = rows.where(~out), rows.where(out)
    left_out = tuple(record.networks[what] for what in networks)
    return Part(
        ", ".join(network.name for network in left_out),
        replace(record, tables=known),
        replace(record, tables=judged),
        networks,
        Fold(left_out, ()),
    )
