# SPDX-License-Identifier: Apache-2.0
"""The networks that a command line names: model files, lists of launches, reference networks."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from ...kernels.budget import Account, Budget
from ...kernels.decompose import decompose, refuse_other_kinds, says_its_inputs
from ...kernels.engine.program import RUNTIME, LayerTimes, read_times
from ...kernels.errors import ModelError
from ...kernels.inputs import parse_input
from ...kernels.network import Network
from ..errors import InputError, UsageError
from .output import progress

_MAX_JSON_BYTES = 64 << 20


def read_model(
    path: Path, inputs: Sequence[str], method: str = "forward", *, optimized: bool | None = None, default: bool = False
) -> Network:
    """A network, or the part of it that can be listed, by its file and the shapes of its inputs.

    Args:
        path: a model's file, or a list of launches that was decomposed before.
        inputs: what a model's method takes.
        method: which one.
        optimized: whether to take what the JIT's passes leave; ``None`` where nobody said so.
        default: what is taken then.

    Raises:
        UsageError: no input shape was given for a model file, or a list is of the other view than was asked for.
        KernelsError: the file cannot be read as what it claims to be.
    """
    says_its_own = says_its_inputs(path)
    if path.suffix == ".json" and not says_its_own:
        if method != "forward":
            raise InputError(f"{path}: a list of launches has no method {method!r:.80}; valid: forward")
        network = _network_from_json(path)
        if optimized not in (None, network.optimized):
            have = "as the JIT's passes leave them" if network.optimized else "as the model's file has them"
            raise UsageError(f"{path}: its launches are listed {have}; the other view is taken of the model's file alone")
        return network
    if not inputs and not says_its_own:
        refuse_other_kinds(path)
        raise UsageError(f"{path}: say the shape of its inputs, for instance --input 1x3x224x224")
    specs = [parse_input(text) for text in inputs]
    with progress(f"reading {path.name}"):
        return decompose(path, specs, method=method, optimized=default if optimized is None else optimized)


def read_measured(path: Path, network: Network) -> LayerTimes:
    """What ``trtexec --exportProfile`` measured of an engine's launches.

    Raises:
        UsageError: the network is no engine's.
        InputError, ModelError: the file cannot be read, is of another form, or of another engine.
    """
    if network.runtime != RUNTIME:
        raise UsageError(f"--measured {path}: its times are of an engine's layers; the model is none")
    try:
        with open(path, "rb", opener=_without_waiting) as stream:
            return read_times(stream, network, Account(Budget()))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except ModelError as error:
        raise type(error)(f"{path}: {error}") from error


def measured_text(times: LayerTimes) -> str:
    """What was measured of the launches, and of layers that launch nothing."""
    listed, others = sum(times.launches_ms), sum(times.others_ms.values())
    return f"measured by trtexec: {listed:.4g} ms of launches, {others:.4g} ms of {len(times.others_ms)} other layers"


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; of a named pipe, without waiting for somebody to write into it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _network_from_json(path: Path) -> Network:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_JSON_BYTES:
            raise InputError(f"{path}: expected a regular file of at most {_MAX_JSON_BYTES >> 20} MiB")
        return Network.from_json(json.loads(path.read_bytes()))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error})") from error
