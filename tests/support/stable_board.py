# SPDX-License-Identifier: Apache-2.0
"""A simulated board with its daemon, on which commands and calls of the stable interfaces are answered."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jetdvfs.daemon.wire.client import Client
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.verbs import answered

MODEL = REFERENCE / "squeezenet1_0.pt"
INPUT = ("--input", "1x3x224x224")
_TENSOR = {"shape": [1, 3, 224, 224], "dtype": "float32"}
_CLOCKS = {"cpu_khz": 1190400, "gpu_hz": 675750000, "emc_hz": 1600000000}
#: Calls of an application, in order. ``$network`` and ``$lease`` are those of earlier replies.
CALLS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("org.varlink.service.GetInfo", {}),
    ("io.jetdvfs.LoadModel", {"inputs": [_TENSOR], "name": "squeezenet", "accept_boundary": []}),
    ("io.jetdvfs.Predict", {"network": "$network", "fps": 30.0}),
    ("io.jetdvfs.Predict", {"network": "$network", "configuration": _CLOCKS, "method": "sum", "execution": "graph"}),
    ("io.jetdvfs.Plan", {"network": "$network", "target": "latency_ms=20", "fps": 30.0, "confidence": 0.9}),
    ("io.jetdvfs.Plan", {"network": "$network", "target": "latency_ms=0.001"}),
    ("io.jetdvfs.Preview", {"configuration_text": "max"}),
    ("io.jetdvfs.Hold", {"network": "$network", "target": "latency_ms=20", "fps": 30.0, "reason": "test", "app": "camera"}),
    ("io.jetdvfs.Report", {"lease": "$lease", "latency_ms": [12.5, 12.25, 12.75, 12.5]}),
    ("io.jetdvfs.Change", {"lease": "$lease", "target": "latency_ms=30"}),
    ("io.jetdvfs.Status", {}),
    ("io.jetdvfs.Log", {"lease": "$lease"}),
    ("io.jetdvfs.Release", {"lease": "$lease"}),
    ("io.jetdvfs.Hold", {"configuration": _CLOCKS, "reason": "test"}),
    ("io.jetdvfs.Release", {"lease": "$lease"}),
    ("io.jetdvfs.Hold", {"configuration_text": "max", "app": "camera"}),
    ("io.jetdvfs.Release", {"lease": "$lease"}),
    ("io.jetdvfs.Learned", {}),
    ("io.jetdvfs.Forget", {"name": "squeezenet"}),
    ("io.jetdvfs.Unload", {"network": "$network"}),
    ("io.jetdvfs.Hold", {"network": "$network", "target": "min-energy"}),
    ("io.jetdvfs.Hold", {}),
    ("io.jetdvfs.Nothing", {}),
)


@contextmanager
def stable_board(folder: Path) -> Iterator[tuple[Board, Daemon]]:
    twin = simulated_board("agx-xavier")
    with serve(twin, folder / "board", "folder"):
        board = Board(twin, folder / "board")
        with Daemon(board, folder, "--profile", "agx-xavier-sim") as daemon:
            with daemon.client() as client:
                members = ("profile", "rails_mw", "energy_mj", "temperatures_mc")
                assert eventually(lambda: all(map(client.status().get, members)))
            yield board, daemon


def teach(client: Client) -> None:
    """Report frames of a lease until the daemon remembers them."""
    network = client.load(MODEL, ["1x3x224x224"])
    with client.hold(network, "latency_ms=20", app="camera") as lease:
        plan = lease.plan
        assert plan is not None
        latency_ms = 1.1 * plan["choice"]["latency_ms"]
        for _ in range(5):
            time.sleep(0.3)  # a frame belongs to the clocks that were in force all along
            client.call("Report", {"lease": lease.id, "latency_ms": [latency_ms] * 8})
    assert eventually(client.learned)


def answers(board: Board, daemon: Daemon, bundle: Path) -> dict[str, Any]:
    """JSON of the main verbs, with programs that the daemon has learned."""
    connected, rooted = ("--socket", daemon.socket), ("--root", board.root)
    profile, target = ("--profile", "agx-xavier-sim"), ("--target", "latency_ms=20", "--fps", "30")
    with daemon.client() as client:
        teach(client)
        client.hold(configuration="max", reason="test", app="camera")
        commands: tuple[tuple[object, ...], ...] = (
            ("status", *connected),
            ("status", "--why", *connected),
            ("status", "--learned", *connected),
            ("status", "--prometheus", *connected),
            ("board", *rooted),
            ("board", "list"),
            ("board", "modes", *rooted),
            ("config", "check", *rooted),
            ("config", "show", *rooted),
            ("config", "init", "--dry-run"),
            ("decompose", MODEL, *INPUT),
            ("predict", MODEL, *INPUT, *profile, "--config", "max"),
            ("plan", MODEL, *INPUT, *profile, *target),
            ("profile", "list"),
            ("profile", "show", bundle),
            ("doctor", *rooted, *connected),
            ("doctor", "--bug-report", "--dry-run", *rooted, *connected),
        )
        found = {" ".join(str(word) for word in command[: 1 + _words(command)]): answer(*command) for command in commands}
        (entry, *_) = answered("log", *connected, "--json").stdout.splitlines()
        measured = answered("measure", "--json", *rooted, "--", "sleep", "0.4").stderr
        return {**found, "log": json.loads(entry), "measure": json.loads(measured)}


def _words(command: tuple[object, ...]) -> int:
    """Number of words after the verb that tell its JSON from another's."""
    own = [str(word) for word in command[1:3]]
    return next((n for n, word in enumerate(own) if word.startswith("/") or word in ("--root", "--socket", "--dry-run")), 2)


def answer(*command: object) -> Any:
    done = answered(*command, "--json")
    assert done.stdout, (command, done.stderr)
    return json.loads(done.stdout)


def exchanges(path: Path, calls: tuple[tuple[str, Mapping[str, Any]], ...] = CALLS) -> Iterator[dict[str, Any]]:
    """Make the calls on one connection; each with its reply."""
    known: dict[str, str] = {}
    with socket.socket(socket.AF_UNIX) as connection, MODEL.open("rb") as model:
        connection.settimeout(60)
        connection.connect(str(path))
        for method, parameters in calls:
            sent = {name: known.get(str(value), value) for name, value in parameters.items()}
            message = json.dumps({"method": method, "parameters": sent}).encode() + b"\0"
            if method.endswith("LoadModel"):
                socket.send_fds(connection, [message], [model.fileno()])
            else:
                connection.sendall(message)
            received = b""
            while not received.endswith(b"\0"):
                part = connection.recv(1 << 16)
                assert part, f"{method}: hung up"
                received += part
            reply = json.loads(received[:-1])
            told = reply.get("parameters", {})
            if isinstance(told.get("network"), dict):
                known["$network"] = told["network"]["network"]
            if isinstance(told.get("lease"), str):
                known["$lease"] = told["lease"]
            yield {"method": method, "parameters": dict(parameters), "reply": reply}
