# SPDX-License-Identifier: Apache-2.0
"""What a person types by mistake, interrupts, or reads on an old terminal: one line, and an exit code a script can use."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from jetdvfs.daemon.cli.verbs import parser_with
from jetdvfs.profiles.lab.cli.actions import LAB
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.verbs import run_in

CLI = [sys.executable, "-m", "jetdvfs.daemon.cli"]
MODEL = REFERENCE / "squeezenet1_0.pt"


def jetdvfs(*words: object) -> subprocess.CompletedProcess[str]:
    """A verb that finds no daemon, in this process."""
    return run_in(Path.cwd(), *words, JETDVFS_SOCKET="/nonexistent/socket")


def process(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A verb as a process of its own."""
    env = {**os.environ, **environment}
    return subprocess.run([*CLI, *map(str, words)], capture_output=True, text=True, check=False, env=env, timeout=60)


@pytest.mark.parametrize("words", [("sleep",), ("sleep", "1"), ("--config", "1190.4,675.75,1600", "sleep", "1")])
def test_a_command_without_dashes_before_it_is_told_where_it_stands(words: tuple[str, ...]) -> None:
    done = jetdvfs("hold", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "a command follows --" in done.stderr


def test_a_command_that_cannot_be_run_ends_as_in_a_shell_before_anything_is_held(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for command, code, says in (
        ("nosuchcmd", 127, "no such command"),
        ("", 127, "no such command"),
        (plain, 126, "cannot be executed"),
    ):
        done = jetdvfs("hold", "--config", "1190.4,675.75,1600", "--", command)
        assert (done.returncode, done.stdout, done.stderr) == (code, "", f"jetdvfs hold: {command}: {says}\n")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("hold", "--config", "1190.4,675.75,1600", "--fps", "30", "--", "true"), "--fps needs --target"),
        (
            ("hold", "--config", "1190.4,675.75,1600", "--input", "1x3", "--confidence", "0.9"),
            "--confidence, --input need --target",
        ),
        (("hold", "--config", ""), "configuration ''"),
        (
            ("predict", "--explain", MODEL, "--input", "1x3x224x224", "--profile", "agx-xavier-sim", "--config", ""),
            "configuration ''",
        ),
        (("predict", MODEL, "--save", ""), "--save: expected the name of a file"),
        (("plan", MODEL, "--target", "min-energy", "--plot", ""), "--plot: expected the name of a file"),
        (("board", "--root", "/nonexistent"), "--root: expected a folder, got '/nonexistent'"),
        (("doctor", "--root", ""), "--root: expected a folder, got ''"),
        (("restore", "--root", "/nonexistent"), "--root: expected a folder"),
        (("twin", "serve", "--mount", "x", "--seed", "-1"), "--seed: expected a whole number from 0"),
        (("twin", "serve", "--mount", "x", "--as", "engine", "--replay", "x", "--data", "."), "--as goes without --replay"),
        (("twin", "demo", "--seed", "1.5"), "--seed: expected a whole number from 0"),
    ],
)
def test_what_says_nothing_is_told_and_not_passed_over(words: tuple[str, ...], named: str, tmp_path: Path) -> None:
    done = run_in(tmp_path, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert named in done.stderr and not list(tmp_path.iterdir())


def test_wrong_usage_is_one_line_of_the_process_and_its_code() -> None:
    done = process("stauts")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_the_daemon_tells_wrong_usage_in_one_line_too() -> None:
    command = [sys.executable, "-m", "jetdvfs.daemon.service", "--nosuch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (2, "jetdvfsd: --nosuch: not known; 'jetdvfsd --help' says more\n")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("stauts",), "'status'"),
        (("profile", "instal", "x"), "'install'"),
        (("status", "--jsn"), "'--json'"),
        (("profile", "list", "--jsn"), "'--json'"),
        (("plan", MODEL, "--target", "min-energy", "--confidnce=0.9"), "'--confidence'"),
        (("predict", MODEL, "--method", "timelin"), "'timeline'"),
    ],
)
def test_a_slip_of_the_keys_is_told_what_was_meant(words: tuple[str, ...], meant: str) -> None:
    done = jetdvfs(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"did you mean {meant}?" in done.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("twin", "demo", "--board", "agx-orin-64g"), "'agx-orin-64gb'"),
        (("setup", "--board", "agx-orin-64g"), "'agx-orin-64gb'"),
        (("twin", "serve", "--board", "xavier-nxx", "--mount", "board"), "'xavier-nx'"),
        (("board", "show", "orin-nanoo-8gb"), "'orin-nano-8gb'"),
        (("plan", MODEL, "--target", "min-energy", "--profile", "agx-xavier-simulated"), "'agx-xavier-sim'"),
        (("setup", "--prior", "agx-xaviersim", "--board", "agx-xavier"), "'agx-xavier-sim'"),
        (("profile", "show", "tx2sim"), "'tx2-sim'"),
    ],
)
def test_a_misspelt_board_or_profile_is_told_which_was_meant(words: tuple[str, ...], meant: str) -> None:
    done = jetdvfs(*words)
    assert (done.returncode in (2, 3), done.stdout, done.stderr.count("\n")) == (True, "", 1), done.stderr
    assert f"did you mean {meant}? valid: " in done.stderr


