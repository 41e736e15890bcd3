# SPDX-License-Identifier: Apache-2.0
"""A worker that reads a model, and what it refuses."""

from __future__ import annotations

import asyncio

import pytest

from jetdvfs.daemon.errors import InputError
from jetdvfs.daemon.worker.answers import NetworkInfo
from jetdvfs.daemon.worker.workers import Workers, WorkerSettings
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.tests.support.daemons.attached import attached
from jetdvfs.tests.support.paths import REFERENCE

MODEL = REFERENCE / "squeezenet1_0.pt"
IMAGE = [TensorSpec((1, 3, 224, 224))]


def decompose(descriptor: int, settings: WorkerSettings | None = None) -> NetworkInfo:
    async def job() -> NetworkInfo:
        with attached(descriptor) as sent:
            info, _ = await Workers(settings).decompose(sent, IMAGE, "squeezenet")
            return info

    return asyncio.run(job())


def refusal(descriptor: int) -> str:
    with pytest.raises(InputError) as caught:
        decompose(descriptor)
    text = str(caught.value)
    assert "\n" not in text
    return text
