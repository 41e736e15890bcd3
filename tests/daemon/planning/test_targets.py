# SPDX-License-Identifier: Apache-2.0
"""A target is one class: it is understood, planned for, and listed wherever targets are."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from msgspec.structs import replace

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.errors import UsageError
from jetdvfs.daemon.planning import targets
from jetdvfs.daemon.wire.calls import PUBLIC
from jetdvfs.daemon.wire.definition import definition
from jetdvfs.tests.support.paths import ROOT

# A class stays a target as long as its interpreter runs: this one has an interpreter of its own.
NEW_TARGET = """
import contextlib
from msgspec.structs import replace
from jetdvfs.daemon.planning.targets import UnboundedTarget

class MinPower(UnboundedTarget):
    keyword = "min-power"
    prefers = "power_mw"

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.errors import UsageError
from jetdvfs.daemon.planning.plan import plan
from jetdvfs.daemon.planning.targets import listing
from jetdvfs.daemon.wire.calls import PUBLIC
from jetdvfs.daemon.wire.definition import definition
from jetdvfs.kernels.cost.model import surface
from jetdvfs.tests.support.profiles.analytic import board, conv2d, network

predicted = surface(network(conv2d()), board())
chosen = plan(predicted, "min-power")
assert chosen.power_mw < 1.001 * predicted.power_mw.min(), chosen
print("plan:", chosen.reason)
for verb in ("plan", "hold"):
    with contextlib.suppress(SystemExit):
        main([verb, "--help"])
try:
    plan(predicted, "min-weight")
except UsageError as error:
    print("refused:", error)
print(definition(replace(PUBLIC, lists={"targets": listing()})))
"""


def test_adding_a_target_is_adding_a_class() -> None:
    done = subprocess.run([sys.executable, "-c", NEW_TARGET], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("plan: Lowest power of ") for line in lines)
    assert any(line.startswith("refused: target 'min-weight'; did you") and line.endswith(", min-power") for line in lines)
    listed = [line.split() for line in lines if "the lowest power" in line]
    assert listed == [["min-power", "the", "lowest", "power"]] * 2 + [["#", "min-power", "the", "lowest", "power"]]


@pytest.mark.parametrize("verb", ["plan", "hold"])
def test_the_help_lists_every_target_with_its_meaning(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    for target in targets.target_classes():
        example = target.example()
        assert targets.parse_target(str(example)) == example
        assert any(line.startswith(f"{example} ") and line.endswith(example.meaning) for line in shown)


def test_the_interface_lists_every_target_in_comments() -> None:
    served = definition(replace(PUBLIC, lists={"targets": targets.listing()}))
    for target in targets.target_classes():
        assert f"# {target.example()} " in served

    def without_comments(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.startswith("#")]

    assert without_comments(served) == without_comments(definition(PUBLIC))


def test_the_readme_names_the_command_that_lists_them() -> None:
    assert "`jetdvfs plan --help`" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("20ms", "latency_ms=20"),
        (" 20 ms ", "latency_ms=20"),
        ("latency=20ms", "latency_ms=20"),
        ("latency <= 0.02 s", "latency_ms=20"),
        ("latency_ms<=20", "latency_ms=20"),
        ("500us", "latency_ms=0.5"),
        ("33.333333ms", "latency_ms=33.333333"),
        ("8W", "power_mw=8000"),
        ("power=8.1W", "power_mw=8100"),
        ("power<=900mW", "power_mw=900"),
        ("0.5J", "energy_mj=500"),
        ("energy=50mJ", "energy_mj=50"),
        ("ttft<=0.8s", "ttft_ms=800"),
        ("tokens_per_s>=20", "tokens_per_s=20"),
        ("hours>=6", "hours=6"),
        ("min-energy", "min-energy"),
    ],
)
def test_a_limit_may_have_a_unit(text: str, canonical: str) -> None:
    assert str(targets.parse_target(text)) == canonical
    assert targets.parse_target(canonical) == targets.parse_target(text)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("20", "expected a number with one of the units us, ms, s, mJ, J, mW, W;"),
        ("8w", "expected a number with one of the units us, ms, s, mJ, J, mW, W;"),
        ("8MW", "expected a number with one of the units us, ms, s, mJ, J, mW, W;"),
        ("latency=20", "or latency=NUMBER with one of the units us, ms, s"),
        ("latency=20W", "or latency=NUMBER with one of the units us, ms, s"),
        ("power=8mw", "or power=NUMBER with one of the units mW, W"),
        ("latency=1e9s", "expected latency_ms=NUMBER, with a number from 0.001 to 10000000"),
        ("speed=20ms", "expected one of latency, ttft, energy, power with a unit; valid: latency_ms=NUMBER"),
        ("latency_ms=20ms", "expected latency_ms=NUMBER"),
        ("latency>=20ms", "valid: latency_ms=NUMBER"),
        ("tokens_per_s<=20", "valid: latency_ms=NUMBER"),
        ("min-energy<=3", "valid: latency_ms=NUMBER"),
        ("-20ms", "valid: latency_ms=NUMBER"),
        ("", "valid: latency_ms=NUMBER"),
    ],
)
def test_a_missing_or_unknown_unit_is_refused_with_the_valid_ones(text: str, valid: str) -> None:
    with pytest.raises(UsageError, match=re.escape(valid)) as caught:
        targets.parse_target(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["1" * 20_000 + "!", " " * 20_000 + "!", "latency" + " " * 20_000 + "20ms", "." * 20_000 + "ms"]
)
def test_a_long_text_is_refused_at_once(text: str) -> None:
    with pytest.raises(UsageError):
        targets.parse_target(text)
