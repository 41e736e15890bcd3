# SPDX-License-Identifier: Apache-2.0
"""A client's networks and leases. Loads the standard library only."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Protocol

from ..errors import DaemonError
from . import protocol
from .reporter import Reporter

RELEASE_S = 1.0


class ClientCalls(Protocol):
    def call(self, method: str, parameters: Mapping[str, Any], *, within_s: float | None = None) -> dict[str, Any]: ...

    def post(self, method: str, parameters: Mapping[str, Any]) -> bool: ...


class LoadedModel:
    """A network loaded on this connection; ``info`` is the ``Network`` of the interface."""

    def __init__(self, client: ClientCalls, info: Mapping[str, Any]) -> None:
        self.info = info
        self.handle: str = info["network"]
        self._client = client

    def __repr__(self) -> str:
        return f"<LoadedModel {self.info['name']}: {self.info['launches']} launches>"

    def unload(self) -> None:
        """Forget it; leases planned for it stay."""
        self._client.call("Unload", {"network": self.handle})


class PlanReply(dict[str, Any]):
    def __repr__(self) -> str:
        choice = self["choice"]
        clocks = ", ".join(f"{axis}={level}" for axis, level in choice["configuration"].items())
        return f"<plan for {self['target']}: {clocks}, {choice['latency_ms']:.4g} ms, {choice['energy_mj']:.4g} mJ>"


class HeldLease:
    """Held clocks; as a context manager, released at its end within a second.

    Attributes:
        id: its name in ``status`` and for ``release``.
        applied: clocks requested, accepted, and in effect.
        limit_ms: longest time of a frame by target and frame rate.
        shared, unkept, corrected: the ``Shared``, ``Unkept`` and ``Corrected`` of the interface, if any.
    """

    def __init__(self, client: ClientCalls, answer: Mapping[str, Any]) -> None:
        self.id: str = answer["lease"]
        self._client = client
        self._take(answer)
        self._reporter = Reporter(partial(_send, client, self.id), self.limit_ms)

    def __repr__(self) -> str:
        clocks = (self.applied or {}).get("requested", {})
        return f"<lease {self.id} at {', '.join(f'{axis}={level}' for axis, level in clocks.items())}>"

    def __enter__(self) -> HeldLease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # With the daemon gone or the lease ended, nothing is left to release.
        with contextlib.suppress(DaemonError):
            self.release(within_s=RELEASE_S)

    def __del__(self) -> None:
        self.abandon()

    @property
    def dropped(self) -> int:
        return self._reporter.dropped

    def release(self, *, within_s: float | None = None) -> dict[str, Any] | None:
        """Release the clocks; return the ``Used`` of the interface, if any."""
        self._reporter.end()
        used: dict[str, Any] | None = self._client.call("Release", {"lease": self.id}, within_s=within_s).get("used")
        return used

    def change(
        self,
        network: LoadedModel | str | None = None,
        target: str | None = None,
        *,
        fps: float | None = None,
        confidence: float | None = None,
    ) -> None:
        """Change the request; members not given stay. Raises TargetNotAttainable; the lease is then unchanged."""
        handle = network.handle if isinstance(network, LoadedModel) else network
        wanted = {"lease": self.id, "network": handle, "target": target, "fps": fps, "confidence": confidence}
        answer = self._client.call("Change", wanted)
        self._take(answer)
        self._reporter.limit(self.limit_ms)

    def _take(self, answer: Mapping[str, Any]) -> None:
        plan = answer.get("plan")
        self.plan: Mapping[str, Any] | None = plan and PlanReply(plan)
        self.applied: Mapping[str, Any] | None = answer.get("applied")
        self.limit_ms: float | None = answer.get("limit_ms")
        self.shared: Mapping[str, Any] | None = answer.get("shared")
        self.unkept: Mapping[str, Any] | None = answer.get("unkept")
        self.corrected: Mapping[str, Any] | None = answer.get("corrected")

    def abandon(self) -> None:
        """End its work in this process silently; the daemon ends it with the connection."""
        self._reporter.abandon()

    def report(self, latency_ms: float) -> None:
        """Note a frame's latency, for a thread to send; never waits or raises."""
        self._reporter.note(latency_ms)

    def missed(self) -> dict[str, Any] | None:
        """Missed target, the ``Missed`` of the interface; None while kept."""
        self._reporter.flush()
        found: dict[str, Any] | None = self._client.call("Report", {"lease": self.id, "latency_ms": []}).get("missed")
        return found

    def notices(self, *, within_s: float) -> dict[str, str]:
        """Notices of the daemon by kind, one line each; raises LeaseEnded or NoDaemon."""
        told = self._client.call("Report", {"lease": self.id, "latency_ms": []}, within_s=within_s)
        found = {}
        if doubted := told.get("doubted"):
            found[f"doubted {doubted.get('side')}"] = doubted["reason"]
        if silent := told.get("silent"):
            found["silent"] = silent
        return found

    def flush(self) -> None:
        self._reporter.flush()


def _send(client: ClientCalls, lease_id: str, latencies_ms: Sequence[float]) -> bool:
    with contextlib.suppress(TypeError, ValueError):
        taken = [float(one) for one in latencies_ms if 0 <= one <= protocol.LONGEST_FRAME_MS]
        return client.post("Report", {"lease": lease_id, "latency_ms": taken})
    return True
