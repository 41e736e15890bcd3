# SPDX-License-Identifier: Apache-2.0
"""The daemon with one thing broken on purpose, named in ``JETDVFS_SOAK_BREAK``, for tests of the harness."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from jetdvfs.daemon import service
from jetdvfs.daemon.api import Api
from jetdvfs.daemon.hardware.baseline import RestoreReport
from jetdvfs.daemon.hardware.hardware import Hardware


def _break(what: str) -> None:
    """Replace one method by one that does it wrong."""
    if what == "restores nothing":
        _put(Hardware, "restore", lambda self, *_, **__: RestoreReport())
    elif what == "is slow":
        _wrap(lambda: time.sleep(0.3))
    elif what == "raises":
        _wrap(lambda: 1 // 0)
    elif what == "keeps descriptors":
        _wrap(lambda: [os.dup(0) for _ in range(20)])
    elif what == "keeps memory":
        kept: list[bytes] = []
        _wrap(lambda: kept.append(os.urandom(8 << 20)))
    elif what == "exits":
        _wrap(lambda: os._exit(7))
    elif what == "never answers":
        _wrap_async()
    elif what == "answers otherwise":
        _wrap_answer()
    elif what:
        raise AssertionError(what)


def _put(owner: type, name: str, function: Any) -> None:
    setattr(owner, name, function)


def _wrap(wrong: Any) -> None:
    call = Api.call

    async def broken(self: Api, session: Any, method: str, *rest: Any) -> Any:
        if method in ("Hold", "Plan"):
            wrong()
        return await call(self, session, method, *rest)

    _put(Api, "call", broken)


def _wrap_async() -> None:
    call = Api.call

    async def broken(self: Api, session: Any, method: str, *rest: Any) -> Any:
        if method == "Hold":
            await asyncio.sleep(3600)
        return await call(self, session, method, *rest)

    _put(Api, "call", broken)


def _wrap_answer() -> None:
    call = Api.call

    async def broken(self: Api, session: Any, method: str, *rest: Any) -> Any:
        answer: Any = await call(self, session, method, *rest)
        return {**answer, "surprise": 1} if method == "Hold" else answer

    _put(Api, "call", broken)


if __name__ == "__main__":
    _break(os.environ.get("JETDVFS_SOAK_BREAK", ""))
    sys.exit(service.main())
