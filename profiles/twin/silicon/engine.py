# SPDX-License-Identifier: Apache-2.0
"""Network compiled by an engine: folding, fusion, dropped launches, narrow types."""

from __future__ import annotations

from math import prod

from msgspec import Struct, field
from msgspec.structs import replace

from ....kernels.network import Call, HostOp, KernelInvocation, Network, ParamValue, Shape
from ...errors import TwinError
from .chip import EngineRuntime
from .fused import PRODUCTS

START = HostOp("engine", "")
"""Host cost of an inference, independent of launches."""
_EIGHT_BITS = ("int8", "uint8")
# Kinds that engines compute in 16 bits while the rest is in eight.
_SENSITIVE = ("softmax", "log_softmax", "layer_norm", "group_norm", "rms_norm", "attention", "gelu", "mean", "sum")


class _Unit(Struct, eq=False):
    root: int
    members: list[int] = field(default_factory=list)


def compiled(network: Network, engine: EngineRuntime, dtype: str) -> Network:
    """Launches of a network under an engine. Raises TwinError without its data flow."""
    launches, reads = network.launches, network.reads
    if launches and not reads:
        raise TwinError(f"network {network.name!r} lacks its data flow ('reads'), so no engine can be built of it")
    sources = _past_dropped(launches, reads, engine)
    readers: dict[int, int] = {}
    for number, launch in enumerate(launches):
        if launch.kind not in engine.drops:
            for writers in sources[number]:
                for writer in writers:
                    readers[writer] = readers.get(writer, 0) + 1
    unit_of: dict[int, _Unit] = {}
    for number, launch in enumerate(launches):
        if launch.kind in engine.drops:
            continue
        unit = _host_of(launch, sources[number], launches, unit_of, readers, engine) or _Unit(number)
        unit.members.append(number)
        unit_of[number] = unit
    units = sorted(dict.fromkeys(unit_of.values()), key=lambda unit: unit.members[-1])
    calls: list[Call] = [START, *(_made(unit, launches, sources, unit_of, engine, dtype) for unit in units)]
    return Network(network.name, network.inputs, tuple(calls), network.boundary)


def _past_dropped(
    launches: tuple[KernelInvocation, ...], reads: tuple[tuple[int, ...], ...], engine: EngineRuntime
) -> list[list[tuple[int, ...]]]:
    sources: list[list[tuple[int, ...]]] = []
    for number in range(len(launches)):
        places = []
        for writer in reads[number]:
            if writer >= 0 and launches[writer].kind in engine.drops:
                places.append(tuple(source for place in sources[writer] for source in place))
            else:
                places.append((writer,) if writer >= 0 else ())
        sources.append(places)
    return sources


def _host_of(
    launch: KernelInvocation,
    places: list[tuple[int, ...]],
    launches: tuple[KernelInvocation, ...],
    unit_of: dict[int, _Unit],
    readers: dict[int, int],
    engine: EngineRuntime,
) -> _Unit | None:
    """Unit that absorbs a launch: the last one without another reader, if both make as many elements.

    A launch of another size needs the whole result first.
    """
    for (writer,) in sorted((place for place in places if len(place) == 1), reverse=True):
        unit = unit_of[writer]
        if prod(launch.output) != prod(launches[unit.root].output):
            continue
        root = launches[unit.root].kind
        taken = (*engine.folds, *engine.follows) if root in PRODUCTS else engine.joins if root in engine.joins else ()
        if launch.kind in taken and readers[writer] == 1 and unit.members[-1] == writer:
            return unit
    return None


def _made(
    unit: _Unit,
    launches: tuple[KernelInvocation, ...],
    sources: list[list[tuple[int, ...]]],
    unit_of: dict[int, _Unit],
    engine: EngineRuntime,
    dtype: str,
) -> KernelInvocation:
    root = launches[unit.root]
    inputs: list[Shape] = list(root.inputs)
    for number in unit.members[1:]:
        for shape, place in zip(launches[number].inputs, sources[number], strict=True):
            if not (len(place) == 1 and unit_of[place[0]] is unit):
                inputs.append(shape)
    kinds = [launches[number].kind for number in unit.members]
    params: dict[str, ParamValue] = dict(root.params)
    kind = root.kind
    if kind in PRODUCTS:
        params["bias"] = True
        params["epilogue"] = "+".join(name for name in kinds[1:] if name not in engine.folds)
    elif len(kinds) > 1:
        kind, params = "fused_pointwise", {"kinds": "+".join(kinds), "outputs": 1}
    narrow = dtype
    if dtype in _EIGHT_BITS and (kind in _SENSITIVE or root.kind in _SENSITIVE):
        narrow = "float16"
    return replace(root, kind=kind, inputs=tuple(inputs), dtype=narrow, params=params)
