# SPDX-License-Identifier: Apache-2.0
"""Random networks as TorchScript files, made in processes that are restarted: tracing leaks memory."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from ....kernels.decompose import decompose
from ....kernels.errors import KernelsError
from ....kernels.network import Network, TensorSpec
from ...errors import MeasurementError
from .families import make

_OF_ONE_PROCESS = 50


class Exports:
    """Makes networks with some ``processes``; with 1, none during a measurement. The context ends them."""

    def __init__(self, folder: Path, processes: int = 1) -> None:
        self._folder, self._processes = folder, processes
        self._pool: ProcessPoolExecutor | None = None
        self._made = 0

    def __enter__(self) -> Exports:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def each(self, entries: Iterable[tuple[str, int]]) -> Iterator[ExportedNetwork]:
        """Make networks by family and number, in order; several processes work ahead."""
        left = deque(entries)
        begun: deque[tuple[str, int, Future[Network | str]]] = deque()
        while left or begun:
            while left and len(begun) < self._processes:
                if self._made >= _OF_ONE_PROCESS * self._processes:
                    if begun:
                        break
                    self._end()
                family, number = left.popleft()
                begun.append((family, number, self._begin(family, number)))
            family, number, future = begun.popleft()
            made = ExportedNetwork(family, number, self._path(family, number), future)
            try:
                yield made
            finally:
                made.path.unlink(missing_ok=True)
            if made.killed:
                self._end()
                begun = deque((family, number, self._begin(family, number)) for family, number, _ in begun)

    def _begin(self, family: str, number: int) -> Future[Network | str]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self._processes, mp_context=get_context("spawn"))
        self._made += 1
        return self._pool.submit(_exported, family, number, self._path(family, number))

    def _path(self, family: str, number: int) -> Path:
        return self._folder / f"{family}-{number}.pt"

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool, self._made = None, 0


class ExportedNetwork:
    """Network in the making, and its file; ``killed`` is known after :meth:`network`."""

    def __init__(self, family: str, number: int, path: Path, future: Future[Network | str]) -> None:
        self.family, self.number, self.name, self.path = family, number, f"{family}-{number}", path
        self._future, self.killed = future, False

    def network(self) -> Network:
        """Launches, once the file exists. Raises MeasurementError."""
        try:
            found = self._future.result()
        except BrokenProcessPool as error:
            self.killed = True
            raise MeasurementError(f"{self.name}: the process that made it was killed, perhaps for memory") from error
        if isinstance(found, str):
            raise MeasurementError(found)
        return found


def export(family: str, number: int, path: Path) -> Network:
    """Make a network in this process, save it as TorchScript, and return its launches.

    Raises MeasurementError, KernelsError.
    """
    try:
        import torch
    except ImportError as error:
        raise MeasurementError(f"networks are made by PyTorch, which is not installed here ({error})") from error
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            module, shape = make(family, number)
            traced = torch.jit.trace(module, torch.zeros(shape), check_trace=False)
            torch.jit.save(traced, str(path))
    except RuntimeError as error:  # an image that has become too small for a window, or too little memory
        raise MeasurementError(f"{family}-{number}: {error}") from error
    return decompose(path, [TensorSpec(shape)], name=f"{family}-{number}")


def _exported(family: str, number: int, path: Path) -> Network | str:
    """The network, or a reason: not every error can be pickled."""
    try:
        return export(family, number, path)
    except (MeasurementError, KernelsError) as error:
        return str(error)
