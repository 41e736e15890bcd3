# SPDX-License-Identifier: Apache-2.0
"""Looking after the installed service: its configuration checked, and a doctor that says what is wrong and what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jetdvfs.daemon.cli.doctor import CONFLICTS
from jetdvfs.daemon.config import Members, read_config
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, served_board
from jetdvfs.tests.support.paths import ROOT
from jetdvfs.tests.support.verbs import answered as jetdvfs
from jetdvfs.tests.support.verbs import on_terminal

CLI = [sys.executable, "-m", "jetdvfs.daemon.cli"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    path = tmp_path / "jetdvfsd.yaml"
    path.write_text("profile: agx-xavier-sim\nlimits: {cpu_khz: {max: 2265600}}\n")
    (tmp_path / "jetdvfsd.yaml.d").mkdir()
    return path


def test_a_sound_configuration_is_said_to_be_so(configuration: Path) -> None:
    done = jetdvfs("config", "check", configuration)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"sound: {configuration}\n", "")


def test_a_configuration_to_begin_with_has_every_member_at_its_default(tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    printed = jetdvfs("config", "init", path, "--dry-run")
    assert printed.returncode == 0 and not path.exists()
    done = jetdvfs("config", "init", path)
    assert (done.returncode, done.stdout, path.read_text()) == (0, f"written: {path}\n", printed.stdout)
    assert all(line.startswith("#") for line in path.read_text().splitlines() if line)
    assert jetdvfs("config", "check", path).stdout == f"sound: {path}\n"
    again = jetdvfs("config", "init", path)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1) and "--force" in again.stderr
    path.write_text(re.sub(r"^#(?=\w| {2})", "", path.read_text(), flags=re.MULTILINE))
    assert read_config(path).members == Members() and set(yaml.safe_load(path.read_text())) == set(Members.__struct_fields__)
    forced = json.loads(jetdvfs("config", "init", path, "--force", "--json").stdout)
    assert forced == {"file": str(path), "written": True, "text": printed.stdout} and path.read_text() == printed.stdout
    assert "no/new.yaml: cannot write the configuration" in jetdvfs("config", "init", tmp_path / "no" / "new.yaml").stderr


def test_everything_wrong_with_a_configuration_is_named_with_its_file_and_line(configuration: Path) -> None:
    drop_in = configuration.parent / "jetdvfsd.yaml.d" / "10-mine.yaml"
    drop_in.write_text("bord: x\n\naxes: [npu]\nclients: {leases: 0}\n")
    done = jetdvfs("config", "check", configuration)
    assert (done.returncode, done.stderr) == (2, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{drop_in}, line 3: axes[0]: expected cpu, gpu or emc, got 'npu'"
    assert lines[1] == f"{drop_in}, line 4: clients.leases: expected a whole number from 1 to 10000, got 0"
    assert lines[2].startswith(f"{drop_in}, line 1: bord: unknown member; did you mean board? valid: board, ")
    assert len(lines) == 3
    told = json.loads(jetdvfs("config", "check", configuration, "--json").stdout)
    assert told["files"] == [str(configuration), str(drop_in)]
    assert told["problems"][0] == {"file": str(drop_in), "line": 3, "message": "axes[0]: expected cpu, gpu or emc, got 'npu'"}
    assert [problem["line"] for problem in told["problems"]] == [3, 4, 1] and told["warnings"] == []


def test_what_is_no_configuration_at_all_is_told_in_one_line(configuration: Path) -> None:
    pipe, deep, large, link = (configuration.with_name(name) for name in ("pipe", "deep", "large", "link"))
    os.mkfifo(pipe)
    deep.write_text("a: " + "[" * 100_000 + "]" * 100_000)
    large.write_text("# \n" * 500_000)
    link.symlink_to("/dev/zero")
    said = {
        pipe: "expected a regular file",
        link: "expected a regular file",
        deep: "not valid YAML: nested deeper than 100 levels",
        large: "expected at most 1 MiB",
        configuration.parent: "Is a directory",
    }
    for path, complaint in said.items():
        done = jetdvfs("config", "check", path)
        assert (done.returncode, done.stdout.count("\n"), done.stderr) == (2, 1, "")
        assert complaint in done.stdout


def test_limits_that_no_level_of_the_board_named_fits_are_warned_about(configuration: Path) -> None:
    configuration.write_text("limits:\n  gpu_hz: {max: 100000000}\nboard: agx-xavier\n")
    done = jetdvfs("config", "check", configuration)
    assert done.returncode == 0
    text = "limits.gpu_hz: no GPU frequency that this board offers fits max 100 MHz; 114.75 MHz is set instead"
    assert done.stdout.splitlines()[0] == f"warning: {configuration}, line 2: {text}"


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ("gpu_hz: {max: 905}", "limits.gpu_hz.max: 905 Hz: 905 MHz meant? write 905000000"),
        ("gpu_hz: {max: 905000}", "limits.gpu_hz.max: 905000 Hz: 905 MHz meant? write 905000000"),
        ("emc_hz: {min: 2133}", "limits.emc_hz.min: 2133 Hz: 2133 MHz meant? write 2133000000"),
        ("cpu_khz: {max: 2265}", "limits.cpu_khz.max: 2265 kHz: 2265 MHz meant? write 2265000"),
        ("cpu_khz: {max: 2265600000}", "limits.cpu_khz.max: 2265600000 kHz: 2265.6 MHz meant? write 2265600"),
        ("cpu: {max: 2265600}", "limits.cpu: unknown member; did you mean limits.cpu_khz? valid: cpu_khz, gpu_hz, emc_hz"),
    ],
)
def test_limits_of_another_unit_or_name_are_errors_that_say_what_to_write(configuration: Path, limits: str, said: str) -> None:
    configuration.write_text(f"limits:\n  {limits}\n")
    done = jetdvfs("config", "check", "--config", configuration)
    assert (done.returncode, done.stdout) == (2, f"{configuration}, line 2: {said}\n")
    daemon = subprocess.run(
        [sys.executable, "-m", "jetdvfs.daemon.service", "--config", configuration], capture_output=True, text=True, check=False
    )
    assert daemon.returncode == 2 and said in daemon.stderr


def test_a_profile_and_limits_are_checked_against_the_board_at_root(board: Board, configuration: Path) -> None:
    configuration.write_text("profile: orin-nano-8gb-sim\nlimits: {gpu_hz: {max: 100000000}}\n")
    done = jetdvfs("config", "check", configuration, "--root", board.root)
    assert done.returncode == 2
    problem, warning = done.stdout.splitlines()
    assert problem.endswith("profile orin-nano-8gb-sim was made for board orin-nano-8gb; this board is agx-xavier")
    assert warning.endswith("fits max 100 MHz; 114.75 MHz is set instead")


def test_a_configuration_is_named_once(configuration: Path) -> None:
    assert jetdvfs("config", "show", configuration, "--config", configuration).returncode == 0
    done = jetdvfs("config", "check", configuration, "--config", "/other")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nboard: moon", "line 2: board: board 'moon' is not described; valid: agx-"),
        ("profile: none", "line 1: profile: profile 'none': no such bundle"),
        ("board: tx2", "line 1: profile: profile agx-xavier-sim was made for board agx-xavier; this board is tx2"),
        ("socket_group: nosuch", "line 1: socket_group: there is no group 'nosuch'"),
    ],
)
def test_names_of_what_there_is_not_are_wrong(configuration: Path, text: str, said: str) -> None:
    (configuration.parent / "jetdvfsd.yaml.d" / "a.yaml").write_text(text)
    done = jetdvfs("config", "check", configuration)
    assert done.returncode == 2 and done.stdout.count("\n") == 1
    assert said in done.stdout


def test_what_the_configuration_comes_to_is_shown_with_where_it_was_said(configuration: Path) -> None:
    drop_in = configuration.parent / "jetdvfsd.yaml.d" / "a.yaml"
    drop_in.write_text("\nlimits: {cpu_khz: {min: 729600}}\nfloors: off\n")
    shown = json.loads(jetdvfs("config", "show", configuration, "--json").stdout)
    assert shown["profile"] == {"value": "agx-xavier-sim", "file": str(configuration), "line": 1}
    assert shown["limits.cpu_khz.min"] == {"value": 729600, "file": str(drop_in), "line": 2}
    assert shown["limits.cpu_khz.max"] == {"value": 2265600, "file": str(configuration), "line": 2}
    assert shown["floors"] == {"value": None, "file": str(drop_in), "line": 3}
    assert shown["worker.parallel"] == {"value": 2, "file": None, "line": None}
    text = jetdvfs("config", "show", configuration).stdout
    assert re.search(rf"^limits\.cpu_khz\.min +729600 +{drop_in}, line 2$", text, re.MULTILINE)
    assert re.search(r"^worker\.parallel +2 +default$", text, re.MULTILINE)


@pytest.fixture
def board() -> Iterator[Board]:
    """Where every user may look at it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with served_board(Path(folder) / "board", "auto") as board:
            yield board


