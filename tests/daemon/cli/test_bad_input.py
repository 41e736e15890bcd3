# SPDX-License-Identifier: Apache-2.0
"""What a user may hand over by mistake, or an enemy on purpose: one clear line, its exit code, nothing run, nothing changed."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.daemons.board_daemon import GPU, Board, Daemon, served_board
from jetdvfs.tests.support.models import handmade, handmade_onnx
from jetdvfs.tests.support.models.shrinking_file import shrinking
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.verbs import run_in

MODEL = REFERENCE / "squeezenet1_0.pt"
IMAGE = ("--input", "1x3x224x224")
CLI = [sys.executable, "-m", "jetdvfs.daemon.cli"]
# An installation without the C core says so in a warning, whatever it is asked.
QUIET = {"PYTHONWARNINGS": "ignore::RuntimeWarning"}
needs_fuse = pytest.mark.skipif(bool(fuse.missing()), reason=f"needs FUSE: {fuse.missing()}")


class Folder:
    """A user's folder, and the command line run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def jetdvfs(self, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return run_in(self.path, *arguments, **environment)

    def program(self, *command: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """A program, as a process of its own."""
        return subprocess.run(
            list(map(str, command)),
            cwd=self.path, env={**os.environ, **QUIET, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=60,
        )  # fmt: skip

    def refused(self, code: int, *arguments: object, command: list[str] | None = None, **environment: str) -> str:
        """The one line with which a verb ends that prints and changes nothing; of a process, if its command is given."""
        before = self.listing()
        words = [*(command or []), *arguments]
        done = self.program(*words, **environment) if command else self.jetdvfs(*words, **environment)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert done.stderr.startswith(f"jetdvfs {arguments[0]}: ") and done.stderr.count("\n") == 1, done.stderr
        assert self.listing() == before
        return done.stderr

    def listing(self) -> dict[str, tuple[int, int]]:
        found = {path: path.lstat() for path in self.path.rglob("*")}
        return {str(path): (status.st_mode, status.st_mtime_ns) for path, status in found.items() if not path.is_dir()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    path = tmp_path / "user"
    path.mkdir()
    return Folder(path)


def _truncated(path: Path) -> None:
    path.write_bytes(MODEL.read_bytes()[:-1000])


def _other_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("holiday.txt", "sun")


def _calls_the_system(path: Path) -> None:
    class Caller:
        def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
            return os.system, (f"touch {path.parent}/called",)

    path.write_bytes(handmade.archive(handmade.forward("return x"), data=pickle.dumps(Caller(), protocol=2)))


def _runs_python(path: Path) -> None:
    program = f"__import__('os').system('touch {path.parent}/called')"
    path.write_bytes(handmade.archive(handmade.forward(f"y = {program}", "return x")))


def _unknown_operator(path: Path) -> None:
    path.write_bytes(handmade.archive(handmade.forward("return torch.quantum_sort(x)")))


# What is not a model: how it is made, and what the line must name.
NO_MODELS: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (_truncated, "truncated"),
    "a zip of something else": (_other_zip, "not a TorchScript file"),
    "a pickle that calls os.system": (_calls_the_system, "system"),
    "code that is not TorchScript": (_runs_python, "code/__torch__.py"),
    "an unknown operator": (_unknown_operator, "aten::quantum_sort"),
    "empty": (Path.touch, "the file is empty"),
    "a text": (lambda path: path.write_text("no model"), "not a TorchScript file"),
    "a directory": (Path.mkdir, "no model in this folder"),
    "a named pipe": (os.mkfifo, "regular file"),
    "a link to nowhere": (lambda path: path.symlink_to("nowhere"), "No such file"),
}


@pytest.mark.parametrize("what", NO_MODELS)
def test_a_file_that_is_no_model_is_refused(what: str, folder: Folder) -> None:
    make, named = NO_MODELS[what]
    make(folder.path / "model.pt")
    line = folder.refused(3, "decompose", "model.pt", *IMAGE)
    assert named in line and "model.pt" in line
    assert not (folder.path / "called").exists()


def test_a_list_of_launches_is_refused_by_its_name(folder: Folder) -> None:
    (folder.path / "mine.json").write_text('{"launches": 3}')
    assert "mine.json" in folder.refused(3, "decompose", "mine.json")


def test_a_method_is_asked_of_a_file_that_has_methods(folder: Folder) -> None:
    (folder.path / "mine.json").write_text('{"launches": []}')
    assert "method 'encode'" in folder.refused(3, "decompose", "mine.json", "--method", "encode")


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        (["1x4x224x224"], "3 channels"),
        (["1x3x2x2"], "2x2"),
        (["3"], "3"),
        (["1x3x224x224", "1x3x224x224"], "2 were given"),
        (["99999999x3x9999x9999"], "elements"),
        (["1x3x224x224:int64"], "int64"),
        (["wide"], "like 1x3x224x224"),
        (["1x3x224x224:float99"], "valid: bool, uint8, "),
    ],
)
def test_an_input_that_the_model_cannot_take_is_refused(inputs: list[str], named: str, folder: Folder) -> None:
    assert named in folder.refused(3, "decompose", MODEL, *(word for text in inputs for word in ("--input", text)))


