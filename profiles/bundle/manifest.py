# SPDX-License-Identifier: Apache-2.0
"""Manifest of a profile bundle: board, grid, origin, accuracy, and checksums."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, field, to_builtins
from msgspec.structs import asdict

from ...kernels.cost.engines import EngineCosts, EngineRates
from ...kernels.cost.region import ModelPair, Region, Span
from ...kernels.cost.roofline import NO_FLOOR, LaunchFloor
from ...kernels.cost.totals import NO_SHARES, BottleneckShares
from ...kernels.errors import KernelsError
from ...kernels.grid import FrequencyGrid
from ...kernels.heat import Heat
from ...kernels.surface import Tail, Tails
from ..board import BOARDS_DIR, load_board
from ..device import Device, MeasuredDevice
from ..documents import Count, DocumentError, NotNegative, Sha256, convert
from ..errors import BundleError
from .carried_profile import CarriedOrigin
from .identity import FORMAT_VERSION, BundleName, FileName, check_format, printable_document

UNSEEN_NETWORK = "unseen_network"
"""Evaluation on held-out networks of the only measured board."""
UNSEEN_BOARD = "unseen_board"
"""Evaluation on held-out boards."""
UNSEEN_BOARD_AND_NETWORK = "unseen_board_and_network"
"""Evaluation on held-out networks and boards."""
UNSEEN_FAMILY = "unseen_board_and_family"
"""Evaluation on held-out network families."""
_OPTIONAL = ("device", "carried", "leakage_fold_c", "bounds", "engines", "fleet")


class RegionEntry(Struct, frozen=True):
    """Trained region as in :class:`jetdvfs.kernels.cost.region.Region`; ``sizes`` names the spans' features."""

    sizes: tuple[str, ...]
    kinds: Mapping[str, Mapping[str, Count]]
    spans: Mapping[str, Span]
    kind_sigma: ModelPair
    form_sigma: ModelPair
    variety_sigma: ModelPair
    doubling_sigma: ModelPair

    def __post_init__(self) -> None:
        for variety, span in self.spans.items():
            if not len(span.low) == len(span.high) == len(self.sizes):
                raise ValueError(f"{variety or 'spans'}: expected a range for each of {', '.join(self.sizes)}")
        if min(*self.kind_sigma, *self.form_sigma, *self.variety_sigma, *self.doubling_sigma) < 0:
            raise ValueError("expected deviations that are not negative")

    @property
    def region(self) -> Region:
        return Region(**{name: value for name, value in asdict(self).items() if name != "sizes"})


class KindEntry(Struct, frozen=True):
    """One kernel kind.

    Attributes:
        features: of its models, the last three being the clocks in MHz.
        time_sigma, power_sigma: standard deviation of log(measured / predicted) for unseen networks and boards.
        samples: time measurements for training.
        recipes: hyperparameters of its ``time`` and ``power`` model.
        region: trained region; None in bundles of earlier releases.
    """

    features: tuple[str, ...]
    dtypes: tuple[str, ...]
    time_sigma: NotNegative
    power_sigma: NotNegative
    samples: Count
    recipes: Mapping[str, Mapping[str, int | float]] = field(default_factory=dict)
    region: RegionEntry | None = None


class BoundsEntry(Struct, frozen=True):
    """Errors for unseen network families and boards, fitted with the common sigmas and shares.

    Attributes:
        own: scale of the kernels' deviations, of latency and of energy.
        latency, energy, frames: errors relative to their deviations, and frames to their median.
    """

    own: ModelPair
    latency: Tail
    energy: Tail
    frames: Tail
    nodes: tuple[int, ...]
    networks: tuple[str, ...]

    def __post_init__(self) -> None:
        if min(self.own) < 0:
            raise ValueError(f"expected scales that are not negative, got {tuple(self.own)}")

    @property
    def tails(self) -> Tails:
        return Tails(self.latency, self.energy, self.frames)


class EnginesEntry(Struct, frozen=True):
    """Engine costs on its board, and the errors of their predictions.

    Attributes:
        rates: by element type of kernels, the narrowest last.
        bounds: for unseen network families and boards, fitted together with the shares and sigmas.
        nodes, networks: basis of the rates.
    """

    rates: Mapping[str, EngineRates]
    bounds: BoundsEntry
    latency_shares: BottleneckShares
    energy_shares: BottleneckShares
    sigma_latency: NotNegative
    sigma_energy: NotNegative
    nodes: tuple[int, ...]
    networks: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.rates:
            raise ValueError("rates: expected those of one element type or more")

    @property
    def engines(self) -> EngineCosts:
        return EngineCosts(
            self.rates,
            self.bounds.own,
            self.latency_shares,
            self.energy_shares,
            self.sigma_latency,
            self.sigma_energy,
            self.bounds.tails,
        )


class FleetEntry(Struct, frozen=True):
    """Number of training boards, of which ``learned`` gave only observations, and their spread: deviations of logarithms."""

    boards: Count
    learned: Count
    latency: BottleneckShares
    energy: BottleneckShares

    def __str__(self) -> str:
        latency, energy = (
            f"host {shares.host:.1%}, computation {shares.compute:.1%}, memory {shares.memory:.1%}"
            for shares in (self.latency, self.energy)
        )
        known = f"{self.boards} boards ({self.learned} by learned observations)"
        return f"{known}, which differ in latency by {latency}; in energy by {energy}"


