# SPDX-License-Identifier: Apache-2.0
"""A document merged from a YAML file and its drop-ins, with the origin of each member."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from msgspec import Struct

from ...profiles.documents import DocumentError, Place, dotted, laid_over, line_of, load_yaml, repeated_members

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

    def names(self, at: Place) -> bool:
        inner = self.raw
        for key in at:
            if not isinstance(inner, Mapping) or key not in inner:
                return False
            inner = inner[key]
        return self.raw is not None


class ConfigLayers(Struct, frozen=True):
    path: Path
    layers: tuple[ConfigLayer, ...] = ()
    problems: tuple[Remark, ...] = ()
    warnings: tuple[Remark, ...] = ()

    @property
    def merged(self) -> dict[str, Any]:
        return reduce(laid_over, (layer.raw for layer in self.layers if isinstance(layer.raw, Mapping)), {})

    def origin(self, at: Place) -> ConfigLayer | None:
        places = (at[:end] for end in range(len(at), -1, -1))
        return next((layer for place in places for layer in reversed(self.layers) if layer.names(place)), None)

    def remark_at(self, at: Place, text: str) -> Remark:
        origin = self.origin(at)
        return Remark(self.path, None, text) if origin is None else origin.remark_at(at, text)


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
    folder = path.with_name(f"{path.name}.d")
    try:
        yield from sorted(part for part in folder.iterdir() if part.suffix == ".yaml")
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(Remark(folder, None, error.strerror or str(error)))