def _changed(bundle: Path, folder: Folder, **members: object) -> Path:
    other = folder.path / "other"
    shutil.copytree(bundle, other)
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps({**manifest, **members}))
    return other


def test_a_profile_for_another_board_is_refused(bundle: Path, folder: Folder) -> None:
    for board, named in (("tx2", "tx2"), ("toaster", "valid: ")):
        other = _changed(bundle, folder, board=board)
        line = folder.refused(3, "plan", MODEL, *IMAGE, "--profile", other, "--target", "min-energy")
        assert named in line and str(other) in line
        shutil.rmtree(other)


def test_a_damaged_profile_is_refused(bundle: Path, folder: Folder) -> None:
    other = _changed(bundle, folder)
    arrays = other / "board.npz"
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"x")
    assert "board.npz" in folder.refused(3, "predict", MODEL, *IMAGE, "--profile", other)
    assert "no-such-profile" in folder.refused(3, "predict", MODEL, *IMAGE, "--profile", "no-such-profile")


@pytest.mark.parametrize("target", ["latency_ms=0.001", "energy_mj=0.001", "power_mw=1"])
def test_a_target_nobody_can_meet_says_what_could_be_met(target: str, bundle: Path, folder: Folder) -> None:
    line = folder.refused(4, "plan", MODEL, *IMAGE, "--profile", bundle, "--target", target)
    assert target in line and "the lowest " in line


def test_the_code_of_a_refusal_is_that_of_the_process(bundle: Path, folder: Folder) -> None:
    _truncated(folder.path / "model.pt")
    folder.refused(3, "decompose", "model.pt", *IMAGE, command=CLI)
    folder.refused(4, "plan", MODEL, *IMAGE, "--profile", bundle, "--target", "power_mw=1", command=CLI)


def test_what_cannot_be_written_is_one_line(bundle: Path, folder: Folder) -> None:
    predict = ("predict", MODEL, *IMAGE, "--profile", bundle)
    assert "/proc/no/such.npz" in folder.refused(3, *predict, "--save", "/proc/no/such.npz")
    decompose = f"{sys.executable} -m jetdvfs.daemon.cli decompose {MODEL} {' '.join(IMAGE)}"
    full = folder.program("sh", "-c", f"{decompose} > /dev/full")
    assert (full.returncode, full.stderr) == (3, "jetdvfs decompose: No space left on device\n")
    gone = folder.program("sh", "-c", f"{decompose} --json | head -c 1")
    assert (gone.returncode, gone.stdout, gone.stderr) == (0, "{", "")


def test_a_picture_without_matplotlib_says_what_to_install(bundle: Path, folder: Folder) -> None:
    program = "import sys; sys.modules['matplotlib'] = None; from jetdvfs.daemon.cli import main; sys.exit(main())"
    plan = ("plan", MODEL, *IMAGE, "--profile", bundle, "--target", "min-energy", "--plot", "plan.png")
    assert "sudo apt-get install python3-matplotlib" in folder.refused(3, *plan, command=[sys.executable, "-c", program])


@needs_fuse
def test_a_file_that_shrinks_while_it_is_read_is_refused(folder: Folder, tmp_path: Path) -> None:
    with shrinking(MODEL, tmp_path / "mount") as path:
        assert path.stat().st_size == MODEL.stat().st_size
        assert path.name in folder.refused(3, "decompose", path, *IMAGE)


