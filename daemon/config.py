# SPDX-License-Identifier: Apache-2.0
"""The operator's configuration: a YAML file and its drop-ins, every member optional.

Files of ``jetdvfsd.yaml.d`` next to ``jetdvfsd.yaml`` whose names end in ``.yaml`` are read after it, in the order of their
names: later files override earlier ones, member by member; an empty member (``profile:``) has its default again.

::

    board: agx-xavier            # default: detected
    profile: agx-xavier-sim      # default: the first of this board; on the running system, no simulated one
    socket_group: jetdvfs        # group that may request clocks; default: this one, if it exists
    axes: [cpu, gpu, emc]        # clocks that may be set; the rest stay as they are found
    limits:                      # clocks outside are never set; without any inside, the highest below them, or the lowest
      cpu_khz: {min: 499200, max: 2265600}
      gpu_hz: {max: 1198500000}
      emc_hz: {min: 800000000}
    cpu_clusters: together       # or apart: one leads, the rest run as low as other work allows
    cpu_leader: policy0          # the one that the application runs on; default: the one with most cores
    floors: auto                 # keep clocks up for other work (docs/use.md); off; or the rule's own numbers, as in
                                 #   {cpu_share: 0.7, emc_share: 0.3, pressure: 0.1, hold_s: 10}
    ceiling_c: 70                # highest temperature of any zone, under any lease (docs/use.md); default: no ceiling
    default: max                 # clocks while no application holds any: max, min, or CPU,GPU,EMC in MHz, each max, min or
                                 #   empty for its governor's (,612,); or those that keep a target for a model, as in
                                 #   {model: FILE, input: [1x3x224x224], target: latency_ms=20, fps: 30}; default: as found
    idle: {after_s: 5, clocks: ',min,min'}   # clocks of a lease for a target while its frames have stopped; or off
    clients: {connections: 64, leases: 64, networks: 16}
    worker: {parallel: 2, threads: 4, timeout_s: 20}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from ..kernels.errors import GridError
from ..kernels.grid import parse_configuration
from ..kernels.text import closest_match
from ..profiles.documents import Place, Text, convert, dotted, mistakes, unknown_members
from .errors import UsageError
from .hardware.clocks.driver import Clusters
from .leases.demand_floors import FloorRules
from .planning.limits import ClockLimits
from .planning.targets import parse_target
from .system.config_layers import ConfigLayers, Remark, read_stack

DEFAULT_PATH = Path("/etc/jetdvfs/jetdvfsd.yaml")
INSTALLED_GROUP = "jetdvfs"
Axis: TypeAlias = Literal["cpu", "gpu", "emc"]
_PLAUSIBLE_MHZ = (10, 10_000)
_RELOADED = ("limits", "floors", "ceiling_c", "default", "idle")
AXES: dict[Axis, str] = {"cpu": "cpu_khz", "gpu": "gpu_hz", "emc": "emc_hz"}
Degrees: TypeAlias = Annotated[float, Meta(ge=20, le=110, description="a temperature from 20 to 110 degrees Celsius")]
Number: TypeAlias = Annotated[int, Meta(ge=1, le=10_000, description="a whole number from 1 to 10000")]


class ClientLimits(Struct, frozen=True):
    """Limits on simultaneous connections, leases and loaded networks.

    A user gets at most 16 connections and leases; an eighth of each, at most 8, is kept for root.
    """

    connections: Number = 64
    leases: Number = 64
    networks: Number = 16


class WorkerRules(Struct, frozen=True):
    parallel: Number = 2
    threads: Number = 4
    timeout_s: Number = 20


class DefaultTarget(Struct, frozen=True):
    model: Text
    target: Text
    input: tuple[Text, ...] = ()
    fps: Annotated[float, Meta(gt=0, description="a number above 0")] | None = None
    confidence: Annotated[float, Meta(ge=0.5, lt=1, description="a number from 0.5 to below 1")] | None = None

    def __str__(self) -> str:
        return f"{self.target} for {Path(self.model).name}"


class IdleRules(Struct, frozen=True):
    """Standby after a time without frames, at clocks as for ``default``.

    By default the CPU keeps its governor.
    """

    after_s: Annotated[float, Meta(ge=0.5, le=3600, description="a number from 0.5 to 3600")] = 5.0
    clocks: Text = ",min,min"


class Members(Struct, frozen=True):
    board: Annotated[Text | None, Meta(title="board description; default: detected")] = None
    profile: Annotated[
        Text | None, Meta(title="bundle name or folder; default: the first of this board, simulated ones with --root alone")
    ] = None
    socket_group: Annotated[
        Text | None, Meta(title=f"users who may ask for clocks; default: {INSTALLED_GROUP}, if there is such a group")
    ] = None
    axes: Annotated[frozenset[Axis], Meta(title="clocks that may be set; the rest stay at the baseline")] = frozenset(AXES)
    limits: Annotated[ClockLimits, Meta(title="clocks outside are never set")] = ClockLimits()
    cpu_clusters: Annotated[
        Literal["together", "apart"], Meta(title="if apart, one leads and the rest run as low as other work allows")
    ] = "together"
    cpu_leader: Annotated[
        Text | None, Meta(title="the application's cpufreq policy, as policy0; default: the one with most cores")
    ] = None
    floors: Annotated[
        FloorRules | None, Meta(description="auto, off or a mapping", title="keep clocks up for other work (docs/use.md)")
    ] = FloorRules()
    ceiling_c: Annotated[Degrees | None, Meta(title="no zone becomes hotter (docs/use.md)")] = None
    default: Annotated[
        Text | DefaultTarget | None,
        Meta(
            description="max, min, CPU,GPU,EMC in MHz, or a mapping with model and target",
            title="clocks, or a model and a target, while no application holds any",
        ),
    ] = None
    idle: Annotated[
        IdleRules | None,
        Meta(description="off or a mapping", title="clocks of a lease for a target while its frames have stopped"),
    ] = IdleRules()
    clients: Annotated[ClientLimits, Meta(title="how many there may be at once")] = ClientLimits()
    worker: Annotated[WorkerRules, Meta(title="processes that read model files")] = WorkerRules()

    @property
    def clusters(self) -> Clusters:
        return Clusters(self.cpu_clusters == "apart", self.cpu_leader)


class Config(Members, frozen=True):
    """The operator's configuration; ``warnings`` name members without effect."""

    warnings: tuple[str, ...] = ()