def examined(board: Board, folder: Path, *options: object) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """What the doctor ends with, and what it says by check."""
    words = ("--root", board.root, "--socket", folder / "run" / "jetdvfs.sock", "--state-dir", folder / "state")
    done = jetdvfs("doctor", "--json", *words, "--runtime-dir", folder / "runtime", *options)
    assert not done.stderr
    told = json.loads(done.stdout)
    assert told["well"] is (done.returncode == 0)
    found: dict[str, list[dict[str, Any]]] = {}
    for check in told["checks"]:
        found.setdefault(check["check"], []).append(check)
    return done.returncode, found


@as_root
def test_a_board_with_its_daemon_is_well(board: Board, tmp_path: Path) -> None:
    with Daemon(board, tmp_path) as daemon, daemon.client() as client:
        code, found = examined(board, tmp_path)
        assert code == 0
        assert found["daemon"][0]["said"] == f"answers on {daemon.socket}; no leases"
        assert found["board"][0]["said"].startswith("NVIDIA Jetson AGX Xavier (agx-xavier), JetPack 5.1")
        assert found["profile"][0]["said"] == "agx-xavier-sim, measured on a simulated board"
        assert {"versions", "compiled part", "seccomp", "Landlock", "clock files", "power rails"} <= found.keys()
        assert found["baseline"][0]["said"] == f"nothing waits to be restored: the daemon at {daemon.socket} holds nothing"
        with client.hold(configuration="1190.4,675.75,1600", reason="test"):
            code, found = examined(board, tmp_path)
        assert code == 0
        assert found["baseline"][0]["said"].startswith(f"kept by the daemon at {daemon.socket}")


