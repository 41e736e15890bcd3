# SPDX-License-Identifier: Apache-2.0
"""Profiles of ONNX Runtime (``SessionOptions.enable_profiling``): time of each node run.

Node names are those of the optimised model (``SessionOptions.optimized_model_filepath``).
"""

from __future__ import annotations

from .reading import Event

_ENDING = "_kernel_time"


class OnnxRuntime:
    """Collects profile events."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, str, float]] = []
        self._providers: set[str] = set()

    def take(self, event: Event) -> None:
        if event.get("cat") != "Node" or not event["name"].endswith(_ENDING):
            return
        args = event.get("args", {})
        self._providers.add(str(args.get("provider", ""))[:60])
        operator = str(args.get("op_name", ""))[:60]
        self.nodes.append((event["name"].removesuffix(_ENDING), operator, event["dur"] / 1e3))

    @property
    def recorder(self) -> str:
        return f"ONNX Runtime, {', '.join(sorted(filter(None, self._providers))) or 'nodes'}"
