# SPDX-License-Identifier: Apache-2.0
"""First mappings of tables: what their headings tell, and what is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.measure.mapping_guess import guess
from jetdvfs.profiles.twin.measured.tables import load_tables


def written(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text)
    return path


def test_a_guess_with_its_questions_answered_is_a_mapping(tmp_path: Path) -> None:
    path = written(tmp_path, "precision,gpu_mhz,latency_ms,power_w\nfp16,921.6,10,5\nfp16,460.8,19,3\nfp32,921.6,20,6\n")
    found = guess(path, "nano")
    assert [one.partition(":")[0] for one in found.questions] == ["source", "cpu_khz", "emc_hz"]
    mapping = tmp_path / "mine.yaml"
    mapping.write_text(found.text.replace("source: '?'", "source: me"))
    tables = load_tables(tmp_path, [mapping])
    assert [table.workload for table in tables] == ["table fp16", "table fp32"]
    assert tables[0].latency_ms.tolist() == [[[19.0], [10.0]]]


@pytest.mark.parametrize(
    ("heading", "cells", "part", "expected"),
    [
        ("GPU Freq,lat ms", "612,5", "clocks", {"gpu_hz": {"column": "GPU Freq", "unit": "MHz"}}),
        ("gpu_clock,lat ms", "1300500000,5", "clocks", {"gpu_hz": {"column": "gpu_clock", "unit": "Hz"}}),
        ("cpu,lat ms", "2201600,5", "clocks", {"cpu_khz": {"column": "cpu", "unit": "kHz"}}),
        ("memGHz,lat ms", "3.2,5", "clocks", {"emc_hz": {"column": "memGHz", "unit": "GHz"}}),
        ("fps,power (mW)", "30,5000", "time", {"column": "fps", "unit": "1/s"}),
        ("tok/s,ms start", "24,5", "time", {"column": "ms start", "unit": "ms"}),
        ("lat ms,watts", "nan,5\n24,5", "time", {"column": "lat ms", "unit": "ms"}),
        ("tok/s,watts", "24,5", "time", {"column": "tok/s", "unit": "1/s"}),
        ("images per second,W", "24,5", "time", {"column": "images per second", "unit": "1/s"}),
        ("GB/s,inferences_per_sec", "24,5", "time", {"column": "inferences_per_sec", "unit": "1/s"}),
        ("fps,power (mW)", "30,5000", "power", {"column": "power (mW)", "unit": "mW"}),
        ("latency (s),latency std", "0.1,0.01", "time", {"column": "latency (s)", "unit": "s"}),
        ("VDD_GPU mW,VDD_IN mW,ms", "3,5,1", "power", {"column": "VDD_IN mW", "unit": "mW"}),
    ],
)  # fmt: skip
def test_columns_are_known_by_their_words_and_sizes(
    tmp_path: Path, heading: str, cells: str, part: str, expected: dict[str, object]
) -> None:
    found = yaml.safe_load(guess(written(tmp_path, f"{heading}\n{cells}\n"), "agx-orin-64gb").text)
    assert found[part] == expected


def test_columns_without_a_meaning_are_named(tmp_path: Path) -> None:
    text = guess(written(tmp_path, "gpu_mhz,ms,power_w,w_extra\n612,5,3,x\n")).text
    assert "# not used: w_extra\n" in text


def test_figures_that_are_written_with_their_units_are_named(tmp_path: Path) -> None:
    found = guess(written(tmp_path, "gpu_mhz,time per inference,GB/s\n612,12.1 ms,20\n306,0.02 s,11\n"))
    assert "time: time per inference is not a number in each row, such as '0.02 s'" in found.questions


def test_a_unit_that_nothing_tells_is_asked_for(tmp_path: Path) -> None:
    found = guess(written(tmp_path, "gpu freq,latency,energy\n612,5,3\n"))
    asked = " ".join(found.questions)
    assert all(part in asked for part in ("clocks.gpu_hz.unit", "time.unit", "power.unit", "device"))


def test_the_command_prints_or_writes_a_mapping(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = written(tmp_path, "gpu_mhz,ms,w\n612,5,3\n"), tmp_path / "mine.yaml"
    assert main(["table", "guess", str(path)]) == 0
    assert "column: gpu_mhz" in capsys.readouterr().out
    assert main(["table", "guess", str(path), "--out", str(out)]) == 0 and "it asks" in capsys.readouterr().out
    assert main(["table", "guess", str(path), "--out", str(out)]) == 3
    assert "is there already" in capsys.readouterr().err
    assert main(["table", "guess", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["questions"]
