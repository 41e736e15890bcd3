# SPDX-License-Identifier: Apache-2.0
"""Counters of networks on a host GPU: read from Nsight Compute's tables, or counted by it (Jung et al., section 4.1).

Kept are sums in bytes, cycles, ns, instructions, or plain counts, added up over a network's launches; ratios say nothing that
these do not.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ....kernels.network import Network
from ...errors import MeasurementError, RecordError

_UNITS = frozenset(("byte", "cycle", "ns", "nsecond", "inst", ""))
_SUFFIXES = ("_bytes", "_cycles", "_ns", "_inst")
_NETWORK = "network"
_WORKER = "jetdvfs.profiles.lab.measure.meters.counted_run"
_PATIENCE_S = 3600.0

Counted = Mapping[str, float]


def read_counters(path: Path, name: str = "") -> dict[str, Counted]:
    """The counters of each network of a table.

    It is what ``ncu --csv --page raw --print-units base`` prints, of the network ``name``; or a table with a row for each
    launch, a column ``network`` and columns whose names end with their unit: ``_bytes``, ``_cycles``, ``_ns``, ``_inst``.

    Raises:
        RecordError: it cannot be read, is neither, has no counter, or a counter is no number.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RecordError(f"{path}: cannot read the counters ({reason})") from error
    return counters_of(text.splitlines(), name or path.stem, str(path))


def counters_of(lines: Iterable[str], name: str, where: str) -> dict[str, Counted]:
    """As :func:`read_counters`, of a table's lines; what stands before its header is passed over."""
    rows = [row for row in csv.reader(line for line in lines if not line.startswith("==")) if row]
    start = next((number for number, row in enumerate(rows) if "Kernel Name" in row or _NETWORK in row), None)
    if start is None:
        raise RecordError(
            f"{where}: no table of counters; valid: what 'ncu --csv --page raw --print-units base' prints, "
            f"or a table with a column {_NETWORK!r}"
        )
    header, rows = rows[start], rows[start + 1 :]
    if "Kernel Name" in header:
        units = dict(zip(header, rows[0] if rows else (), strict=False))
        kept = [at for at, column in enumerate(header) if column.endswith(".sum") and units.get(column) in _UNITS]
        names, rows = [name] * len(rows[1:]), rows[1:]
    else:
        kept = [at for at, column in enumerate(header) if column.endswith(_SUFFIXES)]
        names = [row[header.index(_NETWORK)] for row in rows]
    if not kept or not rows:
        raise RecordError(f"{where}: {'no launches' if kept else 'no counter among its columns'}")
    found: dict[str, dict[str, float]] = {}
    for number, (network, row) in enumerate(zip(names, rows, strict=True)):
        own = found.setdefault(network, {})
        for at in kept:
            own[header[at]] = own.get(header[at], 0.0) + _number(row, at, f"{where}: launch {number}, {header[at]}")
    return {network: dict(own) for network, own in found.items()}


def _number(row: Sequence[str], at: int, where: str) -> float:
    text = row[at].replace(",", "") if at < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise RecordError(f"{where}: {text or 'nothing'!r} is no count")
    return value


class NsightCompute:
    """Counts what a network's launches do on this machine's GPU, after it has run to warm up.

    The GPU's clocks stay as they are, while Nsight Compute by itself locks them to their base: times counted are those of the
    clocks that the GPU runs at, and nobody else's are changed.

    Args:
        program: Nsight Compute's command.
        metrics: which, as its ``--metrics`` takes them; those of its full set for none.

    Raises:
        MeasurementError: there is no such program.
    """

    def __init__(self, program: str = "ncu", metrics: str = "") -> None:
        found = shutil.which(program)
        if found is None:
            raise MeasurementError(f"{program}: Nsight Compute is not installed here; valid: a table that it made elsewhere")
        self._program = found
        self._metrics = ("--metrics", metrics) if metrics else ("--set", "full")

    def counters(self, network: Network, path: Path) -> Counted:
        """Of a network whose file this is.

        Raises:
            MeasurementError: it could not be counted.
        """
        shapes = [f"{'x'.join(map(str, spec.shape))}:{spec.dtype}" for spec in network.inputs]
        command = [
            self._program, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
            "--profile-from-start", "off", *self._metrics, sys.executable, "-m", _WORKER, str(path), *shapes,
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MeasurementError(f"{self._program}: {error}") from error
        if done.returncode:
            said = [line for line in (*done.stdout.splitlines(), *done.stderr.splitlines()) if line.strip()]
            raise MeasurementError(f"{self._program}: code {done.returncode}{f': {said[-1]:.200}' if said else ''}")
        try:
            return counters_of(done.stdout.splitlines(), network.name, self._program)[network.name]
        except RecordError as error:
            raise MeasurementError(str(error)) from error