class _MeanError(Struct, frozen=True):
    """In percent; no energy without measured power."""

    latency_percent: NotNegative
    energy_percent: NotNegative | None = None


class _NetworkError(Struct, frozen=True):
    network: str
    method: str
    latency_percent: NotNegative
    energy_percent: NotNegative | None = None


class _Evaluation(Struct, frozen=True):
    mean: Mapping[str, _MeanError]
    networks: tuple[_NetworkError, ...] = ()


class _Evaluated(Struct, frozen=True):
    """Evaluation members that programs use; the rest is kept unchanged."""

    evaluation: Mapping[str, _Evaluation] = field(default_factory=dict)


class Manifest(Struct, frozen=True, kw_only=True):
    """Manifest of a bundle.

    Attributes:
        board: its board description, or the name of ``device``; ``grid`` must match.
        rails: summed power rails; without any, power and energy are meaningless.
        simulated: True if measured on a simulated board, of silicon ``silicon_version``.
        nodes: training boards.
        temperature_c: die temperature of its idle power; None without measured power.
        leakage_fold_c: rise that multiplies leakage by e; None if measured at one temperature.
        sigma_latency, sigma_energy: relative standard deviation common to a network or board; shares are by component.
        floor: time of an almost empty launch.
        waiting, host_traffic: as in :class:`jetdvfs.kernels.cost.board.BoardCost`.
        evaluation: its errors on unseen boards.
        command: command that reproduces it; ``tools`` are versions, which determine the models' last digits.
        checksums: SHA-256 of every other file.
        bounds: for unseen networks; None for log-normal errors.
        carried: origin of models trained for another board.
        fleet: spread over the boards of a merged record; None for few boards.
    """

    name: BundleName
    board: str
    device: Device | None = None
    carried: CarriedOrigin | None = None
    simulated: bool
    silicon_version: str
    command: str
    tools: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[int, ...]
    temperature_c: float | None
    leakage_fold_c: Annotated[float, Meta(gt=0, description="a positive number")] | None = None
    rails: tuple[str, ...]
    grid: FrequencyGrid
    sigma_latency: NotNegative
    sigma_energy: NotNegative
    latency_shares: BottleneckShares = NO_SHARES
    energy_shares: BottleneckShares = NO_SHARES
    floor: LaunchFloor = NO_FLOOR
    waiting: NotNegative = 0.0
    host_traffic: NotNegative = 0.0
    bounds: BoundsEntry | None = None
    engines: EnginesEntry | None = None
    fleet: FleetEntry | None = None
    kinds: Mapping[str, KindEntry]
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    checksums: Mapping[FileName, Sha256] = field(default_factory=dict)

    @property
    def heat(self) -> Heat | None:
        """Temperature dependence of leakage; None if measured at one temperature only."""
        if self.leakage_fold_c is None or self.temperature_c is None:
            return None
        return Heat(self.temperature_c, self.leakage_fold_c)

    @property
    def other_boards_seen(self) -> bool:
        return bool(set(self.evaluation) - {UNSEEN_NETWORK})

    @property
    def measured_at_c(self) -> float:
        """Die temperature of the idle power. Raises BundleError without measured power."""
        if self.temperature_c is None:
            raise BundleError(f"profile {self.name}: power was not measured")
        return self.temperature_c

    def described(self, boards: Path = BOARDS_DIR) -> MeasuredDevice:
        """Its device; ``boards`` is the folder of descriptions. Raises BoardDescriptionError."""
        return self.device or load_board(self.board, boards)

    def __post_init__(self) -> None:
        for shares in (self.latency_shares, self.energy_shares):
            if min(asdict(shares).values()) < 0:
                raise ValueError(f"expected shares that are not negative, got {shares}")
        if min(asdict(self.floor).values()) < 0:
            raise ValueError(f"expected a floor that is not negative, got {self.floor}")
        if self.device is not None and self.device.name != self.board:
            raise ValueError(f"board {self.board!r}: expected its device's name, {self.device.name!r}")
        if self.rails and self.temperature_c is None:
            raise ValueError("temperature_c: expected that of the idle power, where power was measured")

    def to_json(self) -> dict[str, Any]:
        data = {"format": FORMAT_VERSION, **to_builtins(self)}
        data["kinds"] = {
            kind: {name: value for name, value in entry.items() if name != "region" or value is not None}
            for kind, entry in data["kinds"].items()
        }
        return {name: value for name, value in data.items() if value is not None or name not in _OPTIONAL}

    @classmethod
    def from_json(cls, data: Any) -> Manifest:
        """Read the JSON form. Raises BundleError if invalid or of another format."""
        check_format(data)
        document = printable_document(data)
        try:
            manifest = convert(document, cls)
            convert(document, _Evaluated)
        except (DocumentError, KernelsError) as error:
            raise BundleError(f"manifest: {error}") from error
        return manifest