def test_a_word_that_is_close_to_none_has_no_guess() -> None:
    assert "did you mean" not in jetdvfs("zzz").stderr + jetdvfs("status", "--zzz").stderr


def test_an_image_without_a_batch_is_asked_for_it() -> None:
    done = jetdvfs("decompose", REFERENCE / "resnet18.pt", "--input", "3x224x224")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert done.stderr.endswith("batch missing? 1x3x224x224:float32\n")


def test_a_network_that_is_no_language_model_has_no_phases() -> None:
    done = jetdvfs("decompose", REFERENCE / "resnet18.pt", "--prefill", "512")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert done.stderr.endswith("1 were given; prefill and decode are asked of language models (GGUF, safetensors)\n")


@pytest.mark.parametrize("after_s", [0.001, 0.03, 0.1, 0.3, 0.6])
def test_an_interrupt_ends_in_one_line_whenever_it_comes(after_s: float) -> None:
    # The time runs from the command's first import on: before it there is no command to interrupt.
    program = f"""
import signal, sys
from jetdvfs.daemon.cli import main

class Arming:
    @staticmethod
    def find_spec(*_):
        sys.meta_path.remove(Arming)
        signal.setitimer(signal.ITIMER_REAL, {after_s})

sys.meta_path.insert(0, Arming)
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
code = main()
signal.setitimer(signal.ITIMER_REAL, 0)
sys.exit(code)
"""
    words = ["predict", str(MODEL), "--input", "64x3x224x224", "--profile", "agx-xavier-sim", "--json"]
    # An installation without the C core says so in a warning, whenever it is interrupted.
    env = {**os.environ, "PYTHONWARNINGS": "ignore::RuntimeWarning"}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    ended_before = done.returncode == 0 and not done.stderr
    assert ended_before or (done.returncode, done.stderr) == (130, "jetdvfs predict: interrupted\n")


def test_a_console_that_tells_no_size_has_80_columns() -> None:
    screen, console = pty.openpty()  # like a serial line's, of no columns and no rows
    plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    words = [sys.executable, "-m", "jetdvfs.daemon.cli", "release", "--help"]
    with subprocess.Popen(words, stdin=console, stdout=console, cwd="/", env=plain) as program:
        os.close(console)
        shown = b""
        with contextlib.suppress(OSError):  # its end
            while part := os.read(screen, 1 << 16):
                shown += part
        assert program.wait() == 0
    os.close(screen)
    usage = shown.decode().splitlines()[0]
    assert 40 < len(usage) <= 80, usage


def test_a_terminal_that_knows_ascii_only_shows_what_it_can(tmp_path: Path) -> None:
    model = tmp_path / "modèle.pt"
    model.write_bytes(MODEL.read_bytes())
    done = process("decompose", model, "--input", "1x3x224x224", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mod?le")


@pytest.mark.parametrize("words", ["nano-sim a b --board tx2", "nano-sim --board tx2 a b", "nano-sim a --board tx2 b"])
def test_options_may_stand_between_the_names_of_models(words: str) -> None:
    parser, _ = parser_with(LAB, {"compare": LAB.module_of("compare")})
    args, unknown = parser.parse_known_args(["compare", "transfer", *words.split()])
    assert (args.profile, args.models, args.board, unknown) == ("nano-sim", ["a", "b"], "tx2", [])
