# SPDX-License-Identifier: Apache-2.0
"""Files of a model that is stored in several parts, named ``NAME-00001-of-00003.SUFFIX``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import BudgetExceeded, ModelError
from .folder import nonblocking

_MOST = 256
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})")


def parts_of(folder: Path | None, name: str, suffix: str, count: int | None = None) -> list[Path] | None:
    """Paths of all parts of a file's model; None if its name is not that of a part. Raises BudgetExceeded."""
    part = _PART.fullmatch(name.removesuffix(suffix))
    if folder is None or part is None or (count is not None and int(part[3]) != count):
        return None
    if not 0 < int(part[3]) <= _MOST:
        raise BudgetExceeded(f"{name:.80} is one of {int(part[3])} parts; at most {_MOST} are read")
    return [folder / f"{part[1]}-{number:05}-of-{part[3]}{suffix}" for number in range(1, int(part[3]) + 1)]


@contextmanager
def opened_part(path: Path) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb", opener=nonblocking) as stream:
            yield stream
    except OSError as error:
        raise ModelError(f"{path.name}, a part of the model, cannot be read: {error.strerror}") from error
