# SPDX-License-Identifier: Apache-2.0
"""Worker restarted after it ends, so that a campaign continues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ....errors import MeasurementError, RequestRefused
from .cpu import MeasuringWorker

_MOST = 3  # ends in a row: then the request is not the cause


class EndingWorker(MeasuringWorker, Protocol):
    def close(self) -> None: ...


class RestartingWorker:
    """Worker restarted after a failure, which counts as a refusal. Raises MeasurementError if it cannot start."""

    def __init__(self, start: Callable[[], EndingWorker]) -> None:
        self._start, self._in_a_row = start, 0
        self._worker = start()

    @property
    def about(self) -> Mapping[str, Any]:
        return self._worker.about

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer to a request. Raises RequestRefused, or MeasurementError after repeated failures."""
        try:
            answer = self._worker.ask(request)
        except RequestRefused:
            self._in_a_row = 0
            raise
        except MeasurementError as error:
            self._in_a_row += 1
            if self._in_a_row == _MOST:
                raise
            self._worker.close()
            self._worker = self._start()
            raise RequestRefused(str(error)) from error
        self._in_a_row = 0
        return answer

    def close(self) -> None:
        self._worker.close()
