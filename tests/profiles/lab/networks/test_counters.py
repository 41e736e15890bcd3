# SPDX-License-Identifier: Apache-2.0
"""Counters of networks: Nsight Compute's tables, a program in its place, and predictors that are told of them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from jetdvfs.profiles.errors import MeasurementError, RecordError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.networks.counters import NsightCompute, read_counters
from jetdvfs.profiles.lab.networks.predictors.loading import COUNTED
from jetdvfs.profiles.lab.networks.predictors.trees import FeatureAddition, GlobalTrees
from jetdvfs.profiles.lab.networks.record import MeasuredQuery, NetworkRecorder, RecordContents, read_record
from jetdvfs.tests.support.profiles.measured_networks import chain, measured, samples

# As Nsight Compute prints its raw page: what it says itself, names, units, two launches.
RAW = """==PROF== Connected to process 7
"ID","Kernel Name","Block Size","dram__bytes.sum","gpu__time_duration.sum","smsp__inst_executed.sum","lts__t_sectors.sum",\
"l1tex__data_bank_reads.sum","sm__cycles_elapsed.avg","dram__bytes.sum.per_second","lts__t_sector_hit_rate.pct"
"","","","byte","ns","inst","sector","","cycle","byte/second","%"
"0","conv","(128, 1, 1)","1,024","5000","64","32","7","900","2","41.5"
"1","relu","(64, 1, 1)","512","1000","16","16","3","100","2","12.5"
""".replace("\\\n", "")
# A row for each launch of several networks.
LAUNCHES = """network,launch,kernel,block,duration_ns,gpc_mhz
one,0,conv,128,6336,1002.5
one,1,relu,64,5408,1002
two,0,relu,64,80,1000
"""


def table(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_sums_in_counted_units_are_added_up_over_launches(tmp_path: Path) -> None:
    found = read_counters(table(tmp_path / "resnet-0.csv", RAW))
    assert found == {
        "resnet-0": {
            "dram__bytes.sum": 1536,
            "gpu__time_duration.sum": 6000,
            "smsp__inst_executed.sum": 80,
            "l1tex__data_bank_reads.sum": 10,
        }
    }
    assert list(read_counters(tmp_path / "resnet-0.csv", "another")) == ["another"]


def test_a_table_of_launches_says_which_network_each_is_of(tmp_path: Path) -> None:
    found = read_counters(table(tmp_path / "launches.csv", LAUNCHES))
    assert found == {"one": {"duration_ns": 11744}, "two": {"duration_ns": 80}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "no table of counters; valid"),
        (RAW.replace("1,024", "n/a"), "launch 0, dram__bytes.sum: 'n/a' is no count"),
        ("network,clock_mhz\none,3\n", "no counter among its columns"),
        ("network,duration_ns\n", "no launches"),
    ],
)
def test_what_is_no_table_of_counters_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        read_counters(table(tmp_path / "table.csv", text))


MARK = '"","spin_kernel","","0","0","0","0","0","0","0","0"'
FIRST = '"","relu","(64, 1, 1)","100","7","1","1","1","1","1","1"'
HEADER, ROWS = RAW.partition('"0","conv"')[0], '"0","conv"' + RAW.partition('"0","conv"')[2]
SEVERAL = f"{HEADER}{FIRST}\n{MARK}\n{ROWS}{MARK}\n"  # of two networks
NCU = """#!/bin/sh
if [ "$1" = --query-metrics ]; then echo 'sm__cycles_elapsed  Counter  cycle  # of cycles'; exit; fi
echo "$@" >>ASKED
for last; do :; done
echo 'REFUSED' >"$last"
cat <<END
PRINTED
END
"""


def ncu(folder: Path, printed: str, refused: str = "{}") -> Path:
    """A program in Nsight Compute's place, which knows one counter; what it runs says that these networks were refused."""
    text = NCU.replace("ASKED", str(folder / "asked")).replace("REFUSED", refused).replace("PRINTED", printed)
    program = table(folder / "ncu", text)
    program.chmod(0o755)
    return program


def test_several_networks_are_counted_in_one_run_and_told_apart_by_marks(tmp_path: Path) -> None:
    program = ncu(tmp_path, SEVERAL, '{"lost": "no memory"}')
    models = {name: (tmp_path / f"{name}.pt", chain(name, [8])) for name in ("one", "lost", "two")}
    counted, refused = NsightCompute(str(program)).counters(models)
    assert {name: own["dram__bytes.sum"] for name, own in counted.items()} == {"one": 100, "two": 1536}
    assert refused == {"lost": "no memory"}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 1 and "--metrics sm__cycles_elapsed.sum " in asked[0]


