# SPDX-License-Identifier: Apache-2.0
"""What jetdvfs lists of a file, and which launches of it depend on no input, which a list alone does not say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import Network, ParamValue, TensorSpec
from jetdvfs.kernels.operators.recorder import Recorder
from jetdvfs.kernels.operators.values import Storage, Tensor


class Listed(NamedTuple):
    """A list, and the places in it of launches that read weights, what the host holds, and what such launches made; no more."""

    network: Network
    constant: frozenset[int]


def listed(path: Path, inputs: Sequence[TensorSpec]) -> Listed:
    """A file's list, with what its operators were given looked at as they launch.

    Raises:
        KernelsError: as ``decompose``.
    """
    constant: dict[int, list[bool]] = {}
    recorders: list[Recorder] = []
    made: dict[int, tuple[Storage, bool]] = {}  # whether what was written last into a memory depends on no input
    launch = Recorder.launch

    def looked_at(
        recorder: Recorder,
        kind: str,
        given: Sequence[Tensor],
        output: Tensor,
        params: Mapping[str, ParamValue] | None = None,
        weights: Iterable[Tensor | None] = (),
    ) -> Tensor:
        read, weights = list(given), list(weights)
        if id(recorder) not in constant:
            recorders.append(recorder)  # so that its id stays its own
        read += [tensor for tensor in weights if tensor is not None]
        places = constant.setdefault(id(recorder), [])
        of_none = all(_is_constant(tensor, made, places) for tensor in read)
        places.append(of_none)
        result = launch(recorder, kind, given, output, params, weights)
        made[id(result.memory)] = result.memory, of_none
        return result

    Recorder.launch = looked_at  # type: ignore[assignment,method-assign]
    try:
        network = decompose(path, inputs)
    finally:
        Recorder.launch = launch  # type: ignore[method-assign]
    written = next((constant[id(recorder)] for recorder in recorders if len(recorder.reads) == len(network.reads)), [])
    return Listed(network, frozenset(place for place, of_none in enumerate(written) if of_none))


def _is_constant(tensor: Tensor, made: Mapping[int, tuple[Storage, bool]], places: Sequence[bool]) -> bool:
    """Also of what is worked out aside, before the first launch, and of the second thing that a launch makes."""
    if id(tensor.memory) in made:
        return made[id(tensor.memory)][1]
    if 0 <= tensor.memory.writer < len(places):
        return places[tensor.memory.writer]
    return tensor.parameter or tensor.value is not None
