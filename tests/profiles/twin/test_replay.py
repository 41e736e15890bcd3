# SPDX-License-Identifier: Apache-2.0
"""Boards that replay a measured table: what it says is what applications and sensors see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.twin.measured.tables import MeasuredTable, find_table, load_tables
from jetdvfs.profiles.twin.replayed_board import replay_board
from jetdvfs.tests.support.boards.twin_fakes import VirtualClock
from jetdvfs.tests.support.profiles.analytic import network, relu
from jetdvfs.tests.support.profiles.measured_table import latency_ms, power_w, write_table


@pytest.fixture
def table(tmp_path: Path) -> MeasuredTable:
    (table,) = load_tables(tmp_path, [write_table(tmp_path)])
    return table


def test_a_table_is_read_as_its_mapping_says(table: MeasuredTable) -> None:
    assert (table.name, table.workload, table.board, table.source) == ("camera", "camera small", "nano", "a formula")
    assert table.grid.shape == (13, 11, 1) and table.measured.all()
    assert table.latency_ms[-1, -1, 0] == pytest.approx(latency_ms(1479, 921.6), rel=0.02)
    assert table.power_mw[0, 0, 0] == pytest.approx(1e3 * power_w(307.2, 153.6), rel=0.02)
    np.testing.assert_allclose(table.energy_mj, table.latency_ms * table.power_mw / 1e3)


def test_a_frame_on_its_board_takes_and_draws_what_was_measured(table: MeasuredTable) -> None:
    board = replay_board(table, VirtualClock())
    board.infer(network(relu()), frames=60)  # its governors have come to rest
    settled = board.configuration
    stream = board.infer(network(relu()), frames=20)
    assert board.configuration == settled
    # Clocks below the table's are taken to be its lowest.
    cpu_mhz, gpu_mhz = max(settled.mhz[0], 307.2), max(settled.mhz[1], 153.6)
    assert 1e3 * np.median(stream.latencies_s) == pytest.approx(latency_ms(cpu_mhz, gpu_mhz), rel=0.05)
    joules = np.array(stream.closing_j) - np.array(stream.opening_j)
    drawn_w = joules[list(board.rails.rails).index("POM_5V_IN")] / sum(stream.latencies_s)
    assert drawn_w == pytest.approx(power_w(cpu_mhz, gpu_mhz), rel=0.05)


def test_a_mapping_of_the_earlier_form_is_read_as_todays(tmp_path: Path, table: MeasuredTable) -> None:
    mapping = write_table(tmp_path)
    text = mapping.read_text().replace("device: nano", "board: nano").replace("time: {column:", "latency: {columns:")
    text = text.replace("network: {name: camera, workload: [size]}", "name: camera\nworkload: [size]")
    mapping.write_text(text.replace("{column: watts", "{columns: [watts]"))
    (earlier,) = load_tables(tmp_path, [mapping])
    assert (earlier.workload, earlier.board, earlier.grid) == (table.workload, table.board, table.grid)
    np.testing.assert_array_equal(earlier.latency_ms, table.latency_ms)
    np.testing.assert_array_equal(earlier.power_mw, table.power_mw)


@pytest.mark.parametrize(
    "written",
    [
        lambda text: text.replace(",", ", "),
        lambda text: text.replace(".", ",0;").replace(",0;", "\0").replace(",", ";").replace("\0", ","),
        lambda text: text.replace(",", "\t"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "  \n"),
    ],
    ids=["spaces", "semicolons and decimal commas", "tabs", "byte order mark", "spaces at the end"],
)
def test_tables_are_read_as_spreadsheets_write_them(
    tmp_path: Path, table: MeasuredTable, written: Callable[[str], str]
) -> None:
    path = tmp_path / "camera.csv"
    path.write_text(written(path.read_text()), encoding="utf-8")
    (other,) = load_tables(tmp_path, [tmp_path / "camera.yaml"])
    assert other.workload == table.workload and other.grid == table.grid
    np.testing.assert_array_equal(other.latency_ms, table.latency_ms)


def test_a_comma_in_a_heading_separates_nothing_where_semicolons_do(tmp_path: Path, table: MeasuredTable) -> None:
    path, mapping = tmp_path / "camera.csv", tmp_path / "camera.yaml"
    heading, *rows = (line.replace(",", ";") for line in path.read_text().splitlines())
    path.write_text("\n".join((heading.replace("watts", '"power, all rails"'), *rows)))
    mapping.write_text(mapping.read_text().replace("watts", '"power, all rails"'))
    (other,) = load_tables(tmp_path, [mapping])
    np.testing.assert_array_equal(other.power_mw, table.power_mw)


def test_commas_stand_between_thousands(tmp_path: Path, table: MeasuredTable) -> None:
    path, mapping = tmp_path / "camera.csv", tmp_path / "camera.yaml"
    heading, *lines = path.read_text().splitlines()
    rows = (line.split(",") for line in lines)
    path.write_text(
        "\n".join((heading.replace(",", "\t"), *("\t".join((*row[:-1], f"{1e3 * float(row[-1]):,}")) for row in rows)))
    )
    mapping.write_text(mapping.read_text().replace("unit: W", "unit: mW"))
    (other,) = load_tables(tmp_path, [mapping])
    np.testing.assert_allclose(other.power_mw, table.power_mw)


@pytest.mark.parametrize("cell", ["3,5", "1234,5", "1,23,456", "3.5 W"])
def test_other_commas_and_units_are_no_part_of_a_number(tmp_path: Path, table: MeasuredTable, cell: str) -> None:
    path = tmp_path / "camera.csv"
    heading, first, *rows = path.read_text().replace(",", "\t").splitlines()
    path.write_text("\n".join((heading, "\t".join((*first.split("\t")[:-1], cell)), *rows)))
    with pytest.raises(MeasurementError, match=f"line 2: watts is '{cell}', expected a positive number"):
        load_tables(tmp_path, [tmp_path / "camera.yaml"])


def test_frames_per_second_and_gigahertz_are_units(tmp_path: Path, table: MeasuredTable) -> None:
    rows = ["size,cpu,gpu,fps,watts"]
    for line in (tmp_path / "camera.csv").read_text().splitlines()[1:]:
        size, cpu, gpu, grab, infer, watts = line.split(",")
        rows.append(f"{size},{float(cpu) / 1e3:.7f},{gpu},{1e3 / (float(grab) + float(infer))},{watts}")
    (tmp_path / "camera.csv").write_text("\n".join(rows))
    mapping = tmp_path / "camera.yaml"
    text = mapping.read_text().replace("{column: [grab, infer], unit: ms}", "{column: fps, unit: 1/s}")
    mapping.write_text(text.replace("column: cpu, unit: MHz", "column: cpu, unit: GHz"))
    (other,) = load_tables(tmp_path, [mapping])
    np.testing.assert_allclose(other.latency_ms, table.latency_ms)


def test_rows_that_another_column_tells_apart_are_not_merged(tmp_path: Path) -> None:
    mapping = write_table(tmp_path)
    path = tmp_path / "camera.csv"
    heading, *rows = path.read_text().splitlines()
    path.write_text("\n".join((f"{heading},precision", *(f"{row},{name}" for row in rows for name in ("fp16", "fp32")))))
    with pytest.raises(MeasurementError, match=r"differ in precision; name these columns in network\.workload"):
        load_tables(tmp_path, [mapping])
    text = mapping.read_text()
    mapping.write_text(text.replace("workload: [size]", "workload: [size, precision]"))
    assert [one.workload for one in load_tables(tmp_path, [mapping])] == ["camera small fp16", "camera small fp32"]
    mapping.write_text(text + "rows: median\n")
    assert len(load_tables(tmp_path, [mapping])) == 1


def test_a_program_of_an_own_table_is_found_by_its_mapping(tmp_path: Path) -> None:
    mapping = write_table(tmp_path)
    assert find_table(tmp_path, "nano", "small", [mapping]).workload == "camera small"
    with pytest.raises(MeasurementError, match=r"expected one program of nano that is called 'huge'; there are camera small"):
        find_table(tmp_path, "nano", "huge", [mapping])


@pytest.mark.parametrize("board", ["orin-nx-16gb", "agx-orin-32gb", "orin-nano-4gb", "agx-thor", "orin-nano-8gb", "tx2-nx"])
def test_a_table_is_replayed_on_any_described_board(tmp_path: Path, board: str) -> None:
    (table,) = load_tables(tmp_path, [write_table(tmp_path, board=board)])
    assert replay_board(table, VirtualClock()).infer(network(relu()), frames=3).latencies_s[0] > 0


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("column: watts", "column: amperes", "camera.csv: no column amperes; it has size, cpu, gpu"),
        ("file: camera.csv", "file: none.csv", "none.csv: .*No such file"),
        ("unit: W", "unit: horse", "camera.yaml, line 10: power.unit: .*horse"),
        ("device: nano", "device: banana", "banana"),
        ("column: cpu, unit: MHz", "column: cpu, unit: kHz", "line 2: cpu is 307 kHz, and nano has .* is it in kHz"),
        ("column: gpu, unit: MHz", "column: gpu, unit: GHz", "line 2: gpu is .* Hz, and nano has .* is it in GHz"),
        ("column: watts, unit: W}", "column: watts, unit: J}", "watts: .* W, and nano draws at most"),
        ("unit: ms}", "unit: s}", None),
    ],
)
def test_what_is_wrong_with_a_table_or_its_mapping_is_said_in_one_line(
    tmp_path: Path, old: str, new: str, text: str | None
) -> None:
    mapping = write_table(tmp_path)
    mapping.write_text(mapping.read_text().replace(old, new))
    if text is None:
        text = "more than an hour"
        (tmp_path / "camera.csv").write_text("size,cpu,gpu,grab,infer,watts\nsmall,1479,921.6,4000,10,5\n")
    with pytest.raises(Exception, match=text) as error:
        load_tables(tmp_path, [mapping])
    assert "\n" not in str(error.value) and error.value.exit_code == 3  # type: ignore[attr-defined]


def test_a_value_that_is_no_measurement_is_named_by_its_line(tmp_path: Path) -> None:
    mapping = write_table(tmp_path)
    lines = (tmp_path / "camera.csv").read_text().splitlines()
    lines[7] = lines[7].rsplit(",", 1)[0] + ",nan"
    (tmp_path / "camera.csv").write_text("\n".join(lines))
    with pytest.raises(MeasurementError, match=r"camera.csv, line 8: watts is 'nan', expected a positive number"):
        load_tables(tmp_path, [mapping])


def test_a_table_is_found_anywhere_below_the_folder(tmp_path: Path, table: MeasuredTable) -> None:
    measured = tmp_path / "boards" / "measured"
    measured.mkdir(parents=True)
    (below,) = load_tables(tmp_path / "boards", [write_table(measured)])
    assert below.name == table.name and np.array_equal(below.latency_ms, table.latency_ms, equal_nan=True)


def test_a_folder_without_any_known_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        MeasurementError, match=r"none of the tables agx-orin-bert, agx-orin-cpu-gpu, gpu-clock-sweeps, .* is there"
    ):
        load_tables(tmp_path)


def test_rows_of_one_configuration_add_up_or_are_averaged(tmp_path: Path) -> None:
    mapping = write_table(tmp_path, noise=0.0)
    rows = (tmp_path / "camera.csv").read_text().splitlines()
    (tmp_path / "camera.csv").write_text("\n".join([*rows, *rows[1:]]))
    (middle,) = load_tables(tmp_path, [mapping])
    mapping.write_text(mapping.read_text() + "rows: sum\n")
    (whole,) = load_tables(tmp_path, [mapping])
    np.testing.assert_allclose(whole.latency_ms, 2 * middle.latency_ms)
    mapping.write_text(mapping.read_text() + "median_over: cpu_khz\n")
    (narrow,) = load_tables(tmp_path, [mapping])
    assert narrow.grid.shape == (1, 11, 1)
