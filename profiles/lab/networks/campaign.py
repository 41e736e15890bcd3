# SPDX-License-Identifier: Apache-2.0
"""Measure random networks one by one, with resumption."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ....kernels.errors import KernelsError
from ....kernels.graph import graph_of
from ....kernels.network import Network
from ...adapt.torch_process import TorchProcess
from ...board import BoardDescription
from ...errors import MeasurementError, ProfilesError, RecordError
from ...twin.silicon.silicon import Silicon
from ..measure.meters.cpu import processor
from ..measure.meters.network_worker import REFERENCES
from ..measure.meters.rapl import Rapl
from ..measure.meters.simulated import TwinMeter
from .counters import NsightCompute
from .exported_networks import Exports
from .families import FAMILIES
from .record import (
    DEVICE_FEATURES,
    GIB,
    MeasuredNetwork,
    NetworkRecorder,
    RecordContents,
    RecordRow,
    add_counted,
    device_features,
    read_record,
)

Progress = Callable[[int, int, str], None]
"""Called with networks done, networks in all, and a line of text."""

MOST_GFLOP, MOST_MIB = 40.0, 1024.0
"""Limits: larger networks would take minutes, or the machine's memory."""
_TIMINGS, _NETWORK_S = 20, 0.4  # of a network, at most
_REFERENCES = 400  # timings: some seconds' worth
_COUNTED_TOGETHER = 25  # networks of one run of Nsight Compute, which loads PyTorch anew
_WORKER = "jetdvfs.profiles.lab.measure.meters.network_worker"


class NetworkMeter(Protocol):
    @property
    def about(self) -> RecordContents: ...

    def rows(self, network: Network, path: Path) -> Sequence[RecordRow]:
        """Rows of one network, given its file. Raises MeasurementError."""
        ...


class ProcessorMeter:
    """This machine's processor: latency, scaled to ``speed``, and memory growth of a process over its first inferences."""

    def __init__(self, speed: Mapping[str, float] | None = None) -> None:
        if not speed:
            # By another process: in one that has worked, there is free memory that networks would take first.
            with _process() as process:
                rates = processor(process, Rapl())
                memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
                figures = device_features(rates.chip, [rates.grid.top], memory_gib)[0]
                taken = process.ask({"do": "references", "timings": _REFERENCES})["ms"]
            device = dict(zip(DEVICE_FEATURES, map(float, figures), strict=True))
            speed = {**device, **{f"{name}_ms": value for name, value in taken.items()}}
        self._process = _process()
        self._speed = speed
        told = self._process.about
        self.about = RecordContents(
            f"this machine's processor ({told['device_name']}), PyTorch {told['torch']}, one thread",
            False,
            ("latency_ms", "peak_mib"),
            "latency of a process that keeps its memory, at the speed of the references; memory without code of libraries",
            speed=speed,
        )

    def rows(self, network: Network, path: Path) -> Sequence[RecordRow]:
        request = {
            "do": "fresh",
            "path": str(path),
            "inputs": [spec.to_json() for spec in network.inputs],
            "timings": _TIMINGS,
            "seconds": _NETWORK_S,
            "references_ms": {name: self._speed[f"{name}_ms"] for name in REFERENCES},
        }
        try:
            found = self._process.ask(request)
        except MeasurementError:
            self.close()
            self._process = _process()
            raise
        device = tuple(self._speed[name] for name in DEVICE_FEATURES)
        return [RecordRow("cpu", device, {"latency_ms": float(found["ms"]), "peak_mib": float(found["peak_mib"])})]

    def close(self) -> None:
        self._process.close()


def _process() -> TorchProcess:
    return TorchProcess(threads=1, worker=_WORKER)


class BoardMeter:
    """Simulated boards at random configurations: latency, and energy of the relevant rails."""

    def __init__(self, boards: Sequence[tuple[BoardDescription, int]], configurations: int, seed: int = 0) -> None:
        self._boards, self._count, self._seed = boards, configurations, seed
        self._silicons = [Silicon(node, board) for board, node in boards]
        names = ", ".join(f"{board.name} {node}" for board, node in boards)
        self.about = RecordContents(
            f"simulated boards {names}, {configurations} configurations", True, ("latency_ms", "energy_mj")
        )

    def rows(self, network: Network, path: Path) -> Sequence[RecordRow]:
        rows = []
        for (board, node), silicon in zip(self._boards, self._silicons, strict=True):
            random = np.random.default_rng([self._seed, node, *network.name.encode()])
            grid = board.grid
            chosen = random.choice(grid.size, min(self._count, grid.size), replace=False)
            configurations = [grid.at(one) for one in chosen]
            meter = TwinMeter(silicon, int(random.integers(1 << 31)))
            latency_ms = meter.network_latency_ms(network, configurations)
            rails = meter.network_rails_mw(network, configurations)
            energy_mj = latency_ms * sum(rails[rail] for rail in board.energy_rails) / 1e3
            figures = device_features(board.chip, configurations, board.chip.dram_gib)
            for device, latency, energy in zip(figures, latency_ms, energy_mj, strict=True):
                values = {"latency_ms": float(latency), "energy_mj": float(energy)}
                rows.append(RecordRow(f"{board.name} {node}", tuple(map(float, device)), values))
        return rows


