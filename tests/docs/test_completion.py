# SPDX-License-Identifier: Apache-2.0
"""Completion, as the shells themselves answer."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jetdvfs.docs import completion

ASKED: tuple[tuple[str, set[str], set[str]], ...] = (
    ("jetdvfs ho", {"hold"}, {"status"}),
    ("jetdvfs hold --conf", {"--config", "--confidence"}, {"--json"}),
    ("jetdvfs config ", {"check", "show"}, {"hold"}),
    ("jetdvfs twin serve --board agx-o", {"agx-orin-32gb", "agx-orin-64gb"}, {"agx-xavier"}),
    ("jetdvfs plan --profile agx-", {"agx-xavier-sim", "agx-orin-64gb-sim"}, set()),
    ("jetdvfs plan --target min", {"min-energy", "min-edp"}, {"latency_ms=50"}),
    ("jetdvfs decompose mod", {"model.pt"}, {"other.pt"}),
    ("jetdvfsd --conf", {"--config"}, {"--root"}),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("share")
    completion.main(folder)
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in ("model.pt", "other.pt"):
        (tmp_path / name).touch()
    return tmp_path


def run(command: list[str], here: Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=here, timeout=30).stdout


def bash(installed: Path, here: Path, line: str) -> str:
    program = (
        'source "$1"; read -ra COMP_WORDS <<< "$2"; [ "${2% }" = "$2" ] || COMP_WORDS+=(""); '
        "COMP_CWORD=$((${#COMP_WORDS[@]}-1)); "
        'COMP_LINE=$2 COMP_POINT=${#2}; function=$(complete -p "${2%% *}" | sed -E "s/.* -F ([^ ]+) .*/\\1/"); '
        '$function "${2%% *}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return run(["bash", "-c", program, "bash", str(installed / f"bash-completion/completions/{line.split()[0]}"), line], here)


def fish(installed: Path, here: Path, line: str) -> str:
    source = installed / f"fish/vendor_completions.d/{line.split()[0]}.fish"
    return run(["fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", str(source), line], here)


def zsh(installed: Path, here: Path, line: str) -> str:
    """What stands on the terminal after somebody has typed the line and then a tab, until nothing more comes."""
    leader, follower = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(here)}
    shell = ["zsh", "-f", "-i"]
    with subprocess.Popen(shell, stdin=follower, stdout=follower, stderr=follower, cwd=here, env=environment) as process:
        os.close(follower)
        try:
            setting_up = (
                f"fpath=({installed}/zsh/site-functions $fpath); autoload -U compinit; compinit -u -D; setopt nolistbeep"
            )
            os.write(leader, f"{setting_up}; LISTMAX=0 PS1=; echo READ''Y\n".encode())
            seen = read_until(leader, lambda text: "READY" in text)
            os.write(leader, f"{line}\t\t".encode())
            seen = read_until(leader, lambda text: False, quiet_s=1.0)
            return seen.replace("\r", "\n")
        finally:
            process.kill()
            os.close(leader)


def read_until(terminal: int, enough: Callable[[str], bool], quiet_s: float = 20.0) -> str:
    text, deadline = "", time.monotonic() + 20
    while not enough(text) and time.monotonic() < deadline and select.select([terminal], [], [], quiet_s)[0]:
        text += os.read(terminal, 1 << 16).decode(errors="replace")
    return text


@pytest.mark.parametrize("shell", [bash, zsh, fish], ids=lambda shell: shell.__name__)
@pytest.mark.parametrize(("line", "offered", "others"), ASKED, ids=[line for line, *_ in ASKED])
def test_a_shell_offers_verbs_options_names_and_files(
    installed: Path, here: Path, shell: Callable[[Path, Path, str], str], line: str, offered: set[str], others: set[str]
) -> None:
    if shutil.which(shell.__name__) is None:
        pytest.skip(f"needs {shell.__name__}")
    words = set(shell(installed, here, line).split())
    assert offered <= words
    assert not others & words
