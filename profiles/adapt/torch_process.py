# SPDX-License-Identifier: Apache-2.0
"""Parent's side of the PyTorch worker, which answers each line of JSON with one, within a time."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import MeasurementError, RefusedForNow, RequestRefused

WORKER = Path(__file__).with_name("torch_worker.py")
PATIENCE_S = 120.0
"""Limit of a request, loading PyTorch included."""


class TorchProcess:
    """Running worker; closing it ends the process. Raises MeasurementError if it cannot start, or has no PyTorch.

    Args:
        python: the Python with PyTorch.
        threads: of the processor; 0 for PyTorch's default.
        patience_s: time without an answer after which the process is ended.
        worker: the worker's file, or the name of its module.

    Attributes:
        about: its answer to the first request.
        ended: True once the process has ended.
    """

    def __init__(
        self,
        python: str = sys.executable,
        *,
        device: str = "cpu",
        threads: int = 0,
        patience_s: float = PATIENCE_S,
        worker: Path | str = WORKER,
    ) -> None:
        self._patience_s = patience_s
        self.ended = False
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed with the process)
        program = ("-m", worker) if isinstance(worker, str) else (str(worker),)
        command: Sequence[str] = [python, *program, "--device", device, "--threads", str(threads)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, text=True
            )
        except OSError as error:
            self._complaints.close()
            raise MeasurementError(f"meter: {python} cannot be started: {error.strerror or error}") from error
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.about: Mapping[str, Any] = self.ask({"do": "hello"})
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer to a request. Raises RequestRefused, or MeasurementError if the worker ended or timed out."""
        what = str(request["do"])
        if self.ended:
            raise MeasurementError(f"meter: the PyTorch process had ended before {what!r}")
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended, and may have printed a reason
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=self._patience_s)
        except queue.Empty:
            self.close()
            raise MeasurementError(
                f"meter: the PyTorch process did not answer {what!r} within {self._patience_s:g} s"
            ) from None
        if not line:
            self.ended = True
            raise MeasurementError(f"meter: the PyTorch process ended at {what!r}{self._last_words()}")
        try:
            answer = json.loads(line)
            if not isinstance(answer, dict):
                raise ValueError("no object")
        except ValueError as error:
            self.close()
            raise MeasurementError(f"meter: the PyTorch process answered {what!r} with {line!r:.80}") from error
        if "error" in answer:
            raise (RefusedForNow if answer.get("for_now") else RequestRefused)(f"meter: {answer['error']}")
        return answer

    def close(self) -> None:
        self.ended = True
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # unsent data
                    stream.close()

    def __enter__(self) -> TorchProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
        self._complaints.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # closed meanwhile
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put("")

    def _last_words(self) -> str:
        code = self._process.wait()
        self._complaints.seek(0)
        said = [line.strip() for line in self._complaints.read().splitlines() if line.strip()]
        return f" with {f'signal {-code}' if code < 0 else f'code {code}'}" + (f": {said[-1]:.200}" if said else "")
