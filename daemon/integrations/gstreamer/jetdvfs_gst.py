# SPDX-License-Identifier: Apache-2.0
"""Frames of a GStreamer or DeepStream pipeline, reported for a lease by pad probes around the inferring element.

::

    from jetdvfs import qos
    from jetdvfs_gst import watch

    with qos.hold("detector.pt", ["1x3x544x960"], "latency_ms=30", fps=30, required=False) as lease:
        watch(pipeline.get_by_name("infer"), lease)
        pipeline.set_state(Gst.State.PLAYING)
        ...

Latency is the time from a buffer's entry to its exit, which must come after the GPU is done. Buffers are matched by
presentation time, or by order without one; those that the element drops are not reported. The probes never wait.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any, Protocol

import gi

gi.require_version("Gst", "1.0")
from gi.repository import Gst  # noqa: E402  (its version is said first)

_MOST = 256  # buffers within the element; older ones were dropped by it


class FrameLease(Protocol):
    """A lease of ``qos.hold`` or ``Client.hold``."""

    def report(self, latency_ms: float) -> None: ...


class ElementProbe:
    def __init__(self, element: Any, lease: FrameLease) -> None:
        self.frames = 0
        self._lease = lease
        self._entered: OrderedDict[int, float] = OrderedDict()
        self._unnamed = 0
        if element is None:
            raise ValueError("no element to watch: Gst.Bin.get_by_name found none of that name")
        pads = [element.get_static_pad(name) for name in ("sink", "src")]
        if None in pads:
            raise ValueError(f"{element.get_name()} has no pads sink and src: watch the element that infers, or its bin")
        self._probes = [
            (pad, pad.add_probe(Gst.PadProbeType.BUFFER, probe))
            for pad, probe in zip(pads, (self._enters, self._leaves), strict=True)
        ]

    def stop(self) -> None:
        for pad, probe in self._probes:
            pad.remove_probe(probe)
        self._probes.clear()

    def _enters(self, _: Any, info: Any) -> Any:
        stamp = info.get_buffer().pts
        if stamp == Gst.CLOCK_TIME_NONE:
            self._unnamed += 1
            stamp = -self._unnamed
        self._entered[stamp] = time.perf_counter()
        if len(self._entered) > _MOST:
            self._entered.popitem(last=False)
        return Gst.PadProbeReturn.OK

    def _leaves(self, _: Any, info: Any) -> Any:
        now = time.perf_counter()
        stamp = info.get_buffer().pts
        if stamp == Gst.CLOCK_TIME_NONE:
            stamp = next((entered for entered in self._entered if entered < 0), stamp)
        entered = self._entered.pop(stamp, None)
        if entered is not None:
            self.frames += 1
            self._lease.report((now - entered) * 1e3)
        return Gst.PadProbeReturn.OK


def watch(element: Any, lease: FrameLease) -> ElementProbe:
    """Report every frame that goes through an element, such as ``nvinfer`` or ``tensor_filter``.

    Raises:
        ValueError: it does not have exactly one sink and one source pad.
    """
    return ElementProbe(element, lease)