def load_config(path: Path | None) -> Config:
    """Read the file and its drop-ins, by default the installation's if any; raises UsageError."""
    reading = read_config(path)
    if reading.members is None:
        first, *others = reading.problems
        more = f" (and {len(others)} more; jetdvfs config check lists them)" if others else ""
        raise UsageError(f"configuration {first}{more}")
    return Config(**asdict(reading.members), warnings=tuple(map(str, reading.warnings)))


class ConfigReading(Struct, frozen=True):
    """Members of the configuration, None if there are problems; remarks, and the files."""

    members: Members | None
    problems: tuple[Remark, ...]
    warnings: tuple[Remark, ...]
    stack: ConfigLayers


def read_config(path: Path | None) -> ConfigReading:
    """Read the file and its drop-ins, valid or not; raises nothing."""
    stack = read_stack(path or DEFAULT_PATH, required=path is not None)
    problems, warnings = list(stack.problems), list(stack.warnings)
    for layer in stack.layers:
        raw = _filled(layer.raw)
        problems += (layer.remark_at(mistake.at, str(mistake)) for mistake in mistakes(raw, Members))
        for at, known in unknown_members(raw, Members):
            problems.append(layer.remark_at(at, f"{dotted(at)}: unknown member{_suggested(at, known)}"))
        problems += (layer.remark_at(at, text) for at, text in _implausible(raw))
    members = None
    if not problems:
        together = _filled(stack.merged)
        # Valid files may be invalid together.
        problems = [stack.remark_at(mistake.at, str(mistake)) for mistake in mistakes(together, Members)]
        members = None if problems else convert(together, Members)
    if members is not None and members.cpu_leader is not None and members.cpu_clusters == "together":
        warnings.append(stack.remark_at(("cpu_leader",), "cpu_leader is ignored without cpu_clusters: apart"))
    return ConfigReading(members, tuple(problems), tuple(warnings), stack)


