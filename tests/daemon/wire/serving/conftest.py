# SPDX-License-Identifier: Apache-2.0
"""The server around a service that says what it was told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.daemon.wire.serving.server import ServerLimits
from jetdvfs.tests.support.daemons.echo import Echo
from jetdvfs.tests.support.daemons.served import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served[Echo]]:
    server = Served(tmp_path / "s", Echo(), ServerLimits(connections=10, message_s=0.4, reply_s=0.4))
    yield server
    server.stop()
