# SPDX-License-Identifier: Apache-2.0
"""The pages of man: rendered without a warning, and saying of every verb, option and member what there is to say."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from jetdvfs.daemon import config
from jetdvfs.daemon.cli.verbs import VERBS
from jetdvfs.docs import manual


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("man")
    manual.main(folder)
    return {path.name: path for path in folder.iterdir()}


def shown(page: Path) -> str:
    """A page as it is read, on one line."""
    program = shutil.which("mandoc")
    if program is None:
        pytest.skip("needs mandoc")
    done = subprocess.run([program, "-T", "ascii", page], capture_output=True, text=True, check=True)
    return " ".join(re.sub(".\b", "", done.stdout).split())


def test_there_is_a_page_for_commands_files_and_the_service(pages: Mapping[str, Path]) -> None:
    assert pages.keys() == {"jetdvfs.1", "jetdvfs-lab.1", "jetdvfsd.yaml.5", "jetdvfsd.8"}


@pytest.mark.parametrize("command", [("groff", "-man", "-ww", "-z", "-Tutf8"), ("mandoc", "-Tlint", "-Wwarning")])
def test_pages_render_without_a_warning(pages: Mapping[str, Path], command: tuple[str, ...]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    for page in pages.values():
        done = subprocess.run([*command, page], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_verb_is_there_with_its_options_and_all_of_its_help(pages: Mapping[str, Path]) -> None:
    text = shown(pages["jetdvfs.1"])
    for verb in VERBS:
        assert f"jetdvfs {verb} [" in text or f"jetdvfs {verb} (" in text or f"jetdvfs {verb} A" in text, verb
    assert "--accept-boundary OPERATOR accept a list of kernels that ends early at this operator" in text
    assert "latency_ms=50 the least energy with latency at most 50 ms" in text
    assert "jetdvfs profile list" in text and "6 no daemon" in text


def test_every_member_of_the_configuration_is_there_and_the_example_is_sound(pages: Mapping[str, Path], tmp_path: Path) -> None:
    source = pages["jetdvfsd.yaml.5"].read_text().replace("\\-", "-")
    example = re.search(r"^\.nf\n(.*?)^\.fi", source, re.MULTILINE | re.DOTALL)
    assert example is not None
    path = tmp_path / "jetdvfsd.yaml"
    path.write_text(example[1])
    reading = config.read_config(path)
    assert not reading.problems
    assert {warning.text for warning in reading.warnings} == {"cpu_leader is ignored without cpu_clusters: apart"}
    members = set(config.Members.__struct_fields__)
    assert yaml.safe_load(example[1]).keys() == members
    text = shown(pages["jetdvfsd.yaml.5"])
    assert all(f" {member}" in text for member in members)
    assert "limits.cpu_khz.min a positive whole number; default: nothing" in text
