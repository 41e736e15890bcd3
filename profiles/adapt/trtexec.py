# SPDX-License-Identifier: Apache-2.0
"""Measurement of TensorRT engines by ``trtexec``, at the current clocks: whole inferences, and each layer.

Engines need ``--profilingVerbosity=detailed``. Inputs are random and stay on the GPU. Layers have their own run, since timing
slows inferences. Options and files follow TensorRT 8.2 and later (its samples' README).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from ...kernels.budget import Account, Budget
from ...kernels.decompose import decompose
from ...kernels.engine.program import read_times
from ...kernels.errors import KernelsError
from ...kernels.network import Network, TensorSpec
from ..errors import MeasurementError

PATIENCE_S = 120.0
"""Time beyond a run's inferences: loading a large engine takes most of a minute."""
TRTEXEC = Path("/usr/src/tensorrt/bin/trtexec")
"""Its place in JetPack."""

_OVER = "Timing trace has"  # printed after the inferences; reporting follows
_LAYERS_S = 0.5
_FAR_OFF = 50.0  # ratio of all layers to the inference beyond which one of them is in another unit
_LAST_LINES = 50


class Inferences(Struct, frozen=True):
    """Median inference time, and time since the inferences' end."""

    latency_ms: float
    over_s: float


class Trtexec:
    """``trtexec``, or a script of that name that runs it in a container.

    ``patience_s`` after its inferences a run is ended.
    """

    def __init__(self, program: Path = TRTEXEC, patience_s: float = PATIENCE_S) -> None:
        self._program, self._patience_s = program, patience_s

    def network(self, engine: Path, inputs: Sequence[TensorSpec]) -> Network:
        """Launches of an engine, named after its file.

        Raises:
            MeasurementError: trtexec cannot run the engine.
            KernelsError: no layer details in the engine, or a layer without a rule.
        """
        if not engine.is_file():
            raise MeasurementError(f"{engine}: no such engine; build it: trtexec --onnx=... --saveEngine={engine.name} "
                                   "--profilingVerbosity=detailed")  # fmt: skip
        with self._written("--exportLayerInfo", engine, inputs, ("--duration=0", "--warmUp=0"), 0.0) as (layers, _):
            try:
                network = decompose(layers, [], name=engine.stem)
            except KernelsError as error:
                raise type(error)(f"{engine}: {error}") from error
        network.check_whole()
        return network

    def inferences(self, engine: Path, inputs: Sequence[TensorSpec], seconds: float) -> Inferences:
        """Run inferences back to back. Raises MeasurementError if trtexec fails or hangs."""
        # Older releases take only a whole number.
        run = f"--duration={math.ceil(seconds)}", "--noDataTransfers"
        with self._written("--exportTimes", engine, inputs, run, seconds) as (times, over_s):
            return Inferences(_median_ms(times), over_s)

    def layers_ms(self, engine: Path, inputs: Sequence[TensorSpec], network: Network, latency_ms: float) -> tuple[float, ...]:
        """Mean time of each launch in ms; raises MeasurementError if it disagrees with the latency of an inference."""
        run = f"--duration={math.ceil(_LAYERS_S)}", "--noDataTransfers", "--separateProfileRun"
        with self._written("--exportProfile", engine, inputs, run, _LAYERS_S) as (profile, _):
            try:
                with open(profile, "rb") as stream:
                    found = read_times(stream, network, Account(Budget())).launches_ms
            except (KernelsError, OSError) as error:
                raise MeasurementError(f"meter: {self._program.name} --exportProfile of {engine.name}: {error}") from error
        if not latency_ms / _FAR_OFF <= sum(found) <= latency_ms * _FAR_OFF:
            raise MeasurementError(
                f"meter: {engine.name}: its layers take {sum(found):.4g} ms together, an inference {latency_ms:.4g} ms; "
                f"one of the two is not in ms, or is of another engine"
            )
        return found

    @contextlib.contextmanager
    def _written(
        self, option: str, engine: Path, inputs: Sequence[TensorSpec], options: Sequence[str], seconds: float
    ) -> Iterator[tuple[Path, float]]:
        with tempfile.TemporaryDirectory(prefix="jetdvfs-trtexec-") as folder:
            path = Path(folder) / "written.json"
            over_s = self._run(engine, inputs, [*options, "--iterations=1", f"{option}={path}"], seconds)
            if not path.is_file() or not path.stat().st_size:
                where = path.parent.parent
                raise MeasurementError(
                    f"meter: {self._program.name} wrote nothing for {option}; is {where} full, or not seen by it?"
                )
            yield path, over_s

    def _run(self, engine: Path, inputs: Sequence[TensorSpec], options: Sequence[str], seconds: float) -> float:
        shapes = [f"{spec.name}:{'x'.join(map(str, spec.shape))}" for spec in inputs if spec.name]
        # A bare name is searched in PATH unless such a file exists here.
        program = self._program.absolute() if self._program.exists() else self._program
        command = [str(program), f"--loadEngine={engine}", *options]
        command += [f"--shapes={','.join(shapes)}"] if shapes else []
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise MeasurementError(
                f"meter: {self._program} cannot be started: {error.strerror or error}; JetPack has it as {TRTEXEC}"
            ) from error
        said: deque[str] = deque(maxlen=_LAST_LINES)
        over: list[float] = []
        reader = threading.Thread(target=_listen, args=(process, said, over), daemon=True)
        reader.start()
        try:
            code = process.wait(seconds + self._patience_s)
        except subprocess.TimeoutExpired:
            limit = f"within {seconds + self._patience_s:g} s"
            raise MeasurementError(f"meter: {self._program.name} did not finish with {engine.name} {limit}") from None
        finally:
            ended = time.monotonic()
            with contextlib.suppress(ProcessLookupError):  # it, and the children of such a script
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reader.join()
        if code:
            how = f"signal {-code}" if code < 0 else f"code {code}"
            raise MeasurementError(f"meter: {self._program.name} ended with {how} at {engine.name}{_complaint(said)}")
        return ended - over[0] if over else 0.0


def _listen(process: subprocess.Popen[str], output: deque[str], over: list[float]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            output.append(line.strip())
            if _OVER in line:
                over.append(time.monotonic())


def _complaint(output: Sequence[str]) -> str:
    found = [line for line in output if "[E]" in line] or [line for line in output if line][-1:]
    return f": {found[0][-200:]}" if found else ""


def _median_ms(path: Path) -> float:
    try:
        made = json.loads(path.read_bytes())
        found = [float(one["latencyMs"]) for one in made]
        if not found or not all(math.isfinite(ms) and ms > 0 for ms in found):
            raise ValueError("no latencies above 0")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise MeasurementError(f"meter: trtexec --exportTimes: no list of inferences with latencyMs ({error!s:.80})") from error
    return statistics.median(found)
