# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab paper report``: a record of several simulated boards beside the paper's tables, as text and as a page."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.profiles.adapt.measurements import LATER, MeasurementRows, Measurements
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.measure.one_twin import measure_twin, plan_twin, several_boards_size
from jetdvfs.profiles.lab.paper.rotation import parts_of, rotate
from jetdvfs.profiles.lab.paper.study import PARTS
from jetdvfs.profiles.lab.train.kernel_models import Recipe, TrainingOptions
from jetdvfs.profiles.lab.train.tuned_recipes import TunedRecipe, TunedRecipes
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.twin.silicon.chip import load_chip

pytest.importorskip("xgboost", reason="training needs xgboost")
pytest.importorskip("matplotlib", reason="a page has pictures")

NETWORKS = ("alexnet", "squeezenet1_0")
VOID = {"meta", "img", "br"}


def collected(folder: Path, nodes: tuple[int, ...]) -> Path:
    networks = [reference_network(name) for name in NETWORKS]
    size = several_boards_size(nodes, 2, 12, 10)
    path = folder / f"{len(nodes)}.npz"
    measure_twin(plan_twin("agx-xavier", networks, size), None, lambda *step: None).save(path)
    return path


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return collected(tmp_path_factory.mktemp("record"), (0, 1, 2))


