# SPDX-License-Identifier: Apache-2.0
"""The C header, by programs that a compiler made of it, with the real daemon on a simulated board."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.daemon.wire.protocol import default_socket
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon, eventually
from jetdvfs.tests.support.models.handmade_gguf import gguf, model
from jetdvfs.tests.support.pages import INTEGRATIONS, Page
from jetdvfs.tests.support.paths import REFERENCE

STRICT = ["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-I", str(INTEGRATIONS / "c")]
# Holds the clocks of its arguments, reports frames of 7.5 ms, says what happened, and waits for a line before it ends.
HOLDER = f"""
#include "jetdvfs.h"
int main(int count, char **words) {{
    jetdvfs_client daemon;
    jetdvfs_wish wish = {{0}};
    int code, frame, wanted = atoi(words[2]);
    double before, after;
    struct timespec used;
    wish.cpu_khz = {LOW.cpu_khz}; wish.gpu_hz = {LOW.gpu_hz}; wish.emc_hz = {LOW.emc_hz};
    wish.app = "holder"; wish.reason = count > 3 ? words[3] : "a \\"test\\"\\n";
    code = jetdvfs_connect(&daemon, words[1]);
    if (!code) code = jetdvfs_hold(&daemon, &wish);
    printf("%d %ld %ld %ld %d %s\\n", code, daemon.cpu_khz, daemon.gpu_hz, daemon.emc_hz, daemon.verified, daemon.error);
    fflush(stdout);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    before = (double)used.tv_sec * 1e6 + (double)used.tv_nsec * 1e-3;
    for (frame = 0; frame < wanted; frame++) {{
        jetdvfs_frame_begin(&daemon);
        jetdvfs_frame_end(&daemon);
        jetdvfs_report(&daemon, 7.5);
    }}
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    after = (double)used.tv_sec * 1e6 + (double)used.tv_nsec * 1e-3;
    printf("%.3f us, %lu frames, %lu dropped\\n", (after - before) / (wanted ? wanted : 1), daemon.frames, daemon.dropped);
    fflush(stdout);
    if (getchar() == 'r') {{
        code = jetdvfs_release(&daemon);
        printf("released %d %d\\n", code, jetdvfs_held(&daemon));
        fflush(stdout);
        getchar();
    }}
    printf("%s\\n", jetdvfs_held(&daemon) ? "held" : "lost");
    jetdvfs_close(&daemon);
    return 0;
}}
"""


# Holds for prompts and for tokens in turn, is refused once, and waits for a line each time.
PHASES = """
#include "jetdvfs.h"
int main(int count, char **words) {
    static const char *prompt[] = {"prefill=4096:int", NULL}, *token[] = {"decode=64:int", NULL};
    static const char *targets[] = {"ttft_ms=5000", "tokens_per_s=1", "ttft_ms=5000", "tokens_per_s=nan", "tokens_per_s=2"};
    jetdvfs_client daemon;
    jetdvfs_network networks[2];
    jetdvfs_wish wish = {0};
    int code = jetdvfs_connect(&daemon, words[1]), turn;
    if (!code) code = jetdvfs_load(&daemon, words[2], prompt, &networks[0]);
    if (!code) code = jetdvfs_load(&daemon, words[2], token, &networks[1]);
    for (turn = 0; !code && turn < 5; turn++) {
        wish.network = &networks[turn % 2 || turn == 4];
        wish.target = targets[turn];
        printf("%d ", jetdvfs_hold(&daemon, &wish));
        jetdvfs_report(&daemon, 1.0);
        printf("%s %d %s\\n", daemon.lease, jetdvfs_held(&daemon), daemon.error);
        fflush(stdout);
        getchar();
    }
    jetdvfs_close(&daemon);
    return count != 3 || code;
}
"""


# Connects by default, and says to which socket.
CONNECTING = """
#include "jetdvfs.h"
int main(void) {
    jetdvfs_client daemon;
    struct sockaddr_un peer = {0, ""};
    socklen_t room = sizeof peer;
    int code = jetdvfs_connect(&daemon, NULL);
    if (!code && getpeername(daemon.socket, (struct sockaddr *)&peer, &room)) return 1;
    printf("%s\\n", code ? daemon.error : peer.sun_path);
    jetdvfs_close(&daemon);
    return 0;
}
"""
SYSTEM = " on /run/jetdvfs/jetdvfs.sock"
OTHER = 64321
"""An ordinary user."""


def compiler(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no compiler {name} here")
    return found


def compiled(source: str, folder: Path) -> Path:
    (folder / "holder.c").write_text(source)
    options = ["-std=c99", "-D_GNU_SOURCE", "-Wconversion", *STRICT]
    subprocess.run([compiler("cc"), *options, "holder.c", "-o", "holder"], cwd=folder, check=True, timeout=120)
    return folder / "holder"


@pytest.fixture(scope="module")
def holder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(HOLDER, tmp_path_factory.mktemp("c"))


@pytest.fixture
def daemon(board: Board, tmp_path: Path, bundle: Path) -> Iterator[Daemon]:
    with Daemon(board, tmp_path, "--profile", str(bundle)) as daemon:
        daemon.client().close()
        yield daemon


class Running:
    """The holder at work."""

    def __init__(self, program: Path, *words: object) -> None:
        command = [str(program), *map(str, words)]
        self.process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self, letter: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{letter}\n")
        self.process.stdin.flush()


def test_clocks_are_held_frames_arrive_and_the_board_is_given_back(
    board: Board, found: dict[str, str], daemon: Daemon, holder: Path
) -> None:
    with daemon.client() as client, Running(holder, daemon.socket, 100) as running:
        code, *clocks, verified = map(int, running.line().split())
        assert (code, verified) == (0, 1)
        assert clocks == pytest.approx(list(LOW), rel=0.01)  # as measured
        assert board.clocks == LOW
        assert running.line().endswith(" us, 200 frames, 0 dropped")
        lease = client.status()["leases"][0]
        assert (lease["app"], lease["reason"], lease["pid"]) == ("holder", 'a "test"?', running.process.pid)
        running.go_on("r")
        assert running.line() == "released 0 0"
        assert eventually(lambda: board.settings() == found)
        assert client.status()["leases"] == []


def test_a_lease_changes_between_prompts_and_tokens_and_outlasts_a_refusal(
    board: Board, found: dict[str, str], daemon: Daemon, tmp_path: Path
) -> None:
    (tmp_path / "small.gguf").write_bytes(gguf(*model()))
    with daemon.client() as client, Running(compiled(PHASES, tmp_path), daemon.socket, tmp_path / "small.gguf") as running:
        code, lease, held = running.line().split()
        assert (code, held) == ("0", "1")
        for target in ("tokens_per_s=1", "ttft_ms=5000"):
            running.go_on()
            assert running.line() == f"0 {lease} 1"
            (shown,) = client.status()["leases"]
            assert (shown["lease"], shown["target"]) == (lease, target)
        running.go_on()
        assert running.line().startswith(f"2 {lease} 1 target 'tokens_per_s=nan': expected tokens_per_s=NUMBER")
        assert [shown["target"] for shown in client.status()["leases"]] == ["ttft_ms=5000"]
        running.go_on()
        assert running.line() == f"0 {lease} 1"
        running.go_on()
        assert eventually(lambda: board.settings() == found)


def test_frames_are_reported_while_they_come(daemon: Daemon, holder: Path) -> None:
    with daemon.client() as client, Running(holder, daemon.socket, 300_000) as running:
        running.line()
        told = running.line()
        reported = [lease["observed"] for lease in client.status()["leases"]]
        assert reported and reported[0]["frames"] > 100
        assert 7.4 <= reported[0]["p95_ms"] <= 7.6 and 0 <= reported[0]["p50_ms"] <= 7.6
        us = float(told.split()[0])
        assert us < 5, f"a frame and another report take {told}"


def test_an_application_learns_that_another_released_its_lease(daemon: Daemon, holder: Path) -> None:
    with daemon.client() as client, Running(holder, daemon.socket, 1) as running:
        running.line()
        running.line()
        client.release(client.status()["leases"][0]["lease"])
        time.sleep(1.1)
        running.go_on()
        assert running.line() == "lost"


def test_the_pages_frame_lasts_until_an_asynchronous_device_is_done(daemon: Daemon, tmp_path: Path) -> None:
    page = Page("C and C++", tmp_path)
    shutil.copy(REFERENCE / "resnet18.pt", tmp_path)
    source = (tmp_path / "camera.c").read_text()
    device = "static struct timespec due_; static void start_network(void) { clock_gettime(CLOCK_MONOTONIC, &due_); "
    device += "due_.tv_nsec += 12000000; if (due_.tv_nsec >= 1000000000) due_.tv_nsec -= 1000000000, due_.tv_sec++; }\n"
    device += "static void wait_for_gpu(void) { clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due_, NULL); }\n"
    whole, count = re.subn(r"static void start_network.*\nstatic void wait_for_gpu.*\n", lambda _: device, source)
    assert count == 1
    (tmp_path / "camera.c").write_text(whole)
    assert page.run(page.commands[0], daemon.socket).returncode == 0
    with daemon.client() as client:
        running = subprocess.Popen(["./camera"], cwd=tmp_path, env={**os.environ, "JETDVFS_SOCKET": str(daemon.socket)})
        assert eventually(lambda: any((lease["observed"] or {}).get("frames", 0) > 20 for lease in client.status()["leases"]))
        assert client.status()["leases"][0]["observed"]["p50_ms"] >= 11.9
        assert running.wait(30) == 0


def test_a_killed_application_leaves_nothing_behind(board: Board, found: dict[str, str], daemon: Daemon, holder: Path) -> None:
    with Running(holder, daemon.socket, 1) as running:
        running.line()
        running.process.send_signal(signal.SIGKILL)
        assert eventually(lambda: board.settings() == found)


def test_the_application_goes_on_without_a_daemon(holder: Path, tmp_path: Path) -> None:
    with Running(holder, tmp_path / "none.sock", 10) as running:
        assert running.line() == f"6 0 0 0 0 No such file or directory: there is no daemon on {tmp_path / 'none.sock'}"
        assert running.line().endswith(" us, 0 frames, 0 dropped")
        running.go_on()
        assert running.line() == "lost"
        assert running.process.wait(10) == 0


def test_a_daemon_that_ends_takes_the_lease_along(board: Board, tmp_path: Path, holder: Path) -> None:
    with Daemon(board, tmp_path) as daemon:
        daemon.client().close()
        with Running(holder, daemon.socket, 10) as running:
            running.line()
            running.line()
            assert daemon.stop() == 0
            running.go_on()
            assert running.line() == "lost"
            assert running.process.wait(10) == 0


def test_a_refusal_is_one_line_with_its_exit_code(daemon: Daemon, holder: Path) -> None:
    with Running(holder, daemon.socket, 0, "x" * 300) as running:
        assert running.line() == "2 0 0 0 0 Hold: reason has 300 characters; at most 256"
    with Running(holder, daemon.socket, 0, "x" * 10_000) as running:
        assert running.line() == "2 0 0 0 0 what is asked: too long"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b'{"error":"io.jetdvfs.HardwareBusy","parameters":{"message":"a \\u00fc\\nb","exit_code":5}}\0', "5 0 0 0 0 a ? b"),
        (b'{"error":"org.varlink.service.MethodNotFound"}\0', "2 0 0 0 0 org.varlink.service.MethodNotFound"),
        (b"\0", "0 0 0 0 0"),
        (b'{"parameters":{"lease":"\0', "0 0 0 0 0"),
        (b'{"parameters":[[[[[{"lease":"1"}]]]]]}\0', "0 0 0 0 0"),
        (b'{"x":"' + b"y" * 2_000_000, "6 0 0 0 0 it hung up: there is no daemon"),
        (b"", "6 0 0 0 0 it hung up: there is no daemon"),
    ],
    ids=[
        "refusal",
        "unknown call",
        "nothing",
        "cut short",
        "nested",
        "endless",
        "no answer",
    ],  # an environment holds no long one
)
def test_strange_answers_do_no_harm(answer: bytes, told: str, holder: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "odd.sock"))
        listener.listen()
        with Running(holder, tmp_path / "odd.sock", 3) as running:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(1 << 16).endswith(b"\0")
                try:
                    connection.sendall(answer)
                except OSError:
                    assert len(answer) > 1 << 20
                connection.close()
                assert running.line() == told
            running.line()
            running.go_on()
            assert running.line() == "lost"
            assert running.process.wait(10) == 0


@pytest.mark.slow
def test_what_the_page_shows_compiles_and_runs(board: Board, found: dict[str, str], daemon: Daemon, tmp_path: Path) -> None:
    compiler("cc")
    compiler("c++")
    page = Page("C and C++", tmp_path)
    shutil.copy(REFERENCE / "squeezenet1_0.pt", tmp_path / "resnet18.pt")
    done = [page.run(command, daemon.socket) for command in page.commands]
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * len(page.commands)
    assert done[1].stdout.startswith("held at ") and done[1].stdout.endswith("200 frames reported, 0 dropped\n")
    assert done[4].stdout == "10 frames reported\n"
    assert board.settings() == found
    alone = page.run("./camera", None)
    assert alone.returncode == 0 and "without jetdvfs: " in alone.stderr and alone.stdout == "0 frames reported, 0 dropped\n"


class Places:
    """A user's folders, and the socket that the program finds with them."""

    def __init__(self, base: Path, program: Path) -> None:
        self.uid = os.geteuid() or OTHER
        self.base = base
        self.folder = base / "jetdvfs"
        self._program = program

    def make(self, folder: Path, mode: int = 0o700, *, uid: int | None = None) -> socket.socket:
        """A listening socket in a new folder."""
        folder.mkdir()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "jetdvfs.sock"))
        listener.listen()
        (folder / "jetdvfs.sock").chmod(0o666)
        if os.geteuid() == 0:
            os.chown(folder, self.uid if uid is None else uid, -1)
        folder.chmod(mode)
        return listener

    def found(self, *, uid: int | None = None, **env: str) -> tuple[str, str]:
        """The socket that the C program connects to, or its error, and the one that the Python client chooses."""
        user = self.uid if uid is None else uid
        env = {"XDG_RUNTIME_DIR": str(self.base), **env}
        switched = user if os.geteuid() == 0 else None
        done = subprocess.run([self._program], text=True, capture_output=True, check=True, env=env, timeout=60, user=switched)
        with pytest.MonkeyPatch.context() as patch:
            for name in ("JETDVFS_SOCKET", "XDG_RUNTIME_DIR"):
                patch.delenv(name, raising=False)
            for name, value in env.items():
                patch.setenv(name, value)
            patch.setattr(os, "geteuid", lambda: user)
            return done.stdout.strip(), str(default_socket())


