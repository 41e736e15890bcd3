# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: one launch each, as in cuDNN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ShapeError, UnsupportedOperator
from ...network import ParamValue
from ..layout import show
from ..recorder import Recorder
from ..registry import operator
from ..values import Tensor
from .matrix import linear


def _run(
    recorder: Recorder,
    kind: str,
    input: Tensor,
    states: Sequence[Tensor],
    params: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    if not isinstance(params, (list, tuple)):
        raise UnsupportedOperator(f"{kind} of packed sequences has no shape rule")
    if not isinstance(num_layers, int) or not 1 <= num_layers <= len(params) or not all(isinstance(w, Tensor) for w in params):
        raise ShapeError(f"{kind} of {num_layers!r:.20} layers with {len(params)} weights")
    if input.rank not in (2, 3) or not states or input.shape[-1] != params[0].shape[-1]:
        raise ShapeError(f"{kind} on an input of shape {show(input.shape)}, whose last size does not fit its first weight")
    width = states[0].shape[-1]  # of the output: the projection's, if any
    hidden = states[-1].shape[-1]
    directions = 2 if bidirectional else 1
    wide = width * directions
    # cuDNN's output has the time first in any case (``RNN.cpp``).
    strides = (wide, input.shape[0] * wide, 1) if batch_first and input.rank == 3 else None
    output = recorder.tensor((*input.shape[:-1], wide), input.dtype, strides)
    described: dict[str, ParamValue] = {
        "hidden": hidden,
        "layers": num_layers,
        "directions": directions,
        "bias": bool(has_biases),
    }
    if width != hidden:
        described["projection"] = width
    recorder.launch(kind, [input, *states], output, described, params)
    return (output, *(recorder.tensor(state.shape, state.dtype) for state in states))


@operator("lstm")
def lstm(recorder: Recorder, input: Tensor, hx: Sequence[Tensor], *rest: Any) -> tuple[Tensor, ...]:
    return _run(recorder, "lstm", input, hx, *rest)


def _single(kind: str, *names: str) -> None:
    @operator(*names)
    def rule(recorder: Recorder, input: Tensor, hx: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        return _run(recorder, kind, input, [hx], *rest)


_single("gru", "gru")
_single("rnn", "rnn_tanh", "rnn_relu")


def _cell_gates(recorder: Recorder, kind: str, x: Tensor, state: Tensor, weights: Sequence[Tensor | None]) -> None:
    w_ih, w_hh, b_ih, b_hh = (*weights, None, None)[:4]
    if w_ih is None or w_hh is None:
        raise ShapeError(f"{kind} without weights")
    gates = [linear(recorder, x, w_ih, b_ih), linear(recorder, state, w_hh, b_hh)]
    recorder.launch(kind, [*gates, state], recorder.tensor(state.shape, state.dtype))


@operator("lstm_cell")
def lstm_cell(recorder: Recorder, input: Tensor, hx: Sequence[Tensor], *weights: Tensor | None) -> tuple[Tensor, Tensor]:
    hidden, cell = hx
    _cell_gates(recorder, "lstm_cell", input, hidden, weights)
    return recorder.tensor(hidden.shape, hidden.dtype), recorder.tensor(cell.shape, cell.dtype)


def _cell(kind: str, *names: str) -> None:
    @operator(*names)
    def rule(recorder: Recorder, input: Tensor, hx: Tensor, *weights: Tensor | None) -> Tensor:
        _cell_gates(recorder, kind, input, hx, weights)
        return recorder.tensor(hx.shape, hx.dtype)


_cell("gru_cell", "gru_cell")
_cell("rnn_cell", "rnn_tanh_cell", "rnn_relu_cell")
