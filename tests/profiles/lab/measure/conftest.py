# SPDX-License-Identifier: Apache-2.0
"""A worker of the processor that the tests run on, and models for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.profiles.adapt.torch_process import TorchProcess
from jetdvfs.profiles.lab.measure.meters.cpu import KERNEL_WORKER
from jetdvfs.profiles.lab.measure.processor import MeasuredModel


@pytest.fixture(scope="module")
def process() -> Iterator[TorchProcess]:
    pytest.importorskip("torch", reason="the worker runs PyTorch; it is not installed")
    with TorchProcess(threads=1, worker=KERNEL_WORKER) as started:
        yield started


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[MeasuredModel]:
    """Three small networks of the same layers, each of other widths."""
    torch = pytest.importorskip("torch", reason="the worker runs PyTorch; it is not installed")
    folder = tmp_path_factory.mktemp("models")
    found = []
    for name, width in (("narrow", 8), ("middle", 16), ("wide", 24)):
        network = torch.nn.Sequential(
            torch.nn.Conv2d(3, width, 3, padding=1), torch.nn.BatchNorm2d(width), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(width, 2 * width, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(2 * width, width, 1),
            torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(width, 10),
        )  # fmt: skip
        path, inputs = folder / f"{name}.pt", (TensorSpec((1, 3, 32, 32)),)
        torch.jit.save(torch.jit.script(network.eval()), path)
        found.append(MeasuredModel(path, decompose(path, inputs, name=name), inputs))
    return found