def _suggested(at: Place, known: Sequence[str]) -> str:
    close = closest_match(str(at[-1]), known)
    meant = f"; did you mean {dotted((*at[:-1], close))}?" if close else ";"
    return f"{meant} valid: {', '.join(known)}"


def _implausible(raw: Any) -> Iterator[tuple[Place, str]]:
    idle, default = (raw.get(name) if isinstance(raw, Mapping) else None for name in ("idle", "default"))
    if isinstance(default, Mapping):
        for at, known in unknown_members(default, DefaultTarget):
            yield ("default", *at), f"default.{dotted(at)}: unknown member{_suggested(('default', *at), known)}"
        try:
            parse_target(str(default.get("target", "min-energy")))
        except UsageError as error:
            yield ("default", "target"), f"default.target: {error}"
    clocks: list[tuple[Place, Any]] = [(("default",), default)]
    clocks += [(("idle", "clocks"), idle.get("clocks"))] if isinstance(idle, Mapping) else []
    for at, text in clocks:
        if isinstance(text, str):
            try:
                parse_configuration(text, dict.fromkeys(AXES.values(), (1,)))
            except GridError as error:
                yield at, f"{dotted(at)}: {error}"
    limits = raw.get("limits") if isinstance(raw, Mapping) else None
    for axis in AXES.values():
        bounds = limits.get(axis) if isinstance(limits, Mapping) else None
        for end, value in bounds.items() if isinstance(bounds, Mapping) else ():
            if end not in ("min", "max") or type(value) is not int or value <= 0:
                continue
            per_mhz, unit = (1_000, "kHz") if axis == "cpu_khz" else (1_000_000, "Hz")
            others = (value * per_mhz, value * 1_000, value // 1_000)  # in MHz, or in the other axes' unit
            low, high = _PLAUSIBLE_MHZ
            if not _fits(value, per_mhz):
                at = ("limits", axis, end)
                meant = next((one for one in others if _fits(one, per_mhz)), None)
                asked = f"{meant / per_mhz:.6g} MHz meant? write {meant}" if meant else f"expected {low} to {high} MHz"
                yield at, f"{dotted(at)}: {value} {unit}: {asked}"


def _fits(value: int, per_mhz: int) -> bool:
    return _PLAUSIBLE_MHZ[0] * per_mhz <= value <= _PLAUSIBLE_MHZ[1] * per_mhz


def _filled(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return {} if raw is None else raw
    filled = {name: _filled(value) for name, value in raw.items() if value is not None}
    # YAML reads off and on as booleans.
    for name in {"floors", "idle"}.intersection(filled):
        if filled[name] in ("auto", True):
            del filled[name]
        elif filled[name] in ("off", False):
            filled[name] = None
    return filled


class ConfigFile:
    """The operator's file: read at the start, and again on request.

    Attributes:
        notes: reasons why the file's content is not in force.
        default_note: reason why the target of ``default`` is not held.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.started = self.current = load_config(path)
        self.notes: tuple[str, ...] = ()
        self.default_note = ""

    def reload(self) -> Config:
        """Read the file again; warnings name members for the next start only.

        Raises:
            UsageError: the previous one stays in force, with ``notes``.
        """
        try:
            config = load_config(self._path)
        except UsageError as error:
            self.notes = (f"the configuration was not read again, the one before stays in force: {error}",)
            raise
        changed = [name for name in Members.__struct_fields__ if getattr(config, name) != getattr(self.started, name)]
        self.notes = tuple(f"{name}: its change takes effect at the next start" for name in changed if name not in _RELOADED)
        self.current = config
        return replace(config, warnings=(*config.warnings, *self.notes))
