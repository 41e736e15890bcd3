# SPDX-License-Identifier: Apache-2.0
"""The operator's configuration: one YAML file, every member optional.

::

    board: agx-xavier            # default: detected
    profile: agx-xavier-sim      # default: the first of this board; on the running system, none that was simulated
    socket_group: jetdvfs        # who may ask for clocks
    axes: [cpu, gpu, emc]        # clocks that may be set; the others stay as they are found
    limits:                      # clocks outside are never set
      cpu_khz: {min: 499200, max: 2265600}
      gpu_hz: {max: 1198500000}
      emc_hz: {min: 800000000}
    cpu_clusters: together       # or apart: one leads, the others run as low as other work allows
    cpu_leader: policy0          # the one that the application runs on; default: the one with most cores
    floors: auto                 # keep clocks up for other work (docs/floors.md); off; or the rule's own numbers, as in
                                 #   {cpu_share: 0.7, emc_share: 0.3, pressure: 0.1, hold_s: 10}
    clients: {connections: 64, leases: 64, networks: 16}
    worker: {user: nobody, parallel: 2, threads: 4, timeout_s: 20}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .errors import UsageError
from .hardware.clocks.clusters import Clusters
from .watch.floors import FloorRules

DEFAULT_PATH = Path("/etc/jetdvfs/jetdvfsd.yaml")
AXES = {"cpu": "cpu_khz", "gpu": "gpu_hz", "emc": "emc_hz"}


@dataclass(frozen=True)
class Bounds:
    """The lowest and highest clock allowed on an axis, in the axis's unit; None where there is no bound."""

    min: int | None = None
    max: int | None = None


@dataclass(frozen=True)
class Config:
    """What the operator decided; see the module's text for each member's meaning."""

    board: str | None = None
    profile: str | None = None
    socket_group: str | None = None
    axes: tuple[str, ...] = tuple(AXES)
    limits: Mapping[str, Bounds] = field(default_factory=dict)
    clusters: Clusters = field(default_factory=Clusters)
    floors: FloorRules | None = field(default_factory=FloorRules)
    connections: int = 64
    leases: int = 64
    networks: int = 16
    worker_user: str = "nobody"
    worker_parallel: int = 2
    worker_threads: int = 4
    worker_timeout_s: float = 20.0
    warnings: tuple[str, ...] = ()


def load_config(path: Path | None) -> Config:
    """Read the file; without one, the default file if there is one, else the defaults.

    Raises:
        UsageError: it cannot be read, or a member is not what it must be.
    """
    wanted = DEFAULT_PATH if path is None else path
    if path is None and not wanted.exists():
        return Config()
    try:
        raw = yaml.safe_load(wanted.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"configuration {wanted}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise UsageError(f"configuration {wanted}: not valid YAML: {' '.join(str(error).split())}") from error
    reader = _Reader(str(wanted))
    return reader.config({} if raw is None else raw)


class _Reader:
    _KNOWN = (
        *("board", "profile", "socket_group", "axes", "limits", "cpu_clusters", "cpu_leader", "floors", "clients", "worker"),
    )

    def __init__(self, where: str) -> None:
        self._where = where
        self._warnings: list[str] = []

    def config(self, raw: Any) -> Config:
        top = self._mapping(raw, "")
        clients = self._mapping(top.get("clients"), "clients")
        worker = self._mapping(top.get("worker"), "worker")
        limits = self._mapping(top.get("limits"), "limits")
        config = Config(
            board=self._text(top, "board"),
            profile=self._text(top, "profile"),
            socket_group=self._text(top, "socket_group"),
            axes=self._axes(top.get("axes", list(AXES))),
            limits={axis: self._bounds(limits[axis], f"limits.{axis}") for axis in AXES.values() if axis in limits},
            clusters=self._clusters(top),
            floors=self._floors(top.get("floors", "auto")),
            connections=self._count(clients, "clients.connections", Config.connections),
            leases=self._count(clients, "clients.leases", Config.leases),
            networks=self._count(clients, "clients.networks", Config.networks),
            worker_user=self._text(worker, "worker.user") or Config.worker_user,
            worker_parallel=self._count(worker, "worker.parallel", Config.worker_parallel),
            worker_threads=self._count(worker, "worker.threads", Config.worker_threads),
            worker_timeout_s=float(self._count(worker, "worker.timeout_s", int(Config.worker_timeout_s))),
        )
        self._unknown(top, "", self._KNOWN)
        self._unknown(clients, "clients.", ("connections", "leases", "networks"))
        self._unknown(worker, "worker.", ("user", "parallel", "threads", "timeout_s"))
        self._unknown(limits, "limits.", tuple(AXES.values()))
        return Config(**{**vars(config), "warnings": tuple(self._warnings)})

    def _mapping(self, value: Any, name: str) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._bad(name, "a mapping", value)
        return value

    def _text(self, section: Mapping[str, Any], name: str) -> str | None:
        value = section.get(name.rpartition(".")[2])
        if value is not None and (not isinstance(value, str) or not value):
            raise self._bad(name, "a text", value)
        return value

    def _count(self, section: Mapping[str, Any], name: str, default: int) -> int:
        value = section.get(name.rpartition(".")[2], default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
            raise self._bad(name, "a whole number from 1 to 10000", value)
        return value

    def _axes(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not set(map(str, value)) <= set(AXES):
            raise self._bad("axes", f"a list of {', '.join(AXES)}", value)
        return tuple(axis for axis in AXES if axis in value)

    def _bounds(self, value: Any, name: str) -> Bounds:
        section = self._mapping(value, name)
        self._unknown(section, f"{name}.", ("min", "max"))
        found: dict[str, int | None] = {}
        for end in ("min", "max"):
            bound = section.get(end)
            if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int) or bound <= 0):
                raise self._bad(f"{name}.{end}", "a positive whole number", bound)
            found[end] = bound
        low, high = found["min"], found["max"]
        if low is not None and high is not None and low > high:
            raise self._bad(name, "min not above max", f"{low} > {high}")
        return Bounds(low, high)

    def _clusters(self, top: Mapping[str, Any]) -> Clusters:
        how = top.get("cpu_clusters", "together")
        if how not in ("together", "apart"):
            raise self._bad("cpu_clusters", "together or apart", how)
        leader = self._text(top, "cpu_leader")
        if leader is not None and how == "together":
            self._warnings.append(f"{self._where}: cpu_leader is ignored without cpu_clusters: apart")
        return Clusters(how == "apart", leader)

    def _floors(self, value: Any) -> FloorRules | None:
        # YAML reads off and on as truth values.
        if value in ("off", False):
            return None
        if value in ("auto", True):
            return FloorRules()
        section = self._mapping(value, "floors") if isinstance(value, dict) else None
        if section is None:
            raise self._bad("floors", "auto, off or a mapping", value)
        parts: dict[str, float] = dict(vars(FloorRules()))
        self._unknown(section, "floors.", tuple(parts))
        for name in parts:
            value, most = section.get(name, parts[name]), 3600 if name == "hold_s" else 1
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
                raise self._bad(f"floors.{name}", f"a number above 0, at most {most}", value)
            parts[name] = float(value)
        return FloorRules(**parts)

    def _unknown(self, section: Mapping[str, Any], prefix: str, known: tuple[str, ...]) -> None:
        for name in section:
            if name not in known:
                self._warnings.append(f"{self._where}: {prefix}{name} is unknown and ignored; known: {', '.join(known)}")

    def _bad(self, name: str, expected: str, value: Any) -> UsageError:
        return UsageError(f"configuration {self._where}: {name or 'top level'}: expected {expected}, got {value!r:.60}")
