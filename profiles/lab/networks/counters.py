# SPDX-License-Identifier: Apache-2.0
"""Counters of networks on a host GPU, by Nsight Compute (Jung et al., section 4.1)."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ....kernels.network import Network
from ...errors import MeasurementError, RecordError

_UNITS = frozenset(("byte", "cycle", "ns", "nsecond", "inst", ""))
_SUFFIXES = ("_bytes", "_cycles", "_ns", "_inst")
_NETWORK = "network"
_WORKER = "jetdvfs.profiles.lab.measure.meters.counted_run"
_MARK = "spin_kernel"  # which the worker launches after each network

#: Counters chosen by trees (Jung et al., table 2) that hardware counts, and memory traffic.
#: Counters by instrumented code (``sass`` in the name) take minutes a network.
COUNTED = (
    "dram__bytes_read.sum", "dram__bytes_write.sum", "fbpa__cycles_active.sum", "fbpa__dram_cycles_elapsed.sum",
    "gpu__time_duration.sum", "l1tex__t_set_accesses_pipe_lsu_mem_global_op_st.sum", "lts__cycles_in_region.sum",
    "lts__t_bytes.sum", "sm__cycles_active.sum", "sm__cycles_elapsed.sum", "smsp__inst_executed.sum",
    "smsp__inst_executed_op_shared_st_pred_off_all.sum", "smsp__inst_executed_pipe_adu.sum",
    "smsp__inst_executed_pipe_uniform.sum", "smsp__issue_inst0.sum", "smsp__mio2rf_writeback_active_pipe_lsu.sum",
    "smsp__pipe_fma_cycles_active.sum", "smsp__thread_inst_executed_pipe_fma_pred_on.sum", "sys__cycles_in_frame.sum",
)  # fmt: skip


_PATIENCE_S = 3600.0

Counted = Mapping[str, float]


def read_counters(path: Path, name: str = "") -> dict[str, Counted]:
    """Counters of each network of a table. Raises RecordError.

    The table is output of ``ncu --csv --page raw --print-units base`` for network ``name``, or has a row per launch, a column
    ``network`` and columns ending in a unit: ``_bytes``, ``_cycles``, ``_ns``, ``_inst``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RecordError(f"{path}: cannot read the counters ({reason})") from error
    return counters_of(text.splitlines(), name or path.stem, str(path))


def counters_of(lines: Iterable[str], name: str, where: str, in_turn: Sequence[str] = ()) -> dict[str, Counted]:
    """Counters of a table's lines, as :func:`read_counters`; each of the networks ``in_turn`` ends with a mark."""
    rows = [row for row in csv.reader(line for line in lines if not line.startswith("==")) if row]
    start = next((number for number, row in enumerate(rows) if "Kernel Name" in row or _NETWORK in row), None)
    if start is None:
        raise RecordError(
            f"{where}: no table of counters; valid: output of 'ncu --csv --page raw --print-units base', "
            f"or a table with a column {_NETWORK!r}"
        )
    header, rows = rows[start], rows[start + 1 :]
    if "Kernel Name" in header:
        units = dict(zip(header, rows[0] if rows else (), strict=False))
        kept = [at for at, column in enumerate(header) if column.endswith(".sum") and units.get(column) in _UNITS]
        names, rows = _of_networks(rows[1:], header.index("Kernel Name"), in_turn or (name,))
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


def _of_networks(rows: Sequence[list[str]], at: int, in_turn: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    names, kept, turn = [], [], 0
    for row in rows:
        if len(in_turn) > 1 and _MARK in row[at]:
            turn += 1
        elif turn < len(in_turn):
            names.append(in_turn[turn])
            kept.append(row)
    return names, kept


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
    """Counts launches of networks on this machine's GPU after a warm-up, at the present clocks.

    ``metrics`` are comma-separated names; empty for those of :data:`COUNTED` that the GPU has. Raises MeasurementError without
    ``program``, Nsight Compute.
    """

    def __init__(self, program: str = "ncu", metrics: str = "") -> None:
        found = shutil.which(program)
        if found is None:
            raise MeasurementError(f"{program}: Nsight Compute is not installed here; valid: a table that it made elsewhere")
        self._program, self._metrics = found, metrics

    def counters(self, models: Mapping[str, tuple[Path, Network]]) -> tuple[dict[str, Counted], dict[str, str]]:
        """Counters by network, and reasons of failures. Raises MeasurementError if all fail."""
        self._metrics = self._metrics or self._offered()
        asked = [
            {"name": name, "path": str(path), "inputs": [spec.to_json() for spec in network.inputs]}
            for name, (path, network) in models.items()
        ]
        with tempfile.TemporaryDirectory(prefix="jetdvfs-counters-") as scratch:
            told = Path(scratch) / "told.json"
            (Path(scratch) / "asked.json").write_text(json.dumps(asked))
            lines = self._run(
                "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--profile-from-start", "off",
                "--metrics", self._metrics, sys.executable, "-m", _WORKER, f"{scratch}/asked.json", str(told),
            )  # fmt: skip
            try:
                refused: dict[str, str] = json.loads(told.read_text())
            except (OSError, ValueError) as error:
                raise MeasurementError(f"{self._program}: its program did not end ({error})") from error
        try:
            ran = [name for name in models if name not in refused]
            return (counters_of(lines, ran[0], self._program, ran) if ran else {}), refused
        except RecordError as error:
            raise MeasurementError(str(error)) from error

    def _offered(self) -> str:
        known = {line.split()[0] for line in self._run("--query-metrics") if line[:1].isalpha()}
        offered = [name for name in COUNTED if name.rpartition(".")[0] in known]
        if not offered:
            raise MeasurementError(f"{self._program}: the GPU has none of the usual counters; valid: --metrics with its own")
        return ",".join(offered)

    def _run(self, *arguments: str) -> list[str]:
        try:
            done = subprocess.run((self._program, *arguments), capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MeasurementError(f"{self._program}: {error}") from error
        if done.returncode:
            said = [line for line in (*done.stdout.splitlines(), *done.stderr.splitlines()) if line.strip()]
            raise MeasurementError(f"{self._program}: code {done.returncode}{f': {said[-1]:.200}' if said else ''}")
        return done.stdout.splitlines()
