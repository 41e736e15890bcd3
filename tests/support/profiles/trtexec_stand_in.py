# SPDX-License-Identifier: Apache-2.0
"""What stands in for ``trtexec`` in tests: it takes the same options and writes the same files.

An "engine" here is JSON: ``layers`` (what ``--exportLayerInfo`` writes), ``profile`` (what ``--exportProfile`` writes), and
``port``, a simulated board's application port where its inferences run, or else ``latency_ms``; ``fault`` is what goes wrong.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def write_program(folder: Path) -> Path:
    """A ``trtexec`` in a folder: a script, as one for a container would be."""
    program = folder / "trtexec"
    program.write_text(f'#!/bin/sh\n{sys.executable} -m jetdvfs.tests.support.profiles.trtexec_stand_in "$@"\n')
    program.chmod(0o755)
    return program


def write_engine(path: Path, layers: Any, profile: Any, **about: Any) -> Path:
    path.write_text(json.dumps({"layers": layers, "profile": profile, "latency_ms": 2.0, **about}))
    return path


def main(words: list[str]) -> int:
    options = dict(word.removeprefix("--").partition("=")[::2] for word in words)
    engine = json.loads(Path(options["loadEngine"]).read_text())
    fault = engine.get("fault", "")
    if fault == "hangs":
        time.sleep(60)
    if fault == "dies" and "exportLayerInfo" not in options:
        print("[11/22/2026-10:00:00] [E] Error[1]: [cudaDriverHelpers.cpp::operator()::29] out of memory\n&&&& FAILED")
        return 1
    print("[11/22/2026-10:00:00] [I] Starting inference", flush=True)
    latencies_ms = [engine["latency_ms"]] * 10
    if engine.get("port") and "exportTimes" in options:
        latencies_ms = _on_twin(engine, float(options["duration"]))
    print(f"[11/22/2026-10:00:03] [I] Timing trace has {len(latencies_ms)} queries over 3 s", flush=True)
    if fault != "writes nothing":
        _write(options, engine, latencies_ms)
    print("&&&& PASSED TensorRT.trtexec")
    return 0


def _write(options: dict[str, str], engine: dict[str, Any], latencies_ms: list[float]) -> None:
    if path := options.get("exportLayerInfo"):
        Path(path).write_text(json.dumps(engine["layers"]))
    if path := options.get("exportProfile"):
        Path(path).write_text(json.dumps(engine["profile"]))
    if path := options.get("exportTimes"):
        times = [{"startComputeMs": 0.0, "endComputeMs": ms, "computeMs": ms, "latencyMs": ms} for ms in latencies_ms]
        Path(path).write_text(json.dumps(times))


def _on_twin(engine: dict[str, Any], seconds: float) -> list[float]:
    from jetdvfs.kernels.network import Network
    from jetdvfs.profiles.adapt.application import Application

    with Application(engine["port"]) as application:
        loaded = application.load(Network.from_json(engine["network"]))
        return list(application.stream(loaded, seconds=seconds)["latencies_ms"])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
