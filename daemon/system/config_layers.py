# SPDX-License-Identifier: Apache-2.0
"""A document merged from a YAML file and its drop-ins, with the origin of each member."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from ...profiles.documents import DocumentError, Place, dotted, line_of, load_yaml, repeated_members

_MOST_BYTES = 1 << 20


class Remark(Struct, frozen=True):
    path: Path
    line: int | None
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.line is None else f"{self.path}, line {self.line}: {self.text}"


class ConfigLayer(Struct, frozen=True):
    path: Path
    text: str
    raw: Any

    def remark_at(self, at: Place, text: str) -> Remark:
        return Remark(self.path, line_of(self.text, at) if at else None, text)

    def remark(self, mistake: DocumentError) -> Remark:
        return self.remark_at(mistake.at, str(mistake))


class ConfigLayers(Struct, frozen=True, dict=True):
    path: Path
    layers: tuple[ConfigLayer, ...] = ()
    problems: tuple[Remark, ...] = ()
    warnings: tuple[Remark, ...] = ()

    @property
    def merged(self) -> Any:
        return self._together[0]

    def origin(self, at: Place) -> ConfigLayer | None:
        origins = self._together[1]
        return next((origins[at[:end]] for end in range(len(at), -1, -1) if at[:end] in origins), None)

    @cached_property
    def _together(self) -> tuple[Any, Mapping[Place, ConfigLayer]]:
        together, origins = None, dict[Place, ConfigLayer]()
        for layer in self.layers:
            if layer.raw is not None:
                together = _over(together, layer.raw, (), layer, origins)
        return together, origins

    def remark_at(self, at: Place, text: str) -> Remark:
        origin = self.origin(at)
        return Remark(self.path, None, text) if origin is None else origin.remark_at(at, text)


def drop_in_folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.d")


def read_stack(path: Path, *, required: bool) -> ConfigLayers:
    """Read a file, a problem if ``required`` and missing, and its drop-ins ``*.yaml`` by name; never raises."""
    layers: list[ConfigLayer] = []
    problems: list[Remark] = []
    warnings: list[Remark] = []
    for part in _files(path, problems):
        try:
            text = _text(part)
            layers.append(ConfigLayer(part, text, load_yaml(text)))
        except FileNotFoundError as error:
            if part != path or required:
                problems.append(Remark(part, None, str(error.strerror)))
        except OSError as error:
            problems.append(Remark(part, None, error.strerror or str(error)))
        except UnicodeError as error:
            problems.append(Remark(part, None, f"not valid YAML: {error}"))
        except DocumentError as error:
            problems.append(Remark(part, error.line, str(error)))
        else:
            repeated = repeated_members(text)
            warnings += (Remark(part, line, f"{dotted(at)} is given twice; this one counts") for at, line in repeated)
    return ConfigLayers(path, tuple(layers), tuple(problems), tuple(warnings))


def _text(path: Path) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise DocumentError("expected a regular file")
        data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise DocumentError(f"expected at most {_MOST_BYTES >> 20} MiB")
    return data.decode()


def _files(path: Path, problems: list[Remark]) -> Iterator[Path]:
    yield path
    folder = drop_in_folder(path)
    try:
        yield from sorted(part for part in folder.iterdir() if part.suffix == ".yaml")
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(Remark(folder, None, error.strerror or str(error)))


def _over(lower: Any, upper: Any, at: Place, layer: ConfigLayer, origins: dict[Place, ConfigLayer]) -> Any:
    origins[at] = layer
    if not isinstance(upper, Mapping):
        return upper
    together = dict(lower) if isinstance(lower, Mapping) else {}
    for name, value in upper.items():
        together[name] = _over(together.get(name), value, (*at, name), layer, origins)
    return together