def measure_networks(
    folder: Path,
    meter: NetworkMeter,
    count: int,
    families: Sequence[str] = tuple(FAMILIES),
    progress: Progress = lambda done, total, text: None,
    now: Callable[[], float] = time.monotonic,
    first: int = 0,
    processes: int = 1,
) -> NetworkRecorder:
    """Record ``count`` networks in all, families in turn.

    Args:
        first: number of each family's first network.
        processes: above 1, these prepare networks during measurements.

    Raises:
        RecordError: the folder holds another record.
        MeasurementError: no PyTorch, or no such family.
    """
    strange = [name for name in families if name not in FAMILIES]
    if strange or not families:
        raise MeasurementError(f"families {', '.join(strange) or 'none'}: valid: {', '.join(FAMILIES)}")
    recorder = NetworkRecorder(folder, meter.about)
    names = [(families[number % len(families)], first + number // len(families)) for number in range(count)]
    waiting = [(family, number) for family, number in names if f"{family}-{number}" not in recorder.done]
    began = now()
    with tempfile.TemporaryDirectory(prefix="jetdvfs-networks-") as scratch, Exports(Path(scratch), processes) as exports:
        for position, made in enumerate(exports.each(waiting)):
            left_s = (now() - began) / max(position, 1) * (len(waiting) - position)
            progress(len(names) - len(waiting) + position, count, f"{made.name}, {_duration(left_s)} left")
            try:
                network = made.network()
                _check_size(network)
                recorder.add(MeasuredNetwork(made.name, made.family, network, tuple(meter.rows(network, made.path))))
            except (MeasurementError, KernelsError, ProfilesError) as error:
                recorder.leave_out(made.name, " ".join(str(error).replace(f"{made.path}: ", "").split()))
    progress(count, count, "done")
    return recorder


def measure_again(
    folder: Path, meter: NetworkMeter, count: int, progress: Progress = lambda done, total, text: None
) -> dict[str, NDArray[np.float64]]:
    """Repeat ``count`` networks of a record; return relative differences by metric, ``(rows,)``.

    Raises RecordError without a record, MeasurementError.
    """
    networks = read_record(folder).networks
    if not networks:
        raise RecordError(f"{folder}: holds no network that could be measured again")
    chosen = np.random.default_rng(0).permutation(len(networks))[:count]
    found: dict[str, list[float]] = {metric: [] for metric in meter.about.metrics}
    with tempfile.TemporaryDirectory(prefix="jetdvfs-networks-") as scratch, Exports(Path(scratch)) as exports:
        some = [networks[number] for number in chosen]
        for position, made in enumerate(exports.each((one.family, _number(one)) for one in some)):
            progress(position, len(chosen), made.name)
            for now, before in zip(meter.rows(made.network(), made.path), some[position].rows, strict=True):
                for metric, own in found.items():
                    own.append(now.values[metric] / before.values[metric] - 1)
    progress(len(chosen), len(chosen), "done")
    return {metric: np.array(own) for metric, own in found.items()}


def _number(network: MeasuredNetwork) -> int:
    return int(network.name.rpartition("-")[2])


def count_networks(
    folder: Path,
    counter: NsightCompute,
    progress: Progress = lambda done, total, text: None,
    most: int | None = None,
    processes: int = 1,
) -> dict[str, str]:
    """Add a host GPU's counters to networks; return failures with reasons. Raises RecordError."""
    failed: dict[str, str] = {}
    waiting = [one for one in read_record(folder).networks if not one.counters][:most]
    done = 0
    with tempfile.TemporaryDirectory(prefix="jetdvfs-networks-") as scratch, Exports(Path(scratch), processes) as exports:
        for some in _in_parts(waiting, _COUNTED_TOGETHER):
            progress(done, len(waiting), some[0].name)
            files: dict[str, tuple[Path, Network]] = {}
            for made in exports.each((one.family, _number(one)) for one in some):
                try:
                    network = made.network()
                    files[made.name] = made.path.rename(made.path.with_suffix(".counted.pt")), network
                except (MeasurementError, KernelsError) as error:
                    failed[made.name] = str(error)
            try:
                found, refused = counter.counters(files)
            except MeasurementError as error:
                found, refused = {}, dict.fromkeys(files, str(error))
            failed |= refused
            for name, own in found.items():
                add_counted(folder, name, own)
            for path, _ in files.values():
                path.unlink()
            done += len(some)
    progress(len(waiting), len(waiting), "done")
    return failed


def _in_parts(networks: Sequence[MeasuredNetwork], length: int) -> Iterator[Sequence[MeasuredNetwork]]:
    for start in range(0, len(networks), length):
        yield networks[start : start + length]


def _check_size(network: Network) -> None:
    graph = graph_of(network)
    gflop, mib = graph.globals["flops_total"] / 1e9, graph.memory.total_bytes / (1 << 20)
    if gflop > MOST_GFLOP or mib > MOST_MIB:
        raise MeasurementError(f"{gflop:.3g} GFLOP and {mib:.3g} MiB; at most {MOST_GFLOP:g} and {MOST_MIB:g} are measured")


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min" if minutes else f"{seconds:.0f} s"
