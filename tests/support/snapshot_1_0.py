# SPDX-License-Identifier: Apache-2.0
"""Write the interfaces and stored formats of this release to ``tests/snapshots/1.0``.

    python -m jetdvfs.tests.support.snapshot_1_0 [FOLDER]

They are those of release 1.0. After it, a difference is a broken promise (docs/compatibility.md): do not write them again.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from jetdvfs.daemon.cli.config import template
from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.profiles.adapt.measurements import TABLES, MeasurementRows, Measurements
from jetdvfs.profiles.board import ChipRates
from jetdvfs.profiles.device import Device
from jetdvfs.tests.support import stable
from jetdvfs.tests.support.daemons.board_daemon import LOW, Daemon
from jetdvfs.tests.support.paths import DOCS
from jetdvfs.tests.support.profiles.small_bundle import make_bundle
from jetdvfs.tests.support.stable_board import answers, exchanges, stable_board, teach


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        interfaces = {
            "verbs": stable.verbs(),
            "exit-codes": stable.exit_codes(),
            "configuration": stable.configuration(made),
            "python": stable.python_names(),
            "c": stable.c_declarations(),
        }
        shutil.rmtree(folder / "profile", ignore_errors=True)
        make_bundle(folder / "profile", compact=True)
        with stable_board(made) as (board, daemon):
            interfaces["json"] = {
                command: stable.keys(answer) for command, answer in answers(board, daemon, folder / "profile").items()
            }
            calls = [json.dumps(one, separators=(",", ":")) for one in exchanges(daemon.socket)]
            _leave_state(daemon, folder / "state")
    for name, value in interfaces.items():
        (folder / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n")
    (folder / "calls.jsonl").write_text("\n".join(calls) + "\n")
    for name in ("jetdvfs.varlink", "admin.varlink"):
        shutil.copyfile(DOCS / name, folder / name)
    shutil.copyfile(stable.INTEGRATIONS / "c" / "jetdvfs.h", folder / "jetdvfs.h")
    (folder / "jetdvfsd.yaml").write_text(re.sub(r"^#(?=\w| {2})", "", template(), flags=re.MULTILINE))
    _record().save(folder / "record.npz")


def _leave_state(daemon: Daemon, folder: Path) -> None:
    """Copy the files of a daemon that dies with clocks held; it goes on afterwards."""
    with daemon.client() as client:
        teach(client)
        client.hold(configuration=LOW, reason="test")
        daemon.kill()
    shutil.rmtree(folder, ignore_errors=True)
    for path in (daemon.runtime / "baseline", daemon.runtime / "baseline.held", daemon.runtime / "held-in-boot"):
        target = folder / "runtime" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(path, target) if path.is_dir() else shutil.copyfile(path, target)
    shutil.copyfile(daemon.state / "learned.json", folder / "learned.json")
    daemon.start()
    daemon.client().close()


def _record() -> Measurements:
    """Measurements of one kernel and one network on a made device."""
    grid = FrequencyGrid((1_000_000, 2_000_000), (500_000_000, 1_000_000_000), (1_600_000_000,))
    device = Device("bench", grid, ChipRates({"float32": 10.0}, 16.0), ("ALL",), ())
    shape = (1, 4, 8, 8)
    relu = KernelInvocation("relu", "", (shape,), shape, "float32", {}, 256, 2048)
    tables: dict[str, Any] = {name: MeasurementRows.joined(()) for name in TABLES}
    tables |= {"kernel_ms": _rows(0.5), "kernel_mw": _rows(300.0), "network_ms": _rows(1.5), "idle_mw": _rows(4000.0)}
    return Measurements("bench", "", 45.0, ("ALL",), (relu,), (), (Network("two", (), (relu, relu)),), tables, device=device)


def _rows(value: float) -> MeasurementRows:
    """A value at the lowest and at the highest configuration."""
    none = np.zeros(2, np.int64)
    return MeasurementRows(none, none, np.array([0, 3]), np.array([value, value / 2]))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else stable.STORED)
