# SPDX-License-Identifier: Apache-2.0
"""An engine as a network: launches of its layers in TensorRT's execution order."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, BinaryIO

from msgspec import Struct

from ..boundary import Boundary
from ..budget import Account
from ..errors import BudgetExceeded, ModelError, ShapeError
from ..exported_pieces import JsonText
from ..network import DTYPE_BYTES, KernelInvocation, Network, TensorSpec
from .launches import launch_of
from .layers import EngineLayers, EngineTensor, read_layers, read_text, short
from .names import family
from .ported_layer import OpaqueLayer

RUNTIME = "TensorRT"


def read_engine(stream: BinaryIO, account: Account, inputs: Sequence[TensorSpec], name: str) -> Network:
    """The launches of an engine, each scoped by its layer's name; ``inputs`` are the expected ones, as its shapes are fixed.

    Raises:
        ModelError: it is malformed or inconsistent.
        UnsupportedOperator: a layer's type has no rule.
        ShapeError: it is for other inputs, or a shape is not fixed.
        BudgetExceeded: it is too large.
    """
    engine = read_layers(stream, account)
    made = {tensor.name for layer in engine.layers if family(layer.type) != "constant" for tensor in layer.outputs}
    takes = _inputs(engine, made)
    _check(inputs, takes)
    made.update(engine.bindings)
    calls: list[KernelInvocation] = []
    boundary = None
    for number, layer in enumerate(engine.layers):
        account.step()
        try:
            launch = launch_of(layer, made)
        except OpaqueLayer as error:
            place = f"layer {layer.name!r:.300}, after {number} of {len(engine.layers)} layers"
            boundary = Boundary(f"tensorrt::{layer.type}", place, str(error))
            break
        except ModelError as error:
            raise type(error)(f"layer {layer.name!r:.120}: {error}") from error
        if launch is not None:
            calls.append(launch)
    return Network(name, takes, tuple(calls), boundary, runtime=RUNTIME)


class LayerTimes(Struct, frozen=True):
    """Measured times of an engine, from ``trtexec --exportProfile``: mean GPU time of each launch of the network, in ms.

    ``others_ms`` has, by name, layers that launch nothing or are beyond the list's end.
    """

    launches_ms: tuple[float, ...]
    others_ms: dict[str, float]


def read_times(stream: BinaryIO, network: Network, account: Account) -> LayerTimes:
    """Measured times matched to an engine's launches; raises ModelError or BudgetExceeded."""
    text = JsonText(read_text(stream, account), account)
    measured: dict[str, deque[float]] = {}
    count = 0

    def row(made: Any) -> None:
        nonlocal count
        count += 1
        if count > account.budget.calls:
            raise BudgetExceeded(f"a profile of more than {account.budget.calls} layers")
        if isinstance(made, dict) and isinstance(made.get("name"), str):
            measured.setdefault(short(made["name"]), deque()).append(_ms(made))
        elif not isinstance(made, dict) or "count" not in made:
            raise ValueError(f"row {count} is {made!r:.60}")

    try:
        text.finish(text.items(0, row))
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"expected the output of trtexec --exportProfile, a list of layers with averageMs: {error!s:.120}"
        ) from error
    times = []
    for launch in network.launches:
        if not measured.get(launch.scope):
            raise ModelError(f"the profile has no time for layer {launch.scope!r:.120}: it is of another engine")
        times.append(measured[launch.scope].popleft())
    return LayerTimes(tuple(times), {name: sum(left) for name, left in measured.items() if left})


def _ms(row: dict[str, Any]) -> float:
    value = row.get("averageMs")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError(f"averageMs of {row.get('name')!r:.60} is {value!r:.40}")
    return float(value)


def _inputs(engine: EngineLayers, made: set[str]) -> tuple[TensorSpec, ...]:
    wanted = {binding for binding in engine.bindings if binding not in made}
    found: dict[str, EngineTensor] = {}
    for layer in engine.layers:
        for tensor in layer.inputs:
            if tensor.name in wanted:
                found.setdefault(tensor.name, tensor)
    for tensor in found.values():
        if tensor.dtype not in DTYPE_BYTES:
            raise ModelError(f"input {tensor.name!r:.80} is of type {tensor.dtype}; valid: {', '.join(DTYPE_BYTES)}")
    return tuple(TensorSpec(tensor.shape, tensor.dtype, tensor.name) for tensor in found.values())


def _check(given: Sequence[TensorSpec], takes: Sequence[TensorSpec]) -> None:
    left = list(takes)
    for spec in given:
        fits = [own for own in left if own.shape == spec.shape and spec.name in ("", own.name) and not spec.is_plain]
        if not fits:
            raise ShapeError(
                f"input {spec}: an engine's shapes are fixed, and this one takes {', '.join(map(str, takes)) or 'nothing'}; "
                "leave --input out"
            )
        left.remove(fits[0])
