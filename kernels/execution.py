# SPDX-License-Identifier: Apache-2.0
"""Execution modes of a network's launches, phases of language models, and frame overhead.

``eager``: the framework issues call after call. ``graph``: the same kernels start together, captured once (a CUDA graph).
``engine``: a runtime such as TensorRT has compiled the network and starts it as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import Struct

from .errors import CostModelError

if TYPE_CHECKING:
    from .network import Network

Execution: TypeAlias = Literal["eager", "graph", "engine"]
EXECUTIONS: tuple[Execution, ...] = get_args(Execution)

Phase: TypeAlias = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""Phases of a language model: launches for a prompt, or for one token after it."""

_ENGINES = ("TensorRT",)
_MOST_HOST_MS, _MOST_COPIED = 1e6, 1 << 50


class FrameOverhead(Struct, frozen=True):
    """Frame overhead, as the application states it; raises CostModelError.

    Attributes:
        host_ms: CPU work (reading, resizing, sorting) in ms at the top CPU clock; inverse to the clock.
        copied_bytes: bytes copied between host and device memory, each read and written once.
    """

    host_ms: float = 0.0
    copied_bytes: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.host_ms <= _MOST_HOST_MS:
            raise CostModelError(f"host_ms={self.host_ms:g}: expected milliseconds from 0 to {_MOST_HOST_MS:g}")
        if not 0 <= self.copied_bytes <= _MOST_COPIED:
            raise CostModelError(f"copied_bytes={self.copied_bytes}: expected from 0 to {_MOST_COPIED}")


NO_OVERHEAD = FrameOverhead()


def check_execution(execution: str | None, network: Network) -> Execution:
    """The requested execution, by default the one of the network's launches, or CostModelError."""
    if execution is None:
        return "engine" if network.runtime in _ENGINES else "eager"
    for known in EXECUTIONS:
        if execution == known:
            return known
    raise CostModelError(f"execution {execution!r:.40}; valid: {', '.join(EXECUTIONS)}")
