# SPDX-License-Identifier: Apache-2.0
"""Measuring TensorRT engines by ``trtexec``, for which a program stands in that writes the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.kernels.engine.program import RUNTIME
from jetdvfs.kernels.errors import ModelError
from jetdvfs.profiles.adapt.trtexec import Trtexec
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.tests.support.models.handmade_engine import account, profile, small
from jetdvfs.tests.support.paths import SHARED_DATA
from jetdvfs.tests.support.profiles.trtexec_stand_in import write_engine, write_program

LAYERS = json.loads(account(small(), "x", "y"))
PROFILE = json.loads(profile([layer["Name"] for layer in small()]))


@pytest.fixture(scope="module")
def trtexec(tmp_path_factory: pytest.TempPathFactory) -> Trtexec:
    return Trtexec(write_program(tmp_path_factory.mktemp("tensorrt")))


def engine(folder: Path, **about: Any) -> Path:
    return write_engine(folder / "small.engine", LAYERS, PROFILE, **about)


def test_an_engine_gives_its_launches_their_times_and_its_latency(trtexec: Trtexec, tmp_path: Path) -> None:
    path = engine(tmp_path)
    network = trtexec.network(path, ())
    assert (network.name, network.runtime) == ("small", RUNTIME)
    assert [launch.kind for launch in network.launches] == ["to", "conv2d_relu", "conv2d_add_relu", "max_pool2d"]
    ran = trtexec.inferences(path, (), 0.1)
    assert ran.latency_ms == 2.0 and 0 <= ran.over_s < 5
    assert trtexec.layers_ms(path, (), network, ran.latency_ms) == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_times_in_another_unit_are_refused(trtexec: Trtexec, tmp_path: Path) -> None:
    path = engine(tmp_path, latency_ms=2000.0)
    network = trtexec.network(path, ())
    with pytest.raises(MeasurementError, match="its layers take 1 ms together, an inference 2000 ms"):
        trtexec.layers_ms(path, (), network, trtexec.inferences(path, (), 0.1).latency_ms)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("dies", r"ended with code 1 at small.engine: .*out of memory"),
        ("hangs", "did not finish with small.engine within 0.6 s"),
        ("writes nothing", "wrote nothing for --exportTimes; is .* full"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(fault: str, said: str, tmp_path: Path) -> None:
    impatient = Trtexec(write_program(tmp_path), patience_s=0.5 if fault == "hangs" else 30.0)
    with pytest.raises(MeasurementError, match=said) as caught:
        impatient.inferences(engine(tmp_path, fault=fault), (), 0.1)
    assert "\n" not in str(caught.value)


def test_latencies_that_are_no_times_are_refused(trtexec: Trtexec, tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="no list of inferences with latencyMs"):
        trtexec.inferences(engine(tmp_path, latency_ms=-1.0), (), 0.1)


def test_no_trtexec_no_engine_and_an_engine_without_details_are_told(trtexec: Trtexec, tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="nowhere/trtexec cannot be started: No such file"):
        Trtexec(Path("/nowhere/trtexec")).network(engine(tmp_path), ())
    with pytest.raises(MeasurementError, match="no such engine; build it: trtexec"):
        trtexec.network(tmp_path / "none.engine", ())
    bare = write_engine(tmp_path / "bare.engine", {"Layers": ["a", "b"], "Bindings": ["x", "y"]}, PROFILE)
    with pytest.raises(ModelError, match="profilingVerbosity=detailed"):
        trtexec.network(bare, ())


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_files_of_a_real_trtexec_are_read(name: str, trtexec: Trtexec, tmp_path: Path) -> None:
    samples = SHARED_DATA / "tensorrt-layer-info"
    if not samples.is_dir():
        pytest.skip(f"no sample engines at {samples}")
    layers, times = (json.loads((samples / f"{name}_fp16.{what}.json").read_text()) for what in ("graph", "profile"))
    total_ms = sum(row.get("averageMs", 0.0) for row in times)
    path = write_engine(tmp_path / f"{name}.engine", layers, times, latency_ms=total_ms)
    network = trtexec.network(path, ())
    found = trtexec.layers_ms(path, (), network, trtexec.inferences(path, (), 0.1).latency_ms)
    assert len(found) == len(network.launches) and sum(found) == pytest.approx(total_ms, rel=0.05)
