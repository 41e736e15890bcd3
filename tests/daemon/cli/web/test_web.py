# SPDX-License-Identifier: Apache-2.0
"""The daemon's figures in a browser: the real verb over HTTP and in Chromium, with the real daemon on a simulated board."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.tests.support import browser as chromium
from jetdvfs.tests.support.browser import Browser
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon, eventually, served_board
from jetdvfs.tests.support.daemons.web_page import asked, served

FRAMES_MS = [20.0, 22.0, 24.0, 90.0]


@pytest.fixture(scope="module")
def daemon(board: Board, tmp_path_factory: pytest.TempPathFactory, bundle: Path) -> Iterator[Daemon]:
    with Daemon(board, tmp_path_factory.mktemp("daemon"), "--profile", str(bundle)) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def port(daemon: Daemon) -> Iterator[int]:
    with served(daemon.socket) as (port, _):
        yield port


def events(port: int) -> Iterator[tuple[str, Any]]:
    """What the stream tells, as it comes."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", "/events")
        kind = ""
        for line in connection.getresponse():
            name, _, value = line.decode().strip().partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                yield kind, json.loads(value)


def test_one_page_comes_without_anything_from_elsewhere(port: int) -> None:
    page, text = asked(port)
    assert page.status == 200 and (page.headers["Content-Type"] or "").startswith("text/html")
    assert "default-src 'none'" in (page.headers["Content-Security-Policy"] or "")
    for path in ("/", "/page.css", "/page.js", "/plots.js"):
        answer, text = asked(port, path)
        assert answer.status == 200 and text
        assert not [
            word for word in text.replace("http://www.w3.org/2000/svg", "").split() if "http:" in word or "https:" in word
        ]
    assert asked(port, "/?hello")[0].status == 200
    assert asked(port, "/", "HEAD")[1] == ""


def test_only_who_knows_this_machine_by_its_address_is_answered_and_nothing_can_be_set(port: int) -> None:
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", "[::1]", f"LOCALHOST:{port}"):
        assert asked(port, Host=host)[0].status == 200, host
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
        for path in ("/", "/events"):
            answer, text = asked(port, path, Host=host)
            assert answer.status == 421 and text.count("\n") == 1, host
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
        answer, text = asked(port, "/events", method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD"), method
        assert "nothing can be set here" in text
    for path in ("/../page.html", "/page.py", "/status_follower.py", "//etc/passwd", "/%2e%2e/server.py"):
        assert asked(port, path)[0].status == 404, path


def test_nonsense_and_silence_keep_nobody_else_out_for_long(port: int) -> None:
    for sent in (b"\0" * 100, b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"GET /\r\n"):
        with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
    silent = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(40)]
    with pytest.raises(http.client.HTTPException):  # more than 32 at once
        asked(port)
    for one in silent:
        one.close()

    def answers() -> bool:
        with suppress(http.client.HTTPException, OSError):
            return asked(port)[0].status == 200
        return False

    assert eventually(answers)


def test_the_stream_begins_with_what_was_and_goes_on_with_what_comes(daemon: Daemon, port: int) -> None:
    with daemon.client() as client, client.hold(configuration=LOW, app="viewer", reason="camera") as lease:
        lease.report(20.0)
        lease.flush()
        told = events(port)
        kind, history = next(told)
        assert kind == "history" and set(history) == {"points", "entries"}
        now: dict[str, Any] | None = None
        entries = history["entries"]
        while now is None or [entry["kind"] for entry in entries[-2:]] != ["clocks_set", "lease_begun"]:
            kind, what = next(told)
            if kind == "entry":
                entries.append(what)
            elif kind == "now" and what["point"]["leases"].get(lease.id, {}).get("last_ms") == 20.0:
                now = what
        point, status = now["point"], now["status"]
        assert point["held_mhz"] == {"cpu_khz": 1190.4, "gpu_hz": 675.75, "emc_hz": 1600.0}
        assert point["power_mw"] == sum(status["rails_mw"][rail] for rail in status["energy_rails"])
        assert status["leases"][0]["app"] == "viewer" and status["leases"][0]["limit_ms"] is None
        _, history = next(events(port))
        assert history["points"][-1]["time_s"] >= point["time_s"]
        assert history["entries"] == entries


