# SPDX-License-Identifier: Apache-2.0
"""Tables that others measured become records; rows that cannot be are named by their line, and nothing is kept of the table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.profiles.adapt.measurements import Measurements
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.measure.tables import import_table
from jetdvfs.profiles.twin.measured.mapping import load_mapping, shipped_mappings
from jetdvfs.profiles.twin.measured.tables import load_tables
from jetdvfs.tests.support.profiles.measured_table import write_table

HEADER = "Device,latency_ms,M,N,K\n"
GOOD = "Tesla T4,0.40,1024,1024,1024\nTesla T4,0.05,64,64,64\nTesla V100-PCIE-32GB,0.20,1024,1024,1024\n"


def linear(folder: Path, rows: str, header: str = HEADER) -> Path:
    path = folder / "linear.csv"
    path.write_text(header + rows)
    return path


def mapped(folder: Path, text: str) -> Path:
    path = folder / "mapping.yaml"
    path.write_text(text)
    return path


def test_each_device_of_a_table_gets_a_record_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "linear.csv.gz"
    packed.write_bytes(gzip.compress((HEADER + GOOD).encode()))
    arguments = ["table", "import", str(packed), "--mapping", "gpu-kernels", "--out", str(tmp_path / "records")]
    assert main([*arguments, "--dry-run", "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["written"] and not (tmp_path / "records").exists()
    assert main([*arguments, "--json"]) == 0
    told = {one["device"]: one for one in json.loads(capsys.readouterr().out)["records"]}
    assert {name: one["kernels"] for name, one in told.items()} == {"t4": 2, "v100": 1}
    record = Measurements.load(Path(told["t4"]["record"]))
    large = record.invocations[0]
    assert large.kind == "matmul" and large.flops == 2 * 1024**3 and large.bytes == 12 * 1024**2
    assert record.tables["kernel_ms"].value.tolist() == [0.40, 0.05] and record.described.name == "t4"
    assert record.described.chip.bytes_per_emc_cycle == 320 and not len(record.tables["kernel_mw"])
    assert main(arguments) == 3  # what is there is not written over
    assert "is there already" in capsys.readouterr().err
    assert main([*arguments[:-1], str(tmp_path / "other"), "--device", "v100"]) == 0
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["v100.npz"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("Tesla T4,nan,64,64,64\n", "line 5: latency_ms 'nan' is no number"),
        ("Tesla T4,0,64,64,64\n", "line 5: latency_ms '0' is not more than zero"),
        ("Tesla T4,-1,64,64,64\n", "line 5: latency_ms '-1' is not more than zero"),
        ("Tesla T4,,64,64,64\n", "line 5: latency_ms '' is no number"),
        ("Tesla T4,inf,64,64,64\n", "line 5: latency_ms 'inf' is no number"),
        ("Tesla T4,1e9,64,64,64\n", "line 5: latency_ms of 1e9 ms is more than an hour"),
        ("Tesla T4,3e6,64,64,64\n", "line 5: 3e+06 ms is not within 1,000 times the middle row's distance from its bound"),
        ("Tesla T4,0.0004,1024,1024,1024\n", "line 5: 0.0004 ms, and t4 needs about 0.264 ms: another unit?"),
        ("Tesla T4,0.4,64.5,64,64\n", "line 5: M '64.5' is not a whole number"),
        ("Tesla T4,0.4,0,64,64\n", "line 5: its sizes make no kernel"),
        ("GeForce 256,0.4,64,64,64\n", "line 5: device 'GeForce 256'; the mapping knows Tesla P4"),
        ("Tesla T4,nan,64,64,64\n" * 7, "7 of 10 rows cannot be"),
    ],
)
def test_a_row_that_cannot_be_is_named_by_its_line_and_nothing_is_imported(
    rows: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = linear(tmp_path, GOOD + rows)
    assert main(["table", "import", str(table), "--mapping", "gpu-kernels", "--out", str(tmp_path / "out")]) == 3
    told = capsys.readouterr().err
    assert said in told and "nothing was imported" in told and told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_times_in_another_unit_than_the_mapping_says_are_found_either_way(tmp_path: Path) -> None:
    for factor, said in ((1e-3, "another unit"), (1e3, "is column 'latency_ms' in ms, as the mapping says")):
        rows = "".join(f"Tesla T4,{0.4 * factor},1024,1024,{depth}\n" for depth in (1024, 1100, 1200))
        with pytest.raises(MeasurementError, match=said):
            import_table(linear(tmp_path, rows), load_mapping("gpu-kernels"))


def test_launches_and_networks_in_another_unit_are_found_by_what_they_have_to_do(tmp_path: Path) -> None:
    layers = tmp_path / "layers.csv"
    heading = "fusion_pattern,lat_mean_ms,flops,total_bytes,precision,thermal_profile\n"
    layers.write_text(heading + "Conv2d_ReLU,0.9,3700000000,12000000,FP32,MAXN\nView,0.002,0,0,FP32,MAXN\n")
    mapping = load_mapping("orin-agx-layers")
    assert len(import_table(layers, mapping)["agx-orin-64gb"].invocations) == 2
    with pytest.raises(MeasurementError, match=r"1 of 2 rows cannot be.* line 2: 9e-07 ms, and agx-orin-64gb needs about"):
        import_table(layers, replace(mapping, time=replace(mapping.time, unit="ns")))
    layers.write_text(heading + "".join(f"ReLU,0.05,{size},{8 * size},FP32,MAXN\n" for size in (200_000, 400_000, 800_000)))
    assert import_table(layers, mapping)["agx-orin-64gb"].invocations
    with pytest.raises(MeasurementError, match=r"the middle row takes .* is column 'lat_mean_ms' in s, as the mapping says"):
        import_table(layers, replace(mapping, time=replace(mapping.time, unit="s")))
    networks = tmp_path / "profiling.csv"
    networks.write_text("Throughput,Energy,Latency,Batch Size,Frequency,Directory\n2.1,2.2,0.47,1,921600000,Nano\n")
    mapping = load_mapping("gpu-clock-sweeps")
    assert import_table(networks, mapping)["nano"].networks[0].launches
    with pytest.raises(MeasurementError, match=r"line 2: 0.47 ms, and nano needs about .* ms: another unit\?"):
        import_table(networks, replace(mapping, time=replace(mapping.time, unit="ms")))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("linear.csv", "Device,ms,M,N,K\n", "no column latency_ms; it has Device, ms, M, N, K"),
        ("linear.csv", HEADER, "no rows"),
        ("other.csv", HEADER + GOOD, "the mapping is for tables called conv, linear"),
        ("linear.csv.gz", "no gzip", "linear.csv.gz: "),
        ("linear.parquet", "no parquet", "linear.parquet: "),
    ],
)
def test_what_is_no_such_table_is_one_line(name: str, content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(MeasurementError) as refused:
        import_table(tmp_path / name, load_mapping("gpu-kernels"))
    assert said in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("source: me\n", "time: missing"),
        (
            "source: me\ntime: {column: t, unit: weeks}\nlaunch: {kind: {column: k}}\n",
            "line 2: time.unit: expected s, ms, us, ns or 1/s",
        ),
        ("source: me\ntime: {column: t, unit: s}\n", "undefined row; valid: one of kernel, kernels, launch, network"),
        ("source: me\ntime: {column: t, unit: s}\nkernel: {form: linear, sizes: {m: M}}\n", "n, k: expected m, n, k, bias (0)"),
        ("source: me\ntime: {column: t, unit: s}\ncolour: red\nlaunch: {kind: {column: k}}\n", "colour: unknown"),
        ("source: [me\n", "not valid YAML"),
    ],
)
def test_a_mapping_that_says_what_cannot_be_is_refused_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(MeasurementError) as refused:
        load_mapping(str(mapped(tmp_path, text)))
    assert said in str(refused.value) and "mapping.yaml" in str(refused.value) and "\n" not in str(refused.value)


def test_a_mapping_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(MeasurementError, match=r"expected a .yaml file, or one of agx-orin-bert, agx-orin-cpu-gpu"):
        load_mapping("nothing")


def test_every_shipped_mapping_can_be_read() -> None:
    assert len(shipped_mappings()) >= 6
    for name in shipped_mappings():
        assert load_mapping(name).source


def test_networks_over_clocks_and_batches_become_times_and_powers_on_a_boards_grid(tmp_path: Path) -> None:
    table = tmp_path / "profiling.csv"
    table.write_text(
        "Throughput,Energy,Latency,Batch Size,Frequency,Directory\n"
        "21.3,0.44,0.040,1,1109250000,NX\n26.6,0.90,0.080,2,114750000,NX\n1.1,2.2,0.9,1,153600000,Nano\n"
    )
    records = import_table(table, load_mapping("gpu-clock-sweeps"))
    record, grid = records["xavier-nx"], load_board("xavier-nx").grid
    assert set(records) == {"xavier-nx", "nano"} and [net.name for net in record.networks] == [
        "inception_v3",
        "inception_v3 x2",
    ]
    assert record.tables["network_ms"].value.tolist() == [40.0, 80.0]
    assert record.tables["network_mw"].value == pytest.approx([11_000, 11_250])
    gpu = np.unravel_index(record.tables["network_ms"].configuration, grid.shape)[1]
    assert [grid.gpu_hz[level] for level in gpu] == [1109250000, 114750000]
    table.write_text(table.read_text() + "1,1,1,1,650000000,NX\n")
    with pytest.raises(MeasurementError, match="line 5: GPU 650 MHz is not a frequency of this board"):
        import_table(table, load_mapping("gpu-clock-sweeps"))


def test_the_tables_of_nvidias_profilers_become_launches_of_a_board(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    systems = tmp_path / "sum.csv"
    systems.write_text(
        '"Time (%)","Total Time (ns)","Instances","Avg (ns)","Med (ns)","Min (ns)","Max (ns)","StdDev (ns)","Name"\n'
        '60.0,6000,2,3000.0,2900.0,2800,3200,10.0,"void gemm<float, 128>(int)"\n'
    )
    assert main(["table", "import", str(systems), "--mapping", "nsys", "--out", str(tmp_path)]) == 3
    assert "give the board" in capsys.readouterr().err
    command = ["table", "import", str(systems), "--mapping", "nsys", "--board", "tx2", "--out", str(tmp_path)]
    assert main(command) == 0
    record = Measurements.load(tmp_path / "tx2.npz")
    assert record.invocations[0].kind == "void gemm<float, 128>(int)"
    assert record.tables["kernel_ms"].value.tolist() == [0.0029]
    compute = tmp_path / "raw.csv"
    text = (
        '==PROF== Connected to process 1\n"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum"\n'
        '"","","nsecond","byte"\n"0","gemm","2,900","1,048,576"\n'
    )
    compute.write_text(text)
    (record,) = launches(compute)
    assert record.invocations[0].bytes == 1 << 20 and record.tables["kernel_ms"].value.tolist() == [0.0029]
    compute.write_text(text.replace("nsecond", "usecond"))
    with pytest.raises(
        MeasurementError, match=r"line 3: column 'gpu__time_duration\.sum' is in 'usecond', the mapping says ns"
    ):
        launches(compute)


def launches(table: Path) -> list[Measurements]:
    return list(import_table(table, replace(load_mapping("ncu"), device="tx2")).values())


def test_power_that_a_table_has_is_kept_above_what_idles(tmp_path: Path) -> None:
    mapping = mapped(
        tmp_path,
        "source: me\ndevice: orin-nano-8gb\ntime: {column: us, unit: us}\npower: {column: watts, unit: W, idle_mw: 4000}\n"
        "kernel:\n  form: product\n  dtype: {column: type, values: {fp16: float16}}\n"
        "  sizes: {m: {column: shape, at: 0}, k: {column: shape, at: 1}, n: {column: shape, at: 2}}\n",
    )
    table = tmp_path / "t.csv"
    table.write_text("us,watts,type,shape\n200,9.5,fp16,512x256x128\n")
    record = import_table(table, load_mapping(str(mapping)))["orin-nano-8gb"]
    assert record.tables["kernel_mw"].value.tolist() == [5500.0] and record.tables["kernel_ms"].value.tolist() == [0.2]
    assert record.invocations[0].params["k"] == 256 and record.invocations[0].dtype == "float16"
    for row, said in (
        ("200,3.9,fp16,512x256x128", "no more than when nothing runs"),
        ("200,1e9,fp16,512x256x128", "watts: 1e[+]09 W, and orin-nano-8gb draws at most 75 W"),
        ("200,9,fp8,1x1x1", "the mapping knows fp16"),
        ("200,9,fp16,512x256", "has no part 2"),
    ):
        table.write_text(f"us,watts,type,shape\n{row}\n")
        with pytest.raises(MeasurementError, match=f"line 2: .*{said}"):
            import_table(table, load_mapping(str(mapping)))


def test_a_table_that_boards_replay_is_imported_by_the_same_mapping(tmp_path: Path) -> None:
    mapping = write_table(tmp_path)
    (replayed,) = load_tables(tmp_path, [mapping])
    record = import_table(tmp_path / "camera.csv", load_mapping(mapping))["nano"]
    assert [network.name for network in record.networks] == ["camera small"]
    assert record.tables["network_ms"].value.tolist() == replayed.latency_ms.ravel().tolist()
    assert record.tables["network_mw"].value.tolist() == replayed.power_mw.ravel().tolist()
    mapping.write_text(mapping.read_text() + "rows: sum\n")
    rows = (tmp_path / "camera.csv").read_text().splitlines()
    (tmp_path / "camera.csv").write_text("\n".join([*rows, *rows[1:]]))
    summed = import_table(tmp_path / "camera.csv", load_mapping(mapping))["nano"]
    assert summed.tables["network_ms"].value == pytest.approx(2 * record.tables["network_ms"].value)
    assert summed.tables["network_mw"].value == pytest.approx(record.tables["network_mw"].value)


def test_power_of_another_file_goes_with_the_same_clocks(tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("gpu,copy_us,run_us\n921.6,100,300\n460.8,100,600\n")
    (tmp_path / "powers.csv").write_text("mhz,mw\n460.8,2500\n921.6,4000\n")
    mapping = mapped(
        tmp_path,
        "source: me\nfile: times.csv\ndevice: nano\nnetwork: {name: copier}\n"
        "clocks: {gpu_hz: {column: gpu, unit: MHz}}\ntime: {column: [copy_us, run_us], unit: us}\n"
        "power: {file: powers.csv, column: mw, unit: mW, clocks: {gpu_hz: {column: mhz, unit: MHz}}}\n",
    )
    record = import_table(tmp_path / "times.csv", load_mapping(mapping))["nano"]
    assert record.tables["network_ms"].value == pytest.approx([0.4, 0.7])
    assert record.tables["network_mw"].value.tolist() == [4000, 2500]
