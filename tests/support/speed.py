# SPDX-License-Identifier: Apache-2.0
"""Processor time as a multiple of what other Python takes beside it: how fast machines are differs, and how busy."""

from __future__ import annotations

import functools
import pickle
import time
from collections.abc import Callable


def multiples_of_unpickling(*works: Callable[[], object], tries: int = 3) -> list[float]:
    """The processor time of each work, in multiples of what three thousand small records take to be read by pickle's Python."""
    records = pickle.dumps([{"name": str(n), "shape": (n, n), "value": [n / 3] * 4} for n in range(3000)])
    unpickling = functools.partial(pickle._loads, records)  # type: ignore[attr-defined]
    return [least_s(work, tries) / least_s(unpickling, tries) for work in works]


def least_s(work: Callable[[], object], tries: int = 3) -> float:
    """The least processor time of the tries, of this thread alone."""
    times = []
    for _ in range(tries):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return min(times)
