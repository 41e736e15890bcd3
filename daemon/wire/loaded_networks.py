# SPDX-License-Identifier: Apache-2.0
"""A model's open file, and the networks of a connection loaded from such files."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import DaemonError, InputError
from . import input_values
from .client import Client, LoadedModel

_MOST = 8
"""Networks kept loaded on a connection: a daemon takes 16, and the application may load more itself."""
_MOST_BYTES = 16 << 20


class OpenModel:
    """A model with its inputs, or a launch list, whose file stays open from the first use on."""

    def __init__(self, path: str | os.PathLike[str], inputs: Sequence[Any]) -> None:
        self.path = path
        self.tensors = [input_values.tensor(item) for item in inputs]
        self._descriptor: int | None = None

    def descriptor(self) -> int:
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError as error:
                raise InputError(f"model {os.fspath(self.path)}: {error.strerror}") from error
        return self._descriptor

    def key(self) -> tuple[object, ...]:
        found = os.fstat(self.descriptor())
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size, json.dumps(self.tensors, sort_keys=True)

    def listed(self) -> Mapping[str, Any] | None:
        if Path(self.path).suffix != ".json":
            return None
        try:
            data = json.loads(os.pread(self.descriptor(), _MOST_BYTES, 0))
        except (OSError, ValueError, RecursionError):
            return None
        return data if isinstance(data, dict) and "launches" in data else None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class LoadedNetworks:
    def __init__(self, client: Client, accept_boundary: Sequence[str]) -> None:
        self._client = client
        self._accept_boundary = accept_boundary
        self._networks: dict[tuple[object, ...], LoadedModel] = {}

    def network(self, model: OpenModel) -> LoadedModel:
        key = model.key()
        network = self._networks.pop(key, None)
        if network is None:
            while len(self._networks) >= _MOST:
                oldest = self._networks.pop(next(iter(self._networks)))
                with contextlib.suppress(DaemonError):
                    oldest.unload()
            network = self._read(model)
        self._networks[key] = network
        return network

    def _read(self, model: OpenModel) -> LoadedModel:
        if (listed := model.listed()) is not None:
            return self._client.load_network(listed, accept_boundary=self._accept_boundary)
        name = Path(model.path).stem
        return self._client.load_descriptor(model.descriptor(), model.tensors, name=name, accept_boundary=self._accept_boundary)