@as_root
def test_what_a_daemon_that_died_left_behind_is_found_and_how_to_end_it_is_said(board: Board, tmp_path: Path) -> None:
    daemon = Daemon(board, tmp_path)
    with daemon.client() as client:
        client.hold(configuration="1190.4,675.75,1600", reason="test")
        daemon.kill()
    code, found = examined(board, tmp_path)
    assert code == 6
    assert found["daemon"][0]["verdict"] == found["baseline"][0]["verdict"] == "wrong"
    assert found["baseline"][0]["remedy"] == "sudo jetdvfs restore"
    restored = jetdvfs("restore", "--root", board.root, "--state-dir", daemon.state, "--runtime-dir", daemon.runtime)
    assert restored.returncode == 0
    assert examined(board, tmp_path)[1]["baseline"][0]["verdict"] == "ok"


@as_root
def test_what_is_wrong_with_the_configuration_is_said_by_the_doctor(board: Board, tmp_path: Path, configuration: Path) -> None:
    configuration.write_text("axes: [npu]\nprofle: x\n")
    _, found = examined(board, tmp_path, "--config", configuration)
    assert [(one["verdict"], one["said"].partition(":")[0]) for one in found["configuration"]] == [
        ("wrong", f"{configuration}, line 1"),
        ("wrong", f"{configuration}, line 2"),
    ]


@as_root
def test_an_ordinary_user_is_told_what_only_root_sees(board: Board, tmp_path: Path) -> None:
    words = [*CLI, "doctor", "--root", str(board.root), "--socket", "/nonexistent", "--state-dir", "/nonexistent"]
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    # Without its packages Python would find those of an installed jetdvfs instead.
    for place in (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), ROOT):
        if subprocess.run([*become, "test", "-r", place], check=False, timeout=60).returncode:
            pytest.skip("needs a Python and a source tree that every user may read")
    done = subprocess.run([*become, *words], capture_output=True, text=True, check=False, timeout=60, cwd="/")
    assert done.returncode == 6
    assert re.search(r"^unknown  clock files .*root's to write  ->  sudo jetdvfs doctor tries$", done.stdout, re.MULTILINE)


def test_a_machine_that_is_no_board_is_told_so(tmp_path: Path) -> None:
    done = jetdvfs("doctor", "--root", tmp_path, "--socket", tmp_path / "socket", "--runtime-dir", tmp_path)
    assert done.returncode == 3
    assert re.search(r"^wrong    board +no described board fits this machine", done.stdout, re.MULTILINE)


def test_the_doctor_says_what_is_wrong_first_and_in_red_on_a_terminal_alone(tmp_path: Path) -> None:
    words = ("doctor", "--root", tmp_path, "--socket", tmp_path / "socket", "--runtime-dir", tmp_path)
    plain = jetdvfs(*words).stdout
    verdicts = [line.split()[0] for line in plain.splitlines()]
    assert verdicts == sorted(verdicts, key=["wrong", "note", "unknown", "ok"].index) and len(set(verdicts)) > 1
    assert on_terminal(*words, NO_COLOR="1") == plain
    assert on_terminal(*words, NO_COLOR="") == plain.replace("wrong   ", "\x1b[31mwrong   \x1b[0m")


def test_the_services_that_the_doctor_looks_for_are_those_that_the_unit_names() -> None:
    unit = (ROOT / "systemd" / "jetdvfsd.service").read_text()
    named = re.search(r"^Conflicts=(.*)$", unit, re.MULTILINE)
    assert named is not None
    assert {f"{name}.service" for name in CONFLICTS} <= set(named[1].split())
