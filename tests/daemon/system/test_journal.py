# SPDX-License-Identifier: Apache-2.0
"""The daemon's log: fields in the journal where it runs under systemd with systemd-python, else lines on stderr."""

from __future__ import annotations

import ast
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import pytest

from jetdvfs.daemon.config import Config
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.leases.controller import Controller
from jetdvfs.daemon.leases.lease import Holder
from jetdvfs.daemon.planning.lease_plan import LeasePlan
from jetdvfs.daemon.system.journal import CLOCKS_SET, LEASE_BEGUN, LEASE_ENDED, TROUBLE, fields, log_handler
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock, Kernel
from jetdvfs.tests.support.paths import ROOT

SYSTEM_PYTHON = "/usr/bin/python3"
CLOCKS = FrequencyConfiguration(1190400, 675750000, 1331200000)


def record(text: str, level: int = logging.INFO, **extra: str) -> logging.LogRecord:
    return logging.getLogger("test").makeRecord("test", level, "here.py", 1, text, (), None, extra=extra)


def named(stream: TextIO) -> str:
    there = os.fstat(stream.fileno())
    return f"{there.st_dev}:{there.st_ino}"


class Entries:
    """What a stand-in for systemd-python was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: dict[str, Any] = {}
        entries = self

        class JournalHandler(logging.Handler):
            def __init__(self, **constant: Any) -> None:
                super().__init__()
                entries.opened = constant

        module = ModuleType("systemd.journal")
        module.JournalHandler = JournalHandler  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "systemd", ModuleType("systemd"))
        monkeypatch.setitem(sys.modules, "systemd.journal", module)
        self.kind = JournalHandler


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> Entries:
    return Entries(monkeypatch)


@pytest.fixture
def stderr(tmp_path: Path) -> Iterator[TextIO]:
    with (tmp_path / "stderr").open("w") as stream:
        yield stream


def test_under_systemd_the_journal_is_written_to(entries: Entries, stderr: TextIO) -> None:
    handler = log_handler(stderr, {"JOURNAL_STREAM": named(stderr)})
    assert isinstance(handler, entries.kind)
    assert entries.opened == {"SYSLOG_IDENTIFIER": "jetdvfsd"}
    assert handler.format(record("three clocks")) == "three clocks"


def test_where_stderr_leads_elsewhere_it_is_written_to(entries: Entries, stderr: TextIO) -> None:
    for stream in ("1:2", "nonsense", ""):
        assert not isinstance(log_handler(stderr, {"JOURNAL_STREAM": stream}), entries.kind)


def test_without_systemd_python_every_line_has_its_priority(stderr: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "systemd", None)
    handler = log_handler(stderr, {"JOURNAL_STREAM": named(stderr)})
    assert handler.format(record("said")) == "<6>said"
    assert handler.format(record("one\ntwo", logging.ERROR)) == "<3>one?two"
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        failed = logging.LogRecord("test", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    first, *_, last = handler.format(failed).splitlines()
    assert (first, last) == ("<3>failed", "<3>ValueError: ?[2J")


def test_without_a_service_manager_lines_are_plain(stderr: TextIO) -> None:
    assert log_handler(stderr, {}).format(record("said", logging.WARNING)) == "said"


def test_fields_are_named_for_the_journal_and_empty_ones_left_out() -> None:
    assert fields(TROUBLE, lease="l1", target="", pid=0, app=None) == {
        "MESSAGE_ID": TROUBLE,
        "JETDVFS_LEASE": "l1",
        "JETDVFS_PID": "0",
    }


def test_a_lease_and_the_clocks_set_for_it_are_told_in_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock()
    hardware = Hardware.probe(Kernel(), clock, baseline=tmp_path / "baseline.json")
    controller = Controller(hardware, Config(floors=None), clock.monotonic)
    lease, _ = controller.hold(Holder("connection", 42, 1000, "camera"), LeasePlan(CLOCKS), "thirty frames")
    controller.release(lease)

    def told(kind: str) -> dict[str, str]:
        entry = next(vars(one) for one in caplog.records if getattr(one, "MESSAGE_ID", "") == kind)
        return {name: value for name, value in entry.items() if name.startswith("JETDVFS_")}

    holder = {"JETDVFS_LEASE": lease.id, "JETDVFS_APP": "camera", "JETDVFS_PID": "42", "JETDVFS_UID": "1000"}
    listed = "1190400,675750000,1331200000"
    assert told(LEASE_BEGUN) == {**holder, "JETDVFS_CONFIGURATION": listed, "JETDVFS_REASON": "thirty frames"}
    assert told(LEASE_ENDED) == holder
    assert told(CLOCKS_SET) == {
        "JETDVFS_CONFIGURATION": listed,
        "JETDVFS_VERIFIED": "True",
        "JETDVFS_REASON": f"{lease.label}: thirty frames",
    }


# The real library, of the system's Python, in a mount namespace of its own whose journal is this program.

REAL = """
import logging, os, socket, sys
from jetdvfs.daemon.system.journal import LEASE_BEGUN, fields, log_handler
os.makedirs("/run/systemd/journal")
journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
journal.bind("/run/systemd/journal/socket")
there = os.fstat(2)
log = logging.getLogger("jetdvfs.test")
log.addHandler(log_handler(sys.stderr, {"JOURNAL_STREAM": f"{there.st_dev}:{there.st_ino}"}))
log.error("%s holds", "camera", extra=fields(LEASE_BEGUN, lease="l1"))
print(journal.recv(65536).split(b"\\n"))
"""


def has_systemd_python() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None or not Path(SYSTEM_PYTHON).exists():
        return False
    tried = ("unshare", "--mount", SYSTEM_PYTHON, "-c", "import systemd.journal")
    return subprocess.run(tried, capture_output=True).returncode == 0


@pytest.mark.skipif(not has_systemd_python(), reason="needs root, mount namespaces and the package python3-systemd")
def test_the_real_library_sends_the_fields(tmp_path: Path) -> None:
    (tmp_path / "jetdvfs").symlink_to(ROOT)
    command = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$0" -B -c "$1"', SYSTEM_PYTHON, REAL)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    sent = set(ast.literal_eval(done.stdout))
    expected = {"MESSAGE=camera holds", f"MESSAGE_ID={LEASE_BEGUN}", "PRIORITY=3", "JETDVFS_LEASE=l1"}
    assert {line.encode() for line in (*expected, "SYSLOG_IDENTIFIER=jetdvfsd")} <= sent


def test_a_warning_of_a_library_takes_one_line(tmp_path: Path) -> None:
    program = (
        "import sys, warnings; from jetdvfs.daemon import resident; from jetdvfs.daemon.service import main; "
        "begun = resident.Resident.__init__; "
        "resident.Resident.__init__ = lambda *all: warnings.warn('a library warns,\\nin two lines') or begun(*all); "
        f"sys.exit(main(['--root', '/usr', '--state-dir', {str(tmp_path)!r}, '--runtime-dir', {str(tmp_path / 'run')!r}]))"
    )
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "none")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    first, second = done.stderr.splitlines()
    assert first == "<4>a library warns, in two lines"
    assert "no described board fits" in second
