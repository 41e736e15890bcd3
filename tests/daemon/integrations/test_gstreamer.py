# SPDX-License-Identifier: Apache-2.0
"""The pad probes around an element of real GStreamer pipelines, with the real daemon on a simulated board."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.pages import INTEGRATIONS, Page
from jetdvfs.tests.support.paths import REFERENCE, ROOT

PROBE = "import gi; gi.require_version('Gst', '1.0'); from gi.repository import Gst; Gst.init(None)"
#: Buffers without time stamps, and an element that drops half of them.
ODD = """
import gi
gi.require_version("Gst", "1.0")
from gi.repository import Gst
from jetdvfs_gst import watch

class Lease:
    def __init__(self):
        self.seen = []
    def report(self, latency_ms):
        self.seen.append(latency_ms)

Gst.init(None)
for text in (
    "fakesrc num-buffers=20 ! identity name=infer sleep-time=1000 ! fakesink",
    "videotestsrc num-buffers=40 ! identity name=infer drop-probability=0.5 sleep-time=1000 ! fakesink",
):
    pipeline, lease = Gst.parse_launch(text), Lease()
    watched = watch(pipeline.get_by_name("infer"), lease)
    pipeline.set_state(Gst.State.PLAYING)
    pipeline.get_bus().timed_pop_filtered(Gst.CLOCK_TIME_NONE, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    print(watched.frames, len(lease.seen), min(lease.seen) >= 1.0)
    watched.stop()
for element in (Gst.ElementFactory.make("fakesink"), pipeline.get_by_name("nobody")):
    try:
        watch(element, Lease())
    except ValueError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def python() -> str:
    """A Python that has GStreamer: its bindings are a package of the distribution's."""
    for found in (sys.executable, "/usr/bin/python3"):
        if Path(found).exists() and subprocess.run([found, "-c", PROBE], capture_output=True, check=False).returncode == 0:
            return found
    packages = "gir1.2-gstreamer-1.0 python3-gi gstreamer1.0-plugins-base"
    pytest.skip(f"there is no Python with GStreamer here: apt-get install {packages}")


@pytest.fixture
def daemon(board: Board, tmp_path: Path, bundle: Path) -> Iterator[Daemon]:
    with Daemon(board, tmp_path, "--profile", str(bundle)) as daemon:
        # What is planned for once is there at once: who can do without a lease waits for it for ten seconds alone.
        with daemon.client() as client:
            client.plan(client.load(REFERENCE / "squeezenet1_0.pt", ["1x3x224x224"]), "latency_ms=50", fps=30)
        yield daemon


@pytest.fixture
def page(tmp_path: Path) -> Page:
    shutil.copy(REFERENCE / "squeezenet1_0.pt", tmp_path / "detector.pt")
    return Page("GStreamer", tmp_path)


def paths(tmp_path: Path) -> str:
    """The client and the probe where an application finds them, and nothing else of this environment."""
    (tmp_path / "path").mkdir(exist_ok=True)
    (tmp_path / "path" / "jetdvfs").symlink_to(ROOT)
    return f"{INTEGRATIONS / 'gstreamer'}:{tmp_path / 'path'}"


def test_a_pipeline_in_python_holds_clocks_and_reports_its_frames(
    python: str, page: Page, board: Board, found: dict[str, str], daemon: Daemon, tmp_path: Path
) -> None:
    env = {"PYTHONPATH": paths(tmp_path), "PATH": f"{Path(python).parent}:/usr/bin:/bin"}
    done = page.run("python3 pipeline.py", daemon.socket, **env)
    assert (done.returncode, done.stdout) == (0, "held\n60 frames\n"), done.stderr
    assert eventually(lambda: board.settings() == found)
    alone = page.run("python3 pipeline.py", None, **env)
    assert alone.returncode == 0 and alone.stdout.startswith("without jetdvfs: ") and alone.stdout.endswith("60 frames\n")


def test_buffers_without_a_time_and_dropped_ones_do_no_harm(python: str, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(INTEGRATIONS / "gstreamer"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([python, "-c", ODD], env=env, capture_output=True, text=True, check=False, timeout=60)
    unnamed, dropped, refused, absent = done.stdout.splitlines()
    assert unnamed == "20 20 True", done.stderr
    frames, seen, slow = dropped.split()
    assert frames == seen and 0 < int(frames) < 40 and slow == "True"
    assert "has no pads sink and src" in refused and absent.startswith("no element to watch")


def test_a_pipeline_in_c_holds_clocks_and_reports_its_frames(
    page: Page, board: Board, found: dict[str, str], daemon: Daemon
) -> None:
    known = shutil.which("pkg-config") and shutil.which("cc")
    if not known or subprocess.run(["pkg-config", "gstreamer-1.0"], check=False).returncode != 0:
        pytest.skip("there is no compiler with GStreamer here: apt-get install libgstreamer1.0-dev gcc pkg-config")
    build, run = page.commands[1:]
    built = page.run(build, daemon.socket)
    assert (built.returncode, built.stderr) == (0, "")
    done = page.run(run, daemon.socket)
    assert (done.returncode, done.stdout) == (0, "60 frames, 60 reported\n"), done.stderr
    assert eventually(lambda: board.settings() == found)
    alone = page.run(run, None)
    assert alone.returncode == 0 and "without jetdvfs: " in alone.stderr and alone.stdout == "60 frames, 0 reported\n"