def _steered(line: str, *more: str) -> bytes:
    """A TorchScript file that goes on by the numbers in a tensor."""
    return handmade.archive(handmade.forward("y = torch.relu(x)", line, *more))


# Models whose launches are known only up to an operator: the file, and the operator.
PARTS: dict[str, tuple[str, bytes, str]] = {
    "elements that are not zero": ("model.pt", _steered("return torch.nonzero(y)"), "aten::nonzero"),
    "a mask": ("model.pt", _steered("return torch.index(y, [torch.gt(y, 0)])"), "aten::index"),
    "a number taken out": ("model.pt", _steered("return torch.mul(y, int(torch.sum(y)))"), "builtin::int"),
    "a branch": ("model.pt", _steered("if bool(torch.sum(y)):", "  y = torch.relu(y)", "return y"), "builtin::bool"),
    "ONNX": (
        "model.onnx",
        handmade_onnx.model(
            handmade_onnx.graph(
                [handmade_onnx.node("Relu", ["x"], ["a"]), handmade_onnx.node("NonZero", ["a"], ["y"])],
                [handmade_onnx.declared("x", (1, 3, 224, 224))],
                ["y"],
            )
        ),
        "onnx::NonZero",
    ),
}


@pytest.mark.parametrize("what", PARTS)
def test_a_model_that_is_listed_in_part_is_not_planned_as_if_that_were_all(what: str, bundle: Path, folder: Folder) -> None:
    name, content, operator = PARTS[what]
    (folder.path / name).write_bytes(content)
    listed = folder.jetdvfs("decompose", name, *IMAGE)
    assert listed.returncode == 0 and f"decomposed up to {operator} at " in listed.stderr
    plan = ("plan", name, *IMAGE, "--profile", bundle, "--target", "min-energy")
    for accepted in ((), ("--accept-boundary", "torchvision::nms")):
        line = folder.refused(3, *plan, *accepted)
        assert f"ends at {operator}" in line and f"--accept-boundary {operator}" in line
    done = folder.jetdvfs(*plan, "--accept-boundary", operator)
    assert (done.returncode, done.stderr) == (0, "") and f"a part of the network: decomposed up to {operator} at" in done.stdout


WRONG_INPUTS = {"1x-3": "like 1x3x224x224:float32", "0x3": "a size of 0", "1x3:float31": "valid: bool, uint8, "}


@pytest.mark.parametrize("verb", ["decompose", "predict", "plan", "hold"])
@pytest.mark.parametrize("text", WRONG_INPUTS)
def test_an_input_that_cannot_be_is_refused_alike_by_every_verb(verb: str, text: str, bundle: Path, folder: Folder) -> None:
    profile = () if verb in ("decompose", "hold") else ("--profile", bundle)
    target = ("--target", "min-energy") if verb in ("plan", "hold") else ()
    said = folder.refused(3, verb, MODEL, "--input", text, *profile, *target)
    assert said.startswith(f"jetdvfs {verb}: input ") and WRONG_INPUTS[text] in said


@pytest.fixture(scope="module")
def board() -> Iterator[Board]:
    home = Path(tempfile.mkdtemp(prefix="board-"))
    with served_board(home / "root", "auto") as board:
        yield board
    shutil.rmtree(home)


