# SPDX-License-Identifier: Apache-2.0
"""Tables of whole networks on real boards, as records."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.compare.real.whole import agx_orin_layers
from jetdvfs.profiles.lab.networks.record import read_record


def test_a_swept_network_has_a_row_for_each_board_and_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "profiling.csv").write_text(
        "Throughput,Energy,Latency,Batch Size,Frequency,Directory\n"
        "20,0.5,0.04,1,1109250000,NX\n25,0.9,0.07,2,1109250000,NX\n2,2.5,0.9,1,153600000,Nano\n9,9,9,32,1109250000,NX\n"
    )
    asked = ["networks", "measure", str(tmp_path / "record"), "--published", "gpu-clock-sweeps"]
    assert main([*asked, "--json", "--data", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["measured"] == 2
    one, two = read_record(tmp_path / "record").networks
    assert (one.graph.batch, two.graph.batch) == (1, 2)
    assert [(row.board, row.values) for row in one.rows] == [
        ("xavier-nx 0", {"latency_ms": 40.0, "energy_mj": 500.0}), ("nano 0", {"latency_ms": 900.0, "energy_mj": 2500.0}),
    ]  # fmt: skip
    assert one.rows[0].device[1] == pytest.approx(2 * 384 * 1.10925)  # GFLOP/s of its lanes at that clock
    assert main(asked) == 2


@pytest.mark.torch
def test_a_network_is_the_sum_of_its_layers_and_of_several_runs_the_median(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="makes the networks")
    from jetdvfs.tests.support.models.oracle import torchvision

    torchvision()  # as it loads beside this PyTorch
    lines = ["calib_dir,model,batch,precision,thermal_profile,date,lat_mean_ms"]
    for date, second in (("1", 3.0), ("2", 4.0), ("3", 9.0)):
        lines += [f"orin,squeezenet1_1,4,FP16,15W,{date},{ms}" for ms in (2.0, second)]
    with gzip.open(tmp_path / "layer_latency_by_power_mode.csv.gz", "wt") as file:
        file.write("\n".join(lines))
    (found,) = agx_orin_layers(tmp_path)
    assert (found.family, found.graph.batch) == ("squeezenet", 4)
    (row,) = found.rows
    assert row.values == {"latency_ms": 6.0} and row.device[0] == pytest.approx(1.1136)
    assert {node.dtype for node in found.graph.nodes} == {"float16"}
    first = found.graph.nodes[0]
    assert first.output_bytes == 2 * 4 * 64 * 111 * 111 and first.input_bytes == 2 * 4 * 3 * 224 * 224