@pytest.fixture(scope="module")
def made(record: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The page, and what was printed."""
    import contextlib
    import io

    page, said = tmp_path_factory.mktemp("page") / "report.html", io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["paper", "report", str(record), "--out", str(page), "--left-out", "1", "--threads", "1", "--json"]) == 0
    return page, said.getvalue()


class Page(HTMLParser):
    """What a browser would find: open elements are closed in order, and what is referred to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: list[str] = []
        self.found: Counter[tuple[str, str]] = Counter()
        self.referred: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag == "section":
            self.sections.append(str(said["id"]))
        if self.sections and "section" in self.open:
            self.found[self.sections[-1], tag] += 1
        self.referred += [str(said[name]) for name in ("src", "href", "srcset", "action", "data", "poster") if name in said]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.slow
def test_the_page_has_every_table_and_figure_and_needs_no_other_file(made: tuple[Path, str]) -> None:
    text = made[0].read_text(encoding="utf-8")
    page = Page(text)
    assert not page.open and page.sections == list(PARTS)
    for part in PARTS:
        assert page.found[part, "table"] == 1 and page.found[part, "tr"] > 2, part
        assert page.found[part, "img"] == (part != "table-2"), part
    assert page.referred and all(one.startswith(("data:image/svg+xml;base64,", "#")) for one in page.referred)
    assert not any(word in text for word in ("http:", "https:", "<script", "@import", "url("))
    assert f"Simulated: all that was measured is of simulated boards (silicon {load_chip('agx-xavier').version})" in text
    assert "3 (0, 1, 2)" in text


@pytest.mark.slow
def test_programs_get_the_same_tables_each_row_as_wide_as_its_headers(made: tuple[Path, str]) -> None:
    said = json.loads(made[1])
    assert said["simulated"] and not said["missing"] and list(said["parts"]) == list(PARTS)
    for part in said["parts"].values():
        assert all(len(row) == len(part["headers"]) for row in part["rows"])
    rows = {row[0]: row for row in said["parts"]["table-4"]["rows"]}
    assert rows["Conv2d"][2] == "65.2" and rows["mean"][4] == "89.9"  # the paper's, printed beside
    assert 0 < float(rows["Conv2d"][1]) <= 100 and 0 < float(rows["mean"][13]) <= 100
    assert said["parts"]["table-4"]["headers"][13] == "paper's recipe 10%"
    assert {row[0] for row in said["parts"]["table-6"]["rows"]} == {*NETWORKS, "mean"}


def test_one_figure_alone_is_printed_without_training_anything(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "report", str(record), "--only", "figure-2", "--only", "figure-1"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Simulated:") and "Table 4:" not in said.out
    heading = next(line for line in said.out.splitlines() if line.startswith("Figure 2: How boards differ"))
    assert "simulated" in heading and "fitted to MIRAGE's Tables 1, 4, 5 and 6" in heading
    differences = said.out.partition("Differences from the paper:")[2]
    assert all(word in differences for word in ("roofline", "raw shapes", "lowest CPU clock", "Table 2"))
    assert "Anderson-Darling" in said.out and "alexnet power" in said.out


@pytest.mark.slow
def test_a_record_of_one_board_says_which_tables_need_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, record = tmp_path / "one.html", collected(tmp_path, (4,))
    assert main(["paper", "report", str(record), "--only", "figure-5", "--out", str(page)]) == 3
    said = capsys.readouterr()
    assert said.err.splitlines()[-1].endswith("figure-5: the record is of one board; leaving one out takes two or more")
    assert not said.out and not page.exists()
    assert main(["paper", "report", str(record), "--only", "table-8"]) == 3
    assert "table-8: the record is of 1 board; one against many takes three or more" in capsys.readouterr().err
    assert main(["paper", "report", str(record), "--only", "figure-1", "--out", str(page)]) == 0
    assert Page(page.read_text(encoding="utf-8")).sections == ["figure-1"]


@pytest.mark.slow
def test_of_an_only_board_networks_and_kernels_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = collected(tmp_path, (4,))
    parts = ["--only", "table-4", "--only", "table-6", "--only", "table-7"]
    assert main(["paper", "report", str(record), *parts, "--threads", "1", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert "other boards were not seen" in said["about"]["left out"] and not said["missing"]
    assert {row[0] for row in said["parts"]["table-6"]["rows"]} == {*NETWORKS, "mean"}
    assert "on the one board that was measured" in said["parts"]["table-4"]["notes"][0]
    assert "on the one board that was measured" in said["parts"]["table-7"]["notes"][0]


def test_parts_of_an_only_board_know_nothing_of_what_they_are_judged_by(tmp_path: Path) -> None:
    record = Measurements.load(collected(tmp_path, (4,)))
    parts = parts_of(record, record.nodes)
    assert sorted(what for part in parts for what in part.networks) == list(range(len(record.networks)))
    random, held_out = set(range(len(record.invocations))), set[int]()
    for network in record.networks:
        own = {launch.signature for launch in network.launches}
        random -= {what for what in random if record.invocations[what].signature in own}
    for part in parts:
        known, left = (set(each.tables["kernel_ms"].what.tolist()) for each in (part.known, part.held_out))
        assert left and not known & left
        kept = [network for what, network in enumerate(record.networks) if what not in part.networks]
        shared = {launch.signature for network in kept for launch in network.launches}
        assert not {record.invocations[what].signature for what in left} & shared
        assert not set(part.known.tables["network_ms"].what.tolist()) & set(part.networks)
        held_out |= left & random
    assert held_out == random & set(record.tables["kernel_ms"].what.tolist())


@pytest.mark.slow
def test_table_2_shows_what_a_search_found(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = Measurements.load(record)
    relus = [number for number, kernel in enumerate(small.invocations) if kernel.kind == "relu"]
    rows = {
        name: table.where(np.isin(table.what, relus)) if name in ("kernel_ms", "kernel_mw") else table
        for name, table in small.tables.items()
    }
    ours = tmp_path / "relu.npz"
    replace(small, tables=rows).save(ours)
    found = TunedRecipe(Recipe(9, 0.07, 6.0, 0.9, 0.85, 0.001, 100, 0.002), 0.05, 0.05, 900.0, 900.0, trials=12, pruned=5)
    TunedRecipes(0.02, "searched.npz", {"relu": {"time": found, "power": found}}, {}).save(tmp_path / "recipes.json")
    arguments = [str(ours), "--only", "table-2", "--recipes", str(tmp_path / "recipes.json"), "--threads", "1", "--json"]
    assert main(["paper", "report", *arguments]) == 0
    part = json.loads(capsys.readouterr().out)["parts"]["table-2"]
    values = {row[0]: row[2] for row in part["rows"]}
    assert (values["max_depth"], values["learning_rate"], values["reg_alpha"]) == ("9", "0.07", "0.002")
    assert "24 recipes, 10 of them given up early" in " ".join(part["notes"])
    assert main(["paper", "report", str(record), "--recipes", str(record)]) == 3
    assert "no recipes that 'jetdvfs-lab tune' wrote" in capsys.readouterr().err


def test_what_cannot_be_made_is_told_in_one_line(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code, told in (
        ([str(record), "--only", "table-3"], 2, "--only: no 'table-3'; valid: table-2, table-4 to table-8"),
        ([str(record), "--left-out", "0,9"], 3, "has no board 9; it has 0, 1, 2"),
        ([str(record), "--out", "report.pdf"], 2, "expected a name that ends in .html"),
        ([str(record), "--out", str(tmp_path / "none" / "a.html")], 3, "is not a folder"),
        ([str(tmp_path / "none.npz")], 3, "not a campaign's result"),
    ):
        assert main(["paper", "report", *arguments]) == code
        said = capsys.readouterr()
        assert told in said.err and not said.out


def test_records_from_before_there_were_fixed_configurations_still_load(record: Path, tmp_path: Path) -> None:
    older = tmp_path / "older.npz"
    with np.load(record) as arrays:
        np.savez_compressed(older, **{name: value for name, value in arrays.items() if name.partition(".")[0] not in LATER})
    loaded = Measurements.load(older)
    assert all(not len(loaded.tables[name]) for name in LATER) and len(loaded.tables["kernel_ms"])


@pytest.mark.parametrize("nodes", ["", "a", "3-1", "1,1", "0-200", "-1"])
def test_boards_that_are_none_are_refused(nodes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["collect", "--meter", "simulated", f"--node={nodes}", "--out", str(tmp_path / "a.npz")]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "expected up to 100 different boards' numbers as 3, 0,4,7 or 0-12" in capsys.readouterr().err


@pytest.mark.slow
def test_a_random_kernel_that_trained_on_another_board_is_not_judged(record: Path) -> None:
    measured = Measurements.load(record)
    of_networks = {launch.signature for network in measured.networks for launch in network.launches}
    relus = {number for number, kernel in enumerate(measured.invocations) if kernel.kind == "relu"}
    random = [number for number in relus if measured.invocations[number].signature not in of_networks]

    def held_out(elsewhere: bool) -> int:
        tables = dict(measured.tables)
        for name in ("kernel_ms", "kernel_mw"):
            rows = tables[name].where(np.isin(tables[name].what, list(relus)))
            mine = rows.where((rows.node == 1) & np.isin(rows.what, random))
            assert len(mine)
            if elsewhere:
                rows = MeasurementRows.joined([rows, replace(mine, node=np.zeros_like(mine.node))])
            tables[name] = rows
        options = TrainingOptions({"": (Recipe(2, 0.3),)}, 2)
        found = rotate(replace(measured, networks=(), tables=tables), [1], options, lambda *step: None)
        return sum(len(rows.own) for (_, target), rows in found.kernels.items() if target == "time")

    assert held_out(elsewhere=False) > 0 and held_out(elsewhere=True) == 0


def test_several_boards_are_collected_into_one_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["alexnet", "--meter", "simulated", "--node", "0,4-5", "--quick", "--out", str(tmp_path / "a.npz")]
    assert main(["collect", *arguments, "--dry-run", "--json"]) == 0
    assert "individuals 0, 4, 5" in json.loads(capsys.readouterr().out)["device"]


def test_several_boards_share_random_kernels_each_timed_once_in_one_element_type_where_that_is_wanted() -> None:
    campaign = plan_twin("agx-xavier", [reference_network("alexnet")], several_boards_size((0, 1), 2, 12, 10), 0, "float32")
    own = len({launch.signature for launch in reference_network("alexnet").launches})
    timed = [(unit, what) for unit in campaign.units if unit.kind == "kernel_ms" for what in unit.what if what >= own]
    assert sorted(what for _, what in timed) == list(range(own, len(campaign.invocations)))
    assert {unit.configurations for unit, _ in timed} == {1} and {unit.node for unit, _ in timed} == {0, 1}
    assert {kernel.dtype for kernel in campaign.invocations} == {"float32"}


def test_an_element_type_is_of_simulated_boards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["collect", "--meter", "cpu", "--dtype", "float16", "--out", str(tmp_path / "a.npz")]
    assert main(arguments) == 2
    assert "--dtype: is of --meter simulated; --meter is cpu" in capsys.readouterr().err
