# SPDX-License-Identifier: Apache-2.0
"""Delays interrupts while libraries load, as some swallow them."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_INTERRUPT = signal.default_int_handler


@contextlib.contextmanager
def interrupted_afterwards() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not _INTERRUPT:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _INTERRUPT)
    if came:
        raise KeyboardInterrupt
