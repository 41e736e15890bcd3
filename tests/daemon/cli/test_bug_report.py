# SPDX-License-Identifier: Apache-2.0
"""The archive for a bug report: its facts, its placeholders, and its writing."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.daemon.cli.placeholders import Placeholders
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.verbs import on_terminal, run_in

HOST, USER, PERSON, MAC, MACHINE = (
    "gripper-17",
    "marlene",
    "Marlene Weber",
    "48:b0:2d:1a:22:33",
    "9e107d9d372bb6826bd81d3542a419d6",
)
PRIVATE = (HOST, USER, "Weber", "my robots", "secret net", MAC, MAC.replace(":", ""), MACHINE, "10.1.2.3", "fe80::4ab0")


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    """A simulated board with names of its own, below a path that names its user."""
    root = tmp_path / USER / "board"
    root.parent.mkdir()
    twin = simulated_board("agx-xavier")
    with serve(twin, root, "folder"):
        for path, text in {
            "etc/hostname": HOST,
            "etc/machine-id": MACHINE,
            "etc/passwd": f"root:x:0:0:root:/root:/bin/sh\n{USER}:x:1000:1000:{PERSON},,,:/home/{USER}:/bin/sh",
            "sys/class/net/eth0/address": MAC,
        }.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"{text}\n")
        yield Board(twin, root)


@pytest.fixture
def words(board: Board, tmp_path: Path) -> list[object]:
    """The command line on a board without a daemon."""
    config = tmp_path / "my robots" / "jetdvfsd.yaml"
    config.parent.mkdir()
    config.write_text(f"default: {{model: /home/{USER}/secret net.pt, input: [1x3x224x224], target: min-energy}}\n")
    folders = ("--state-dir", tmp_path / "state", "--runtime-dir", tmp_path / "runtime")
    return ["--root", board.root, "--config", config, "--socket", tmp_path / "run" / "jetdvfs.sock", *folders]


def members(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        return {Path(one.name).name: tar.extractfile(one).read().decode() for one in tar}  # type: ignore[union-attr]


def doctor(folder: Path, *arguments: object) -> Any:
    return run_in(folder, "doctor", "--bug-report", *arguments)


def test_the_archive_tells_the_state_and_no_name_of_host_user_path_or_serial_number(
    board: Board, words: list[object], tmp_path: Path
) -> None:
    serial = board.read("sys/firmware/devicetree/base/serial-number").strip("\0")
    config = words[3]
    with Daemon(board, tmp_path, "--config", str(config)) as daemon, daemon.client() as client:
        assert eventually(lambda: any("secret net" in one for one in client.status()["degraded"]))
        reason = f"{PERSON} ({USER}@{HOST}, http://{HOST}.lan:8000/v1) at 10.1.2.3, fe80::4ab0, {MAC}, {serial}, "
        reason += MAC.replace(":", "")
        with client.hold(configuration="max", reason=reason, app=f"{USER}s-app"):
            done = doctor(tmp_path, "report.tar.gz", *words)
    assert (done.returncode, done.stderr) == (0, "")
    bytes_ = (tmp_path / "report.tar.gz").read_bytes()
    everything = (bytes_ + gzip.decompress(bytes_)).lower()
    assert not [name for name in (*PRIVATE, serial, str(tmp_path), tmp_path.name) if name.lower().encode() in everything]
    told = members(tmp_path / "report.tar.gz")
    (lease,) = json.loads(told["status.json"])["leases"]
    assert lease["app"].startswith("<user-") and lease["reason"].count("<serial>") == 3 and "<host>" in lease["reason"]
    about = json.loads(told["board.json"])
    assert about["board"] == about["description"]["name"] == "agx-xavier" and "nvidia,tegra194" in str(about["compatible"])
    versions = json.loads(told["versions.json"])
    assert versions["l4t"] == about["l4t"] and {"jetdvfs", "python", "kernel", "jetpack", "numpy"} <= versions.keys()
    model = json.loads(told["configuration.json"])["members"]["default.model"]
    assert model["value"].startswith("<path-") and model["file"].startswith("<path-") and model["line"] == 1
    assert {one["check"] for one in json.loads(told["doctor.json"])} >= {"board", "daemon", "configuration"}
    assert "lease begun" in told["log.txt"] and "GPU" in told["why.txt"]
    assert "/sys/" in told["board.json"]


def test_members_and_sizes_are_shown_and_one_placeholder_is_one_name(words: list[object], tmp_path: Path) -> None:
    done = doctor(tmp_path, "--dry-run", *words)
    assert done.returncode == 0 and done.stdout.endswith("nothing was written\n") and not [*tmp_path.glob("*.tar.gz")]
    assert done.stdout.startswith("jetdvfs-agx-xavier-20") and "== doctor.json" in done.stdout
    shown = json.loads(doctor(tmp_path, "--dry-run", "--json", *words).stdout)
    assert shown["written"] is False and shown["replaced"]["path"] > 1
    (tmp_path / "there").touch()
    assert doctor(tmp_path, "there", "--dry-run", *words).returncode == 0
    written = json.loads(doctor(tmp_path, "--json", *words).stdout)
    (path,) = tmp_path.glob("jetdvfs-agx-xavier-*.tar.gz")
    assert (written["file"], written["written"]) == (path.name, True)
    found = members(path)
    assert {one["name"]: one["bytes"] for one in written["members"]} == {name: len(text) for name, text in found.items()}
    assert {one["name"]: one["text"] for one in written["members"]} == found


def test_on_a_terminal_the_text_is_shown_and_a_no_writes_nothing(
    words: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("show\nno\n"))
    done = doctor(tmp_path, "report.tar.gz", *words)
    assert done.returncode == 0 and "== versions.json" in done.stderr and done.stderr.count("[y]es, [n]o") == 2
    assert done.stdout.endswith("nothing was written\n") and not (tmp_path / "report.tar.gz").exists()
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert doctor(tmp_path, "report.tar.gz", *words).stdout.endswith("written; attach it to your report\n")
    assert "write " not in on_terminal("doctor", "--bug-report", tmp_path / "other.tar.gz", "--yes", *words)
    assert (tmp_path / "other.tar.gz").exists()


def test_a_machine_that_is_no_board_without_a_daemon_has_a_report(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    done = doctor(tmp_path, "--root", root, "--socket", tmp_path / "none.sock", "--runtime-dir", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = tmp_path.glob("jetdvfs-unknown-board-*.tar.gz")
    found = members(path)
    assert "no described board" in json.loads(found["board.json"])["error"]
    assert "no daemon" in json.loads(found["status.json"])["error"] and "why.txt" not in found


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("there", 2, "exists; expected the name of a new file"),
        ("link", 2, "exists; expected the name of a new file"),
        ("missing/report.tar.gz", 2, "no folder"),
        ("/proc/report.tar.gz", 3, "cannot be written"),
    ],
)
def test_a_file_that_exists_or_cannot_be_written_is_refused_in_one_line(
    name: str, code: int, said: str, words: list[object], tmp_path: Path
) -> None:
    (tmp_path / "there").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    done = doctor(tmp_path, name, *words)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1) and said in done.stderr
    assert (tmp_path / "there").read_text() == "kept" and not (tmp_path / "nowhere").exists()


def test_a_full_disk_leaves_no_half_of_an_archive(words: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    done = doctor(tmp_path, "report.tar.gz", *words)
    assert done.returncode == 3 and "No space left on device" in done.stderr
    assert not [path for path in tmp_path.iterdir() if "report" in path.name]


def test_options_of_a_report_need_one(tmp_path: Path) -> None:
    for option in ("--yes", "--dry-run"):
        done = run_in(tmp_path, "doctor", option, "--root", tmp_path)
        assert (done.returncode, done.stderr) == (2, "jetdvfs doctor: --yes and --dry-run need --bug-report\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("12:34:56  lease begun", "12:34:56  lease begun"),
        ("aten::index of 5.15.148-tegra, L4T 36.4.3", "aten::index of 5.15.148-tegra, L4T 36.4.3"),
        ("30 frames/s at CPU/GPU/EMC", "30 frames/s at CPU/GPU/EMC"),
        ("/sys/devices/17000000.gpu/devfreq: EACCES", "/sys/devices/17000000.gpu/devfreq: EACCES"),
        ("/sys/../home/x: no", "<path-1>: no"),
        ("see /opt/a.yaml, ~/b and ./c/d.", "see <path-1>, <path-2> and <path-3>."),
        ("/opt/a.yaml or '/opt/a.yaml'", "<path-1> or '<path-1>'"),
        ("2001:db8::1 and 192.168.0.4 and 192.168.0.4", "<address-1> and <address-2> and <address-2>"),
    ],
)
def test_a_placeholder_replaces_names_and_leaves_other_text(text: str, shown: str, tmp_path: Path) -> None:
    assert Placeholders(tmp_path).value({"said": [text]}) == {"said": [shown]}


@pytest.mark.parametrize(
    ("host", "text", "shown"),
    [
        ("orin", "agx-orin-64gb is a Jetson AGX Orin", "agx-orin-64gb is a Jetson AGX Orin"),
        ("jetson-nano", "jetson-nano", "jetson-nano"),
        ("orin-1", "orin-16gb is on orin-1 and ORIN-1.lan", "orin-16gb is on <host> and <host>.lan"),
        ("ox", "a box, ox and ox_1", "a box, <host> and <host>_1"),
        ("wiesel", "wieſel and wiesels", "<host> and <host>s"),
    ],
)
def test_names_of_boards_stay_though_a_host_is_called_so(host: str, text: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "hostname").write_text(f"{host}\n")
    assert Placeholders(tmp_path).value(text).replace("<user-1>", "<host>") == shown


def test_short_relative_paths_replace_no_other_words(tmp_path: Path) -> None:
    hidden = Placeholders(tmp_path, ["s", "board", ".", "/", "own.yaml", "/srv/my files"])
    text = "status of the board; own.yaml, line 3; /srv/my files/x.pt: none"
    assert hidden.value(text) == "status of the board; <path-1>, line 3; <path-2>: none"
