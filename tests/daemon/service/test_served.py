# SPDX-License-Identifier: Apache-2.0
"""Servers that count their work: what their counters come to, and that it arrives at the daemon. The servers are made here."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetdvfs.daemon.cli.server_metrics import KNOWN, Pace, read_counters
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.tests.support.daemons.board_daemon import LOW, Daemon, eventually
from jetdvfs.tests.support.models.handmade_engine import account, small
from jetdvfs.tests.support.models.handmade_gguf import gguf, model
from jetdvfs.tests.support.pages import Page
from jetdvfs.tests.support.paths import FIXTURES

LLAMA = """# HELP llamacpp:tokens_predicted_total Number of generation tokens processed.
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total {tokens}
llamacpp:tokens_predicted_seconds_total {seconds}
llamacpp:requests_processing 0
"""
TRITON = """nv_inference_exec_count{{model="a",version="1"}} {count}
nv_inference_exec_count{{model="b",version="1"}} {count}
nv_inference_compute_input_duration_us{{model="a",version="1"}} {us}
nv_inference_compute_infer_duration_us{{model="a",version="1"}} {us}
nv_inference_compute_output_duration_us{{model="b{{x}}",version="1"}} {us} 1712345678000
"""


class Server(http.server.ThreadingHTTPServer):
    """Answers with its ``text``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.text = ""
        self.asked = 0


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        text = self.server.text.encode()
        self.server.asked += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_tokens_between_two_looks_have_their_mean_time() -> None:
    pace = Pace("decode")
    assert pace.update(LLAMA.format(tokens=100, seconds=5)) is None
    assert pace.update(LLAMA.format(tokens=100, seconds=5)) is None
    assert pace.update(LLAMA.format(tokens=120, seconds=6)) == pytest.approx((20, 50))
    assert pace.update(LLAMA.format(tokens=3, seconds=0.1)) is None  # started again
    assert pace.update(LLAMA.format(tokens=5, seconds="2e-1")) == pytest.approx((2, 50))


def test_a_text_that_was_sent_as_json_is_read_all_the_same() -> None:
    assert read_counters(json.dumps(LLAMA.format(tokens=7, seconds=1)))["llamacpp:tokens_predicted_total"] == 7


def test_what_triton_itself_writes_is_read() -> None:
    """Metrics of tritonserver 2.51 after three executions, as they came."""
    pace = Pace(None)
    text = (FIXTURES / "servers" / "triton.txt").read_text(encoding="utf-8")
    pace.update(re.sub(r"^(nv_inference_(?:exec_count|compute_\w+)\{.*\}) \d+$", r"\1 0", text, flags=re.MULTILINE))
    assert pace.update(text) == pytest.approx((3, (304 + 428431 + 271) / 3e3))


def test_models_and_parts_of_their_time_are_added_up() -> None:
    pace = Pace(None)
    pace.update(TRITON.format(count=10, us=1000))
    assert pace.update(TRITON.format(count=15, us=11_000)) == pytest.approx((10, 3.0))


def test_each_phase_has_its_own_counters() -> None:
    text = "vllm:time_to_first_token_seconds_sum 2\nvllm:time_to_first_token_seconds_count 4\n"
    pace = Pace("prefill")
    pace.update(text)
    assert pace.update(text.replace(" 2", " 2.5").replace(" 4", " 5")) == pytest.approx((1, 500))
    with pytest.raises(ValueError, match="known of llama-server, vLLM are there"):
        Pace("decode").update(text)
    assert {one.server for one in KNOWN} == {"llama-server", "vLLM", "Triton"}


@given(st.text())
def test_any_text_is_read_or_left(text: str) -> None:
    assert all(value >= 0 for value in read_counters(text).values())


def hold(daemon: Daemon, server: Server, *options: str) -> subprocess.Popen[str]:
    daemon.client().close()
    url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
    configuration = ",".join(map(str, LOW))
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "hold", "--config", configuration, "--socket", str(daemon.socket)]
    return subprocess.Popen([*command, "--metrics", url, *options, "--", "sleep", "60"], stderr=subprocess.PIPE, text=True)


def test_what_a_server_counts_arrives_at_its_lease(daemon: Daemon, server: Server) -> None:
    server.text = TRITON.format(count=10, us=1000)
    process = hold(daemon, server)
    try:
        assert eventually(lambda: server.asked, within_s=30)
        server.text = TRITON.format(count=20, us=21_000)
        with daemon.client() as client:
            assert eventually(lambda: any(lease["observed"] for lease in client.status()["leases"]), within_s=30)
            observed = client.status()["leases"][0]["observed"]
        assert observed["frames"] >= 20 and observed["p50_ms"] == pytest.approx(3.0)
    finally:
        process.terminate()
        error = process.communicate(timeout=30)[1]
    assert "its pace is followed" in error


def test_a_server_without_counters_is_said_once(daemon: Daemon, server: Server) -> None:
    server.text = "go_goroutines 5\n"
    process = hold(daemon, server)
    try:
        assert eventually(lambda: server.asked > 1, within_s=30)
    finally:
        process.terminate()
        error = process.communicate(timeout=30)[1]
    assert error.count("none of the counters") == 1


@pytest.mark.parametrize("url", ["file:///etc/passwd", "localhost:8080", "http://", "http://[::1"])
def test_what_is_no_address_is_refused(url: str) -> None:
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "hold", "--config", "1,2,3", "--metrics", url, "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "expected an address such as" in done.stderr and done.stderr.count("\n") == 1


def test_what_the_page_shows_runs_with_programs_of_those_names(daemon: Daemon, tmp_path: Path) -> None:
    daemon.client().close()
    page = Page("Servers and services", tmp_path)
    (tmp_path / "model.gguf").write_bytes(gguf(*model()))
    (tmp_path / "detector.json").write_bytes(account(small(), "x", "y"))
    token = decompose(tmp_path / "model.gguf", [parse_input("decode=2048:int")])
    (tmp_path / "model.json").write_text(json.dumps(token.to_json()))
    (tmp_path / "jetdvfs").write_text(f'#!/bin/sh\nexec {sys.executable} -m jetdvfs.daemon.cli "$@"\n')
    for name in ("llama-server", "tritonserver", "vllm"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$(basename $0) $*"\n')
    for name in ("jetdvfs", "llama-server", "tritonserver", "vllm"):
        (tmp_path / name).chmod(0o755)
    said = []
    for command in page.commands:
        done = page.run(command, daemon.socket, PATH=f"{tmp_path}:{os.environ['PATH']}")
        assert done.returncode == 0 and re.search(r" in force|MHz: .* \(asked: ", done.stderr), done.stderr
        said.append(done.stdout)
    assert said == ["llama-server -m model.gguf --metrics\n", "tritonserver --model-repository=models\n", "vllm serve model\n"]
