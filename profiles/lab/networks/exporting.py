# SPDX-License-Identifier: Apache-2.0
"""Random networks as files of TorchScript with what they launch, made in a process of its own.

Tracing leaves some MiB of each network behind in its process for good; so that a campaign of thousands ends, that process is
begun anew now and then.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ProcessPoolExecutor
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
    """Makes networks; a context that ends its process."""

    def __init__(self) -> None:
        self._process: ProcessPoolExecutor | None = None
        self._made = 0

    def __enter__(self) -> Exports:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def network(self, family: str, number: int, path: Path) -> Network:
        """Make a network of a family, save it as TorchScript, and list what it launches.

        Raises:
            MeasurementError: there is no PyTorch here, it cannot make the network, or the file cannot be followed.
        """
        if self._made == _OF_ONE_PROCESS:
            self._end()
        if self._process is None:
            self._process = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        self._made += 1
        try:
            found = self._process.submit(_exported, family, number, path).result()
        except BrokenProcessPool as error:
            self._end()
            raise MeasurementError(f"{family}-{number}: the process that made it was killed, perhaps for memory") from error
        if isinstance(found, str):
            raise MeasurementError(found)
        return found

    def _end(self) -> None:
        if self._process is not None:
            self._process.shutdown()
        self._process, self._made = None, 0


def export(family: str, number: int, path: Path) -> Network:
    """As :meth:`Exports.network`, in this process.

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
