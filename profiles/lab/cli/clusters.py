# SPDX-License-Identifier: Apache-2.0
"""Dask clusters that a command line names: processes of this machine, or workers elsewhere."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from ....daemon.errors import InputError, UsageError
from ....kernels.text import needing

_MOST = 64
_PATIENCE_S = 10


@contextlib.contextmanager
def cluster(option: str, text: str) -> Iterator[Any]:
    """A ``distributed.Client`` of as many processes here as ``text`` says, or of the cluster whose scheduler's address it is.

    Raises:
        UsageError: it is a number that is none of processes.
        InputError: Dask is not installed, or nobody answers there.
    """
    if text.isdigit() and not 0 < int(text) <= _MOST:
        raise UsageError(f"{option} {text}: expected 1 to {_MOST}, or a scheduler's address")
    with needing(option, "tune", InputError):
        from distributed import Client, LocalCluster
    with contextlib.ExitStack() as stack:
        try:
            address = text
            if text.isdigit():
                options = {"n_workers": int(text), "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
                address = stack.enter_context(LocalCluster(**options, silence_logs=logging.CRITICAL))
            client = stack.enter_context(Client(address, timeout=_PATIENCE_S))
        except (OSError, ValueError) as error:
            raise InputError(f"{option} {text}: no scheduler of a Dask cluster answers there ({error!s:.100})") from error
        yield client
