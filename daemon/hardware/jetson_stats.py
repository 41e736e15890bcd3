# SPDX-License-Identifier: Apache-2.0
"""Optional data from the jetson-stats service, whose client is imported only if its socket exists.

The client knows the module's name, which the device tree lacks, and lets its group's members change the power mode.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...profiles.board import PowerMode
from ..errors import HardwareHangs, HardwareRefused
from .bounded_calls import BoundedCalls
from .nvpmodel import ModeSwitch

log = logging.getLogger(__name__)
SOCKET = Path("/run/jtop.sock")
_CONNECT_S = 5.0
_SWITCH_S = 30.0
_LOOK_S = 0.1


class NvpmodelClient(Protocol):
    """The client's view of nvpmodel. The service finds a mode's place by its name, and its range by their number."""

    @property
    def name(self) -> str: ...

    @property
    def models(self) -> Sequence[str]: ...

    @property
    def status(self) -> Sequence[bool]:
        """By place: True if a mode needs no reboot."""
        ...

    def set_nvpmodel_id(self, nvpmodel_id: int, force: bool = False) -> None: ...


class JtopClient(Protocol):
    @property
    def board(self) -> Mapping[str, Any]: ...

    @property
    def nvpmodel(self) -> NvpmodelClient | None: ...

    def close(self) -> None: ...


class JetsonStats:
    def __init__(self, client: JtopClient, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._sleep = sleep
        self.module = str(client.board.get("hardware", {}).get("Module", ""))

    def close(self) -> None:
        self._client.close()

    def switch(self, mode: PowerMode, masks: Sequence[str] = ()) -> ModeSwitch:
        """Request a mode from the service, unless it knows that the mode needs a reboot; raises HardwareRefused.

        The service knows one of the differing unit ``masks``, and gives no reason. It takes identifiers up to the number of
        modes only.
        """
        modes = self._client.nvpmodel
        if modes is None:
            raise HardwareRefused("jetson-stats: the service has no nvpmodel")
        names = list(modes.models)
        if mode.name not in names or mode.id >= len(names):
            raise HardwareRefused(f"jetson-stats: the service cannot be asked for mode {mode.id} {mode.name}")
        free = list(modes.status)
        place = names.index(mode.name)
        if modes.name != mode.name and place < len(free) and not free[place]:
            return ModeSwitch(mode.name, modes.name, True, "jetson-stats: this mode needs a reboot")
        modes.set_nvpmodel_id(mode.id, force=False)
        for _ in range(round(_SWITCH_S / _LOOK_S)):
            if modes.name == mode.name:
                break
            self._sleep(_LOOK_S)
        refused = modes.name != mode.name and bool(masks)
        return ModeSwitch(mode.name, modes.name, refused, "asked of the jetson-stats service")


def _open_client() -> JtopClient | None:
    try:
        from jtop import JtopException, jtop
    except ImportError:
        return None
    client = jtop()
    try:
        client.start()
    except (JtopException, OSError) as error:
        log.info("jetson-stats: %s", " ".join(str(error).split()))
        return None
    opened: JtopClient = client
    return opened


@contextlib.contextmanager
def connect(
    open_client: Callable[[], JtopClient | None] = _open_client, socket: Path = SOCKET, longest_s: float = _CONNECT_S
) -> Iterator[JetsonStats | None]:
    def reach() -> JetsonStats | None:
        client = open_client()
        return None if client is None else JetsonStats(client)

    with contextlib.ExitStack() as stack:
        stats = None
        if socket.exists():
            patience = BoundedCalls(longest_s)
            stack.callback(patience.end)
            try:
                stats = patience.call(str(socket), "connecting to it", reach)
            except HardwareHangs as hang:
                log.info("jetson-stats: %s", hang)
        if stats is not None:
            stack.callback(stats.close)
        yield stats
