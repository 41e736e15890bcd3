# SPDX-License-Identifier: Apache-2.0
"""Random networks as files of TorchScript with what they launch, made in processes of their own.

Tracing leaves some MiB of each network behind in its process for good; so that a campaign of thousands ends, processes are
begun anew now and then.
"""

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
    """Makes networks; a context that ends its processes.

    Args:
        folder: where their files are, until the next is asked for.
        processes: how many make networks at once; of one, nothing is made while a network is measured.
    """

    def __init__(self, folder: Path, processes: int = 1) -> None:
        self._folder, self._processes = folder, processes
        self._pool: ProcessPoolExecutor | None = None
        self._made = 0

    def __enter__(self) -> Exports:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def each(self, wanted: Iterable[tuple[str, int]]) -> Iterator[Made]:
        """Make networks by family and number, in this order; several processes make the next ones meanwhile.

        A network that could not be made raises as its list is asked for.
        """
        left = deque(wanted)
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
            made = Made(family, number, self._path(family, number), future)
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


class Made:
    """A network that is being made, and its file.

    Attributes:
        killed: whether the process that made it was killed, which is known once its list was asked for.
    """

    def __init__(self, family: str, number: int, path: Path, future: Future[Network | str]) -> None:
        self.family, self.number, self.name, self.path = family, number, f"{family}-{number}", path
        self._future, self.killed = future, False

    def network(self) -> Network:
        """What it launches, once its file is there.

        Raises:
            MeasurementError: there is no PyTorch here, it cannot make the network, or the file cannot be followed.
        """
        try:
            found = self._future.result()
        except BrokenProcessPool as error:
            self.killed = True
            raise MeasurementError(f"{self.name}: the process that made it was killed, perhaps for memory") from error
        if isinstance(found, str):
            raise MeasurementError(found)
        return found


def export(family: str, number: int, path: Path) -> Network:
    """Make a network of a family in this process, save it as TorchScript, and list what it launches.

    Raises:
        MeasurementError: there is no PyTorch here, or it cannot make it.
        KernelsError: the file cannot be followed.
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
    """The network, or why there is none: not every error survives the way to another process."""
    try:
        return export(family, number, path)
    except (MeasurementError, KernelsError) as error:
        return str(error)
