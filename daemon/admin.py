# SPDX-License-Identifier: Apache-2.0
"""What root alone may ask, on a socket of its own: the configuration read again, the board given back."""

from __future__ import annotations

import logging
from typing import Any

from .api import Context
from .descriptors.attached import Attached
from .errors import UsageError
from .system.journal import TROUBLE, fields
from .wire.calls import ADMIN
from .wire.serving.session import Session

log = logging.getLogger(__name__)


class AdminApi:
    """``io.jetdvfs.admin``: what only root may ask."""

    def __init__(self, context: Context) -> None:
        self.interface = ADMIN
        self._context = context

    async def call(
        self, session: Session, method: str, parameters: dict[str, Any], attached: Attached | None
    ) -> dict[str, Any]:
        if attached is not None:
            raise UsageError(f"{method}: takes no descriptor, and one came with the call")
        if method == "Reload":
            return {"warnings": await self.reload()}
        held, report = await self._context.board.give_back(by=f"uid {session.peer.uid} (restore, pid {session.peer.pid})")
        return {
            "leases": held,
            "restored": [f"{write.path} = {write.value}" for write in report.restored],
            "left": list(report.left),
            "failed": list(report.failed),
        }

    async def reload(self) -> list[str]:
        """Take over the configuration as its file has it now, and return what there is to say about it.

        Raises:
            UsageError: the file is wrong; the configuration before stays in force.
            HardwareBusy: the board does not answer in time; the configuration counts all the same.
        """
        try:
            config = self._context.config_file.reload()
        except UsageError as error:
            log.error("the configuration was not read again: %s", error, extra=fields(TROUBLE))
            raise
        missed = await self._context.board.reconfigure(config)
        log.info("the configuration was read again")
        for warning in config.warnings:
            log.warning("%s", warning)
        return [*config.warnings, *missed]

    def closed(self, session: Session) -> None:
        """Nothing here belongs to a connection."""
