# SPDX-License-Identifier: Apache-2.0
"""The server of the page, as a process of its own, and requests to it."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

REQUEST_S = 3.0
"""How long a request may take, made shorter for tests."""
_PROGRAM = f"""
import sys
from jetdvfs.daemon.cli import main
from jetdvfs.daemon.cli.web import server
server.REQUEST_S = {REQUEST_S}
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def served(daemon_socket: Path, *options: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server of the page: its port, and its process."""
    command = [sys.executable, "-c", _PROGRAM, "web", "--port", "0", "--json", "--socket", str(daemon_socket), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/") as process:
        try:
            assert process.stdout is not None
            yield int(json.loads(process.stdout.readline())["url"].rstrip("/").rpartition(":")[2]), process
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


def asked(port: int, path: str = "/", method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read().decode()