def test_nsight_compute_counts_after_warming_up(tmp_path: Path) -> None:
    program = ncu(tmp_path, RAW.rstrip())
    one = {"one": (tmp_path / "one.pt", chain("one", [8]))}
    counted, refused = NsightCompute(str(program), "dram__bytes.sum").counters(one)
    assert counted["one"]["dram__bytes.sum"] == 1536 and not refused
    asked = (tmp_path / "asked").read_text()
    assert "--clock-control none --profile-from-start off --metrics dram__bytes.sum" in asked
    table(program, "#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM: no right to count' >&2\nexit 1\n")
    with pytest.raises(MeasurementError, match="code 1: ==ERROR== ERR_NVGPUCTRPERM"):
        NsightCompute(str(program)).counters(one)
    with pytest.raises(MeasurementError, match="not installed here"):
        NsightCompute(str(tmp_path / "none"))


def test_counting_says_what_it_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="networks are made with PyTorch")
    folder = tmp_path / "record"
    recorder = NetworkRecorder(folder, RecordContents("a formula", True, ("latency_ms", "peak_mib")))
    for number, one in enumerate(measured(2)):
        recorder.add(msgspec.structs.replace(one, name=f"squeezenet-{number}", family="squeezenet"))
    program = ncu(tmp_path, RAW.rstrip())
    asked = ["networks", "counters", "--into", str(folder), "--ncu", str(program), "--count", "1"]
    assert main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["counted"], told["failed"]) == (1, {}) and 0 < told["each_s"] == told["took_s"] < 60
    assert main(asked) == 0
    assert "2 networks of" in (said := capsys.readouterr().out) and "1 of them now, in" in said and " s each" in said
    assert main(asked) == 0
    assert capsys.readouterr().out == f"2 networks of {folder} are counted\n"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    recorder = NetworkRecorder(tmp_path / "record", RecordContents("a formula", True, ("latency_ms", "peak_mib")))
    for network in measured(12):
        recorder.add(network)
    return tmp_path / "record"


def test_a_record_takes_counters_of_its_networks_alone(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = table(tmp_path / "ncu.csv", RAW)
    assert main(["networks", "counters", str(counted), "--network", "wide-1", "--into", str(record), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["networks"]["wide-1"]["dram__bytes.sum"] == 1536
    with_counters = {one.name: one.counters for one in read_record(record).networks if one.counters}
    assert list(with_counters) == ["wide-1"] and with_counters["wide-1"]["smsp__inst_executed.sum"] == 80
    assert {sample.name for sample in read_record(record).samples if sample.counters} == {"wide-1"}
    assert main(["networks", "counters", str(counted), "--into", str(record)]) == 3
    assert "has no network ncu" in capsys.readouterr().err
    assert main(["networks", "counters"]) == 2
    assert main(["networks", "counters", "--into", str(record), "--ncu", str(tmp_path / "none")]) == 3
    assert "Nsight Compute is not installed here" in capsys.readouterr().err


def counted_samples() -> list[MeasuredQuery]:
    """Latency in 300 times what one counter counted; the other one says nothing."""
    random = np.random.default_rng(0)
    found = []
    for sample in samples(60):
        counts = {"gpu__time_duration.sum": sample.values["latency_ms"] * 300, "noise.sum": float(random.random())}
        found.append(msgspec.structs.replace(sample, counters=counts))
    return found


def test_trees_choose_the_counters_that_help() -> None:
    pytest.importorskip("xgboost", reason="grows the trees")
    learnt = counted_samples()
    made = GlobalTrees("gb", FeatureAddition(runs=1, least=0.01), counted=True)
    made.fit(learnt)
    assert "gpu__time_duration.sum" in made.features and "noise.sum" not in made.features
    assert np.median(np.abs(made.predict(learnt)[:, 0] / [sample.values["latency_ms"] for sample in learnt] - 1)) < 0.05
    with pytest.raises(RecordError, match="was not counted: gpu__time_duration"):
        made.predict(samples(2))
    with pytest.raises(RecordError, match="jetdvfs-lab networks counters"):
        COUNTED["xgboost with counters"]().fit(samples(4))
