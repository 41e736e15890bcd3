# SPDX-License-Identifier: Apache-2.0
"""Latency by a server's own metrics (Prometheus's text): growth of its time counters over that of its work counter."""

from __future__ import annotations

import json
import math
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from msgspec import Struct

from ...kernels.execution import Phase
from ..errors import UsageError
from ..qos import FrameReceiver

EVERY_S = 1.0
_WAITS_S = 2.0
_BYTES = 4 << 20
_FRAMES = 64  # reported at once, all of the mean latency
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^\n]*\})?\s+(\S+)(?:\s+-?\d+)?\s*")


class RequestCounters(Struct, frozen=True):
    """Counters of finished work and of its time, in units of ``unit_ms``; ``phase`` is None for inferences."""

    server: str
    phase: Phase | None
    count: str
    times: tuple[str, ...]
    unit_ms: float


KNOWN = (
    RequestCounters(
        "llama-server", "decode", "llamacpp:tokens_predicted_total", ("llamacpp:tokens_predicted_seconds_total",), 1e3
    ),
    RequestCounters("vLLM", "decode", "vllm:inter_token_latency_seconds_count", ("vllm:inter_token_latency_seconds_sum",), 1e3),
    RequestCounters(
        "vLLM", "decode", "vllm:time_per_output_token_seconds_count", ("vllm:time_per_output_token_seconds_sum",), 1e3
    ),
    RequestCounters(
        "vLLM", "prefill", "vllm:time_to_first_token_seconds_count", ("vllm:time_to_first_token_seconds_sum",), 1e3
    ),
    RequestCounters(
        "Triton",
        None,
        "nv_inference_exec_count",
        tuple(f"nv_inference_compute_{part}_duration_us" for part in ("input", "infer", "output")),
        1e-3,
    ),
)


class Pace:
    def __init__(self, phase: Phase | None) -> None:
        self._known = [one for one in KNOWN if one.phase == phase]
        self._before: tuple[RequestCounters, float, float] | None = None

    @property
    def valid(self) -> str:
        return ", ".join(dict.fromkeys(one.server for one in self._known))

    def update(self, text: str) -> tuple[int, float] | None:
        """Take the present metrics; return the number of items finished since, and ms per item. Raises ValueError."""
        found = read_counters(text)
        counters = next((one for one in self._known if one.count in found), None)
        if counters is None:
            raise ValueError(f"none of the counters that are known of {self.valid} are there")
        count = found[counters.count]
        took_ms = counters.unit_ms * sum(found.get(name, 0.0) for name in counters.times)
        before, self._before = self._before, (counters, count, took_ms)
        if before is None or before[0] != counters or count <= before[1] or took_ms < before[2]:
            return None  # the first reading, nothing done since, or the server was restarted
        pieces = count - before[1]
        return int(pieces), (took_ms - before[2]) / pieces


def read_counters(text: str) -> Mapping[str, float]:
    if text.startswith('"'):
        # Some releases of llama-server send it as one JSON string.
        try:
            text = str(json.loads(text))
        except ValueError:
            return {}
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value) and value >= 0:
            found[match[1]] = found.get(match[1], 0.0) + value
    return found


def check_url(url: str | None) -> None:
    try:
        fits = url is None or (urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname))
    except ValueError:
        fits = False
    if not fits:
        raise UsageError(f"--metrics {url!r:.80}: expected an address such as http://localhost:8080/metrics")


@contextmanager
def reported(url: str | None, phase: Phase | None, lease: FrameReceiver, on_change: Callable[[str], object]) -> Iterator[None]:
    """Report the metrics of an address within the block; ``on_change`` is called at the first success and on failure."""
    if url is None:
        yield
        return
    ending = threading.Event()
    pace = Pace(phase)
    thread = threading.Thread(target=_follow, args=(url, pace, lease, on_change, ending), daemon=True, name="jetdvfs metrics")
    thread.start()
    try:
        yield
    finally:
        ending.set()


def _follow(url: str, pace: Pace, lease: FrameReceiver, on_change: Callable[[str], object], ending: threading.Event) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the main thread, which waits for them
    said = ""
    while not ending.wait(EVERY_S):
        try:
            done = pace.update(_fetched(url))
        except ValueError as error:
            now = f"{url}: {error}"
        except OSError as error:
            # A server that loads its model has no metrics yet; one that ended has none any more.
            now = "" if not said.endswith("is followed") else f"{url}: no metrics any more ({getattr(error, 'reason', error)})"
        else:
            now = f"{url}: its pace is followed"
            for _ in range(min(done[0], _FRAMES) if done else 0):
                lease.report(done[1] if done else 0.0)
        if now and now != said:
            on_change(now)
            said = now


def _fetched(url: str) -> str:
    import urllib.request  # seldom needed

    # No proxy: a server that a command starts is on this machine.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=_WAITS_S) as answer:
        data: bytes = answer.read(_BYTES + 1)
    if len(data) > _BYTES:
        raise ValueError(f"its metrics are longer than {_BYTES} bytes")
    return data.decode("utf-8", "replace")
