# SPDX-License-Identifier: Apache-2.0
"""Bounded reader of Chrome's trace format."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, BinaryIO

from ....kernels.budget import Account
from ....kernels.engine.layers import read_text
from ....kernels.errors import BudgetExceeded, ModelError
from ....kernels.exported_pieces import JsonText

Event = dict[str, Any]


def read_events(stream: BinaryIO, account: Account, keep: Callable[[Event], None]) -> None:
    """Pass on each complete event (``"ph": "X"``) of the file's list or its ``traceEvents``.

    Raises ModelError, BudgetExceeded.
    """
    text = read_text(stream, account)
    pieces = JsonText(text, account)
    seen = 0

    def event(made: Any) -> None:
        nonlocal seen
        seen += 1
        if seen > account.budget.calls:
            raise BudgetExceeded(f"a trace of more than {account.budget.calls} events; record fewer inferences")
        if not isinstance(made, dict):
            raise ValueError(f"event {seen} is {made!r:.60}")
        if made.get("ph") == "X":
            for name in ("ts", "dur"):
                if isinstance(made.get(name), bool) or not isinstance(made.get(name), (int, float)):
                    raise ValueError(f"{name} of event {seen} is {made.get(name)!r:.40}")
            if not (math.isfinite(made["ts"]) and 0 <= made["dur"] < math.inf):
                raise ValueError(f"event {seen} lasts {made['dur']} us")
            if not isinstance(made.get("name"), str) or not isinstance(made.get("args", {}), dict):
                raise ValueError(f"event {seen} has no name, or args that are no object")
            if not isinstance(made.get("cat", ""), str):
                raise ValueError(f"cat of event {seen} is {made['cat']!r:.40}")
            keep(made)

    try:
        start = len(text) - len(text.lstrip(" \t\r\n"))
        if text[start : start + 1] == "[":
            pieces.finish(pieces.items(start, event))
        else:
            found: list[int] = []

            def events(at: int) -> int:
                found.append(at)
                return pieces.items(at, event)

            pieces.finish(pieces.members(start, {"traceEvents": events}))
            if not found:
                raise ValueError("it has no traceEvents")
    except (ValueError, RecursionError, OverflowError) as error:
        raise ModelError(
            f"expected a trace of PyTorch's profiler (export_chrome_trace) or ONNX Runtime's (enable_profiling): {error!s:.120}"
        ) from error