@pytest.fixture(scope="module")
def daemon(board: Board, bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(board, tmp_path_factory.mktemp("daemon"), "--profile", str(bundle))
    daemon.client().close()
    yield daemon
    assert daemon.stop() == 0, daemon.log.read_text()


@pytest.fixture
def hold(board: Board, daemon: Daemon, folder: Folder) -> Iterator[Callable[..., str]]:
    """Ask the running daemon for something that it must refuse: nothing is held, written or left afterwards."""
    found = board.settings()

    def refused(code: int, *arguments: object) -> str:
        return folder.refused(
            code, "hold", *arguments, "--", "touch", folder.path / "called", JETDVFS_SOCKET=str(daemon.socket)
        )

    yield refused
    assert not (folder.path / "called").exists()
    with daemon.client() as client:
        status = client.status()
    assert (status["leases"], status["baseline"]) == ([], "none")
    assert board.settings() == found


@pytest.mark.parametrize("what", NO_MODELS)
def test_the_daemon_refuses_a_file_that_is_no_model(what: str, hold: Callable[..., str], folder: Folder) -> None:
    make, _ = NO_MODELS[what]
    make(folder.path / "model.pt")
    hold(3, "model.pt", *IMAGE, "--target", "min-energy")


@pytest.mark.parametrize("what", PARTS)
def test_the_daemon_refuses_a_model_that_is_listed_in_part(what: str, hold: Callable[..., str], folder: Folder) -> None:
    name, content, operator = PARTS[what]
    (folder.path / name).write_bytes(content)
    asked = (name, *IMAGE, "--target", "min-energy")
    assert f"ends at {operator}" in hold(3, *asked)
    assert f"ends at {operator}, not at prim::If" in hold(3, *asked, "--accept-boundary", "prim::If")


def test_a_part_that_is_accepted_is_held_and_says_what_it_is(board: Board, daemon: Daemon, folder: Folder) -> None:
    name, content, operator = PARTS["a mask"]
    (folder.path / name).write_bytes(content)
    found = board.settings()
    asked = ("hold", name, *IMAGE, "--target", "min-energy", "--accept-boundary", operator, "--", *CLI, "status")
    done = folder.program(*CLI, *asked, JETDVFS_SOCKET=str(daemon.socket))
    assert done.returncode == 0 and f", for a part of the network: up to {operator} at " in done.stderr, done.stderr
    assert f"planned for a part of the network: up to {operator} at " in done.stdout
    assert board.settings() == found


def test_the_daemon_refuses_an_input_of_the_wrong_shape(hold: Callable[..., str]) -> None:
    assert "3 channels" in hold(3, MODEL, "--input", "1x4x224x224", "--target", "min-energy")


def test_the_daemon_refuses_a_target_nobody_can_meet(hold: Callable[..., str]) -> None:
    assert "latency_ms=0.001" in hold(4, MODEL, *IMAGE, "--target", "latency_ms=0.001")


def test_the_daemon_refuses_clocks_that_the_board_does_not_have(hold: Callable[..., str]) -> None:
    assert "CPU 1200 MHz may not be set; nearest: 1190.4 and 1267.2 MHz" in hold(2, "--config", "1200,675.75,1600")
    assert "expected CPU,GPU,EMC in MHz" in hold(2, "--config", "1190.4,675.75")


def test_a_command_that_turns_out_to_be_no_program_leaves_nothing_held(board: Board, daemon: Daemon, folder: Folder) -> None:
    found = board.settings()
    program = folder.path / "program"
    program.write_bytes(b"\1\2\3")
    program.chmod(0o755)
    done = folder.program(*CLI, "hold", "--config", "1190.4,675.75,1600", "--", program, JETDVFS_SOCKET=str(daemon.socket))
    assert (done.returncode, done.stdout) == (126, "")
    assert done.stderr.endswith(f"jetdvfs hold: {program}: Exec format error\n")
    with daemon.client() as client:
        assert client.status()["leases"] == []
    assert board.settings() == found


@pytest.mark.parametrize("words", [("--fps", "nan"), ("--fps", "inf"), ("--confidence", "nan")])
def test_the_daemon_is_not_asked_for_what_is_no_number(words: tuple[str, str], hold: Callable[..., str]) -> None:
    said = hold(2, MODEL, *IMAGE, "--target", "min-energy", *words)
    assert f"{words[0][2:]}={words[1]}: expected a number" in said


@needs_fuse
def test_the_daemon_refuses_a_model_that_shrinks_while_it_is_read(hold: Callable[..., str], tmp_path: Path) -> None:
    with shrinking(MODEL, tmp_path / "mount") as path:
        assert "shrank" in hold(3, path, *IMAGE, "--target", "min-energy")


@needs_fuse
def test_a_frequency_file_that_refuses_is_named_and_what_was_written_before_it_goes_back(
    hold: Callable[..., str], board: Board
) -> None:
    board.twin.faults.refuse(f"/{GPU}/userspace/set_freq")
    try:
        assert "userspace/set_freq" in hold(5, "--config", "1190400,675750000,1600000000")
    finally:
        board.twin.faults.clear()