def test_a_daemon_that_is_not_there_is_waited_for_and_found(tmp_path: Path) -> None:
    path = tmp_path / "run" / "jetdvfs.sock"
    with served_board(tmp_path / "board", "folder") as board, served(path) as (port, process):
        told = events(port)
        assert next(told)[0] == "history"
        _, what = next(one for one in told if one[0] == "gone")
        assert "no daemon answers" in what["reason"]
        with Daemon(board, tmp_path, "--board", "agx-xavier"):
            _, what = next(one for one in told if one[0] == "now")
            assert what["status"]["board"] == "agx-xavier"
        assert "went away" in next(what["reason"] for kind, what in told if kind == "gone")
        assert process.stderr is not None
        assert (
            process.stderr.readline()
            == f"jetdvfs web: no daemon answers on {path} (No such file or directory); waiting for it\n"
        )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--port", "70000"), "expected --port from 0 to 65535"),
        (("--host", "board.local"), "expected an address of this machine"),
        (("--host", "192.0.2.7"), "192.0.2.7 port 8570: Cannot assign requested address"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    options: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["web", "--socket", "/nowhere", *options]) == 2
    assert says in capsys.readouterr().err.splitlines()[-1]


def test_a_port_that_is_taken_is_said(capsys: pytest.CaptureFixture[str], port: int) -> None:
    assert main(["web", "--socket", "/nowhere", "--port", str(port)]) == 2
    assert f"127.0.0.1 port {port}: Address already in use; --port 0" in capsys.readouterr().err


@pytest.mark.skipif(bool(chromium.missing()), reason=f"needs Debian's {chromium.missing()}")
def test_a_browser_shows_the_figures_of_the_status_draws_them_and_outlives_the_daemon(daemon: Daemon, port: int) -> None:
    def figure(name: str) -> str:
        return f"document.querySelector('[data-figure={name}] b')?.textContent"

    with Browser() as browser:
        browser.open(f"http://localhost:{port}/")
        # The first point is of the clocks as they are before the lease.
        browser.until("return document.querySelector('[data-figure=cpu_khz]') !== null")
        with daemon.client() as client, client.hold(configuration=LOW, app="<b>viewer</b>", reason="camera") as lease:
            for latency_ms in FRAMES_MS:
                lease.report(latency_ms)
            lease.flush()
            card = f"document.querySelector('[data-lease=\"{lease.id}\"]')"
            browser.until(f"return {card}?.innerText.includes('90.0') || {card}?.innerText.includes('90')")
            observed = client.status()["leases"][0]["observed"]
            shown = browser.run(f"return {card}.innerText")
            assert f"{observed['p50_ms']:.2f}" in shown and f"{observed['p95_ms']:.2f}" in shown
            assert "<b>viewer</b>" in shown and "reason: camera" in shown
            assert browser.until(f"return {figure('cpu_khz')} === '1190 MHz' && {figure('gpu_hz')} === '675.8 MHz'")
            assert browser.run("return document.querySelector('#board').textContent") == client.status()["title"]

            def drawn_as_shown() -> bool:  # by what may be the reading before
                told = client.status()
                watts = sum(told["rails_mw"][rail] for rail in told["energy_rails"]) / 1e3
                shown_w = float(browser.run(f"return {figure('power')}").split()[0])
                return bool(0.5 * watts < shown_w < 2 * watts)

            assert eventually(drawn_as_shown)
            points = "[...document.querySelectorAll('#plots figure')].map(one => one.querySelectorAll('polyline').length)"
            assert all(browser.until(f"return {points}.every(one => one > 0) && {points}"))
            browser.until("return document.querySelector('#plots polyline.s0').points.length >= 3")
            line = "document.querySelectorAll('#plots figure')[1].querySelector('polyline.s1')"
            heights = f"new Set([...{line}.points].map(one => one.y)).size"
            assert browser.run(f"return {heights}") == 2  # the GPU's clock moved when the lease began
            newest = "document.querySelector('#log li')"
            assert browser.until(f"return {newest}?.className === 'lease_begun' && {newest}.innerText.includes('camera')")
        browser.until(f"return {card} === null && !document.querySelector('#no-lease').hidden")
        assert daemon.stop() == 0
        browser.until("return document.querySelector('#link').dataset.state === 'gone'")
        daemon.start()
        daemon.client().close()
        browser.until("return document.querySelector('#link').dataset.state === 'live'", within_s=30)
        assert browser.console() == []
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
