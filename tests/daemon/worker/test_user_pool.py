# SPDX-License-Identifier: Apache-2.0
"""The accounts that workers run as: nobody else's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jetdvfs.daemon.worker import user_pool
from jetdvfs.tests.support.daemons.confined import START, needs_root


@needs_root
def test_a_worker_is_somebody_that_nobody_else_is_and_keeps_no_descriptor_it_was_not_given() -> None:
    program = "print(os.getuid(), os.getgid(), walls, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", "import os; extra = os.dup(0)" + START + program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        said = process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        kept = sorted(int(path.name) for path in Path(f"/proc/{process.pid}/fd").iterdir())
        process.stdin.close()
    uid = int(said.split()[0])
    assert uid in user_pool.RANGE and said.startswith(f"{uid} {uid} ('no network', 'a user of its own'")
    assert fields["Uid"].split() == fields["Gid"].split() == [str(uid)] * 4
    assert not fields.get("Groups", "").split()
    assert fields["NoNewPrivs"].strip() == "1"
    assert int(fields["CapPrm"], 16) == int(fields["CapEff"], 16) == 0
    assert kept == [0, 1, 2]


@needs_root
def test_an_account_that_a_process_or_somebody_has_is_not_taken() -> None:
    taken, other = user_pool.RANGE[40], user_pool.RANGE[41]
    command = [sys.executable, "-c", f"import os; os.setuid({taken}); print('is', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "is\n"
        assert user_pool.first_free([0, taken, other]) == other
        with pytest.raises(PermissionError, match=f"accounts 0, {taken} are all in use"):
            user_pool.first_free([0, taken])
        process.stdin.close()
    assert user_pool.first_free([0, taken]) == taken


def test_no_two_children_are_dealt_the_same_account() -> None:
    dealer = user_pool.UserPool()
    with dealer.dealt() as one, dealer.dealt() as other:
        assert not set(one) & set(other) and set(one) | set(other) <= set(user_pool.RANGE)
