# SPDX-License-Identifier: Apache-2.0
"""What a profile bundle says of itself: the board and grid it is for, how it was made, how well it does, and its checksums."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ...kernels.cost.totals import NO_SHARES, Shares
from ...kernels.errors import KernelsError
from ...kernels.grid import FrequencyGrid
from ..errors import BundleError

FORMAT_VERSION = 1
_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,80}")
_BUNDLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,80}")


@dataclass(frozen=True)
class KindEntry:
    """What a manifest says of one kernel kind.

    Attributes:
        features: the names of its models' features, the last three being the clocks in MHz.
        dtypes: the element types it was trained on.
        time_sigma, power_sigma: standard deviation of log(measured / predicted) for an invocation of a network and a board that
            the model was not trained on.
        samples: time measurements it was trained on.
        recipes: the hyperparameters of its ``time`` and ``power`` model.
    """

    features: tuple[str, ...]
    dtypes: tuple[str, ...]
    time_sigma: float
    power_sigma: float
    samples: int
    recipes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """What a bundle says of itself.

    Attributes:
        board: the board description it belongs to; ``grid`` must be that board's.
        rails: the power rails whose sum its power and energy figures are.
        simulated: whether it was measured on a simulated board, of silicon ``silicon_version``.
        nodes: the boards (by number) it was trained on.
        temperature_c: the die temperature its idle power refers to.
        sigma_latency, sigma_energy: standard deviation of the error that a whole network or board shares, as a fraction.
        latency_shares, energy_shares: the same for what the host, computation and memory traffic take, each by itself.
        evaluation: figures of its own evaluation on boards it was not trained on.
        command: what reproduces it.
        tools: the versions of the programs that made it; with others, models may differ in their last digits.
        checksums: SHA-256 of every other file of the bundle.
    """

    name: str
    board: str
    grid: FrequencyGrid
    rails: tuple[str, ...]
    simulated: bool
    silicon_version: str
    nodes: tuple[int, ...]
    temperature_c: float
    kinds: Mapping[str, KindEntry]
    sigma_latency: float
    sigma_energy: float
    command: str
    tools: Mapping[str, str] = field(default_factory=dict)
    latency_shares: Shares = NO_SHARES
    energy_shares: Shares = NO_SHARES
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT_VERSION,
            "name": self.name,
            "board": self.board,
            "simulated": self.simulated,
            "silicon_version": self.silicon_version,
            "command": self.command,
            "tools": dict(self.tools),
            "nodes": list(self.nodes),
            "temperature_c": self.temperature_c,
            "rails": list(self.rails),
            "grid": self.grid.to_json(),
            "sigma_latency": self.sigma_latency,
            "sigma_energy": self.sigma_energy,
            "latency_shares": asdict(self.latency_shares),
            "energy_shares": asdict(self.energy_shares),
            "kinds": {
                kind: {
                    "features": list(entry.features),
                    "dtypes": list(entry.dtypes),
                    "time_sigma": entry.time_sigma,
                    "power_sigma": entry.power_sigma,
                    "samples": entry.samples,
                    "recipes": {name: dict(recipe) for name, recipe in entry.recipes.items()},
                }
                for kind, entry in self.kinds.items()
            },
            "evaluation": dict(self.evaluation),
            "checksums": dict(self.checksums),
        }

    @classmethod
    def from_json(cls, data: Any) -> Manifest:
        """Read the JSON form.

        Raises:
            BundleError: a member is missing, of the wrong type, or of another format version.
        """
        try:
            if data["format"] != FORMAT_VERSION:
                raise BundleError(f"manifest: format {data['format']!r}; this release reads {FORMAT_VERSION}")
            if not _BUNDLE_NAME.fullmatch(data["name"]):
                raise ValueError(f"name {data['name']!r:.100} is not a plain name")
            if not isinstance(data["simulated"], bool):
                raise TypeError("simulated is true or false")
            for name, digest in data["checksums"].items():
                if not _FILE_NAME.fullmatch(name) or not re.fullmatch(r"[0-9a-f]{64}", digest):
                    raise ValueError(f"checksums: {name!r:.100} is not a plain file name with a SHA-256 digest")
            return cls(
                name=data["name"],
                board=str(data["board"]),
                grid=FrequencyGrid.from_json(data["grid"]),
                rails=tuple(str(rail) for rail in data["rails"]),
                simulated=data["simulated"],
                silicon_version=str(data["silicon_version"]),
                nodes=tuple(int(node) for node in data["nodes"]),
                temperature_c=finite(data["temperature_c"]),
                kinds={
                    str(kind): KindEntry(
                        features=tuple(str(name) for name in entry["features"]),
                        dtypes=tuple(str(name) for name in entry["dtypes"]),
                        time_sigma=not_negative(entry["time_sigma"]),
                        power_sigma=not_negative(entry["power_sigma"]),
                        samples=int(entry["samples"]),
                        recipes={
                            str(name): {str(key): finite(value) for key, value in recipe.items()}
                            for name, recipe in entry["recipes"].items()
                        },
                    )
                    for kind, entry in data["kinds"].items()
                },
                sigma_latency=not_negative(data["sigma_latency"]),
                sigma_energy=not_negative(data["sigma_energy"]),
                latency_shares=_shares(data.get("latency_shares", {})),
                energy_shares=_shares(data.get("energy_shares", {})),
                command=str(data["command"]),
                tools={str(name): str(version) for name, version in data["tools"].items()},
                evaluation=dict(data["evaluation"]),
                checksums=dict(data["checksums"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, KernelsError) as error:
            raise BundleError(f"manifest: {error!r}") from error


def _shares(data: Mapping[str, Any]) -> Shares:
    return Shares(**{str(name): not_negative(value) for name, value in data.items()})


def finite(value: Any) -> float:
    """A JSON number that is finite, as a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
        raise TypeError(f"expected a finite number, got {value!r:.40}")
    return float(value)


def not_negative(value: Any) -> float:
    """A JSON number that is finite and not negative, as a float."""
    number = finite(value)
    if number < 0:
        raise ValueError(f"expected a number that is not negative, got {number}")
    return number