@pytest.fixture
def places() -> Iterator[Places]:
    if Path("/run/jetdvfs/jetdvfs.sock").exists():
        pytest.skip("a daemon of the system has the default socket")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        program = compiled(CONNECTING, folder)
        program.chmod(0o755)
        yield Places(folder, program)


def test_a_user_s_own_daemon_is_found_as_the_python_client_finds_it(places: Places) -> None:
    own = str(places.folder / "jetdvfs.sock")
    with places.make(places.folder):
        assert places.found() == (own, own)
        assert places.found(JETDVFS_SOCKET="") == (own, own)
        told, chosen = places.found(JETDVFS_SOCKET="/nowhere/given.sock")
        assert told.endswith(" on /nowhere/given.sock") and chosen == "/nowhere/given.sock"
        if os.geteuid() == 0:
            told, chosen = places.found(uid=0)
            assert told.endswith(SYSTEM) and SYSTEM.endswith(chosen)
    told, chosen = places.found()  # the file is left, and no daemon answers
    assert told.endswith(SYSTEM) and SYSTEM.endswith(chosen)


def test_without_a_runtime_folder_a_user_s_own_daemon_is_found_in_tmp(places: Places) -> None:
    folder = Path(f"/tmp/jetdvfs-{places.uid}")
    if folder.exists():
        pytest.skip(f"{folder} is in use")
    own = str(folder / "jetdvfs.sock")
    try:
        with places.make(folder):
            for given in ("", "relative"):
                assert places.found(XDG_RUNTIME_DIR=given) == (own, own)
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_other_users_may_write_is_not_looked_into(places: Places, mode: int) -> None:
    with places.make(places.folder, mode):
        told, chosen = places.found()
        assert told.endswith(SYSTEM) and SYSTEM.endswith(chosen)


@pytest.mark.parametrize("kind", ["link", "another user's", "too long"])
def test_a_folder_that_may_be_another_user_s_is_not_looked_into(places: Places, kind: str) -> None:
    if kind == "link":
        with places.make(places.base / "real"):
            places.folder.symlink_to("real")
            told, chosen = places.found()
    elif kind == "too long":
        told, chosen = places.found(XDG_RUNTIME_DIR="/" + "x" * 120)
    elif os.geteuid() == 0:
        with places.make(places.folder, 0o755, uid=OTHER + 1):
            told, chosen = places.found()
    else:
        pytest.skip("root alone makes a folder of another user")
    assert told.endswith(SYSTEM) and SYSTEM.endswith(chosen)
