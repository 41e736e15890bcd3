# SPDX-License-Identifier: Apache-2.0
"""What the verbs about one model have in common: a network's views, names, bad input and help."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jetdvfs.daemon.cli.verbs import JETDVFS, Program, parser_with
from jetdvfs.profiles.lab.cli.actions import LAB
from jetdvfs.profiles.reference import reference_model
from jetdvfs.tests.support.profiles.analytic import conv2d, network, relu
from jetdvfs.tests.support.profiles.only import NETWORK
from jetdvfs.tests.support.verbs import run, run_json


def test_the_fused_view_is_one_option_of_every_verb(
    simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    mobilenet = (str(reference_model("mobilenet_v2")), "--input", "1x3x224x224")
    data = run_json(capsys, "decompose", *mobilenet, "--fused")
    assert (data["kinds"]["fused_pointwise"], data["kinds"]["conv2d"], data["fused"]) == (10, 52, True)
    assert ", fused: 141 launches of" in run(capsys, "decompose", *mobilenet, "--fused")[1]
    profile = ("--profile", "small-sim")
    plain, fused = (run_json(capsys, "predict", *mobilenet, *profile, *option) for option in ((), ("--fused",)))
    assert fused["points"][0]["latency_ms"] < plain["points"][0]["latency_ms"]
    frozen = tmp_path / "frozen.json"
    frozen.write_text(json.dumps({**NETWORK.to_json(), "launches": [{**conv2d().to_json(), "kind": "conv2d_relu"}]}))
    assert run_json(capsys, "decompose", str(frozen))["fused"]
    note = "no model for conv2d_relu: the model of conv2d is used instead, less certainly"
    assert note in run(capsys, "predict", str(frozen), *profile)[1]
    plan = run_json(capsys, "plan", *mobilenet, *profile, "--fused", "--target", "min-energy")
    assert plan["choice"]["latency_ms"] in np.array(fused["latency_ms"])
    explained = run_json(capsys, "predict", "--explain", *mobilenet, *profile, "--fused")
    assert "fused_pointwise" in {part["kernel"]["kind"] for part in explained["kernels"]}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["predict", "absent.pt", "--input", "1x3x224x224", "--profile", "small-sim"], 3, "absent.pt"),
        (["predict", "absent.json", "--profile", "small-sim"], 3, "absent.json: No such file"),
        (["predict", "MODEL", "--profile", "other"], 3, "valid: small-sim"),
        (["predict", "MODEL", "--profile", "small-sim", "--config", "1,2"], 2, "expected CPU,GPU,EMC"),
        (["predict", "MODEL", "--profile", "small-sim", "--config", "1000,801,1600"], 2, "GPU 801 MHz is not a frequency"),
        (["predict", "MODEL", "--profile", "small-sim", "--save", "/no/folder/x.npz"], 3, "/no/folder/x.npz: cannot write"),
        (["predict", "MODEL", "--profile", "small-sim", "--method", "magic"], 2, "invalid choice"),
        (["plan", "MODEL", "--profile", "small-sim", "--target", "speed"], 2, "valid: latency_ms=NUMBER"),
        (["plan", "MODEL", "--profile", "small-sim", "--target", "latency_ms=0.001"], 4, "the lowest latency is"),
        (["plan", "MODEL", "--profile", "small-sim", "--target", "min-energy", "--fps", "1e5"], 4, "100000 frames per second"),
        (["plan", "MODEL", "--profile", "small-sim", "--target", "min-energy", "--confidence", "95"], 2, "confidence=95"),
        (["plan", "MODEL", "--profile", "small-sim"], 2, "expected a --target, or --batches with a --deadline"),
        (["plan", "MODEL", "--target", "min-energy"], 2, "--profile NAME, one of "),
        (["decompose", "MODEL", "--deptj", "2"], 2, "--deptj 2: not known"),
        (["decompos", "MODEL"], 2, "invalid choice: 'decompos'"),
        (["predict", "MODEL", "--profile", "small-sim", "--fused"], 3, "decompose the model's file again"),
        (["decompose", "MODEL", "--depth", "2"], 2, "together with --tree"),
        (["decompose", "MODEL", "--tree", "--depth", "-1"], 2, "from 0 on"),
        (["decompose", "MODEL", "--tree", "--launches"], 2, "ask for one of them"),
        (["decompose", "MODEL", "--profile", "other"], 3, "valid: small-sim"),
        (["decompose", "MODEL", "--plot", "/no/folder/x.png"], 3, "cannot write the picture (No such file or directory)"),
        (["predict", "any.pt", "--input", "0x3x224x224", "--profile", "small-sim"], 3, "0 leaves nothing to run"),
        (["decompose", "MODEL", "--plot", "/"], 3, "its name must end in .png"),
        (
            ["plan", "/no/such.pt", "--target", "min-energy", "--plot", "plan.txt"],
            3,
            "plan.txt: cannot write the picture: its",
        ),
        (
            ["paper", "characterize", "/no/such.pt", "--plot", "/no/folder/x.png"],
            3,
            "cannot write the picture (No such file or directory)",
        ),
    ],
)
def test_what_goes_wrong_ends_in_one_line_and_its_exit_code(
    arguments: list[str], code: int, says: str, model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, out, err = run(capsys, *(model if word == "MODEL" else word for word in arguments))
    assert (ended, out) == (code, "")
    assert says in err
    assert err.count("\n") == 1


def test_names_out_of_a_file_are_shown_as_they_stand(
    simulated: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="pictures are matplotlib's; it is not installed")
    odd = "\x1b[2J$\\frac$"
    named = network(conv2d(scope=odd), relu(1 << 18, kind=odd), name=odd)
    (tmp_path / "odd.json").write_text(json.dumps(named.to_json()))
    plot = ["--plot", str(tmp_path / "odd.png")]
    verbs = (["decompose", "--tree", *plot], ["decompose", "--launches"], ["plan", "--target", "min-energy", *plot])
    for verb in (*verbs, ["paper", "characterize", *plot], ["predict", "--explain"]):
        code, out, err = run(capsys, *verb, "--profile", "small-sim", "--", str(tmp_path / "odd.json"))
        drawn = f"drawn in {plot[1]}\n" if "--plot" in verb else ""
        assert (code, err) == (0, drawn) and "?[2J$" in out and "\x1b" not in out


def test_json_that_is_no_network_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("text.json", "not json"), ("list.json", "[]"), ("deep.json", "[" * 100_000)):
        (tmp_path / name).write_text(text)
        code, _, err = run(capsys, "decompose", str(tmp_path / name))
        assert (code, err.count("\n")) == (3, 1)


def test_a_warning_takes_one_line(model: str) -> None:
    words = ["decompose", model, "--profile", "agx-xavier-sim"]
    code = f"import sys; sys.modules['jetdvfs.kernels.trees._sweep'] = None; from jetdvfs.daemon.cli import main; main({words})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "warning: jetdvfs was installed without its C core: tree ensembles are evaluated by NumPy, slowly\n"


def parsers_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Parsers of all actions below a parser."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for inner in (inner for action in below for inner in action.choices.values()):
        yield from parsers_of(inner)
    if not below:
        yield parser


@pytest.mark.parametrize("program", [JETDVFS, LAB], ids=lambda program: program.name)
def test_help_has_examples_exit_codes_and_groups_of_options(program: Program) -> None:
    parser, _ = parser_with(program, {verb: program.module_of(verb) for verb in program.verbs})
    for action in parsers_of(parser):
        text = action.format_help()
        assert re.search(rf"^(?:example: |  )(?:sudo )?{action.prog}\b", text, re.MULTILINE), action.prog
        assert "4  target not attainable" in text
        assert len(action._optionals._group_actions) <= 10, f"{action.prog}: group its options"
