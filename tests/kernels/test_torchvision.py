# SPDX-License-Identifier: Apache-2.0
"""torchvision's models held against PyTorch's dispatcher: the smallest of each family, or all with ``JETDVFS_ALL_MODELS=1``."""

from __future__ import annotations

import functools
import io
import os
import statistics
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import KernelInvocation, TensorSpec

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of decomposition; it is not installed")
if find_spec("torchvision") is None:
    pytest.skip("the models are torchvision's; it is not installed", allow_module_level=True)

from jetdvfs.tests.support.models import oracle  # noqa: E402
from jetdvfs.tests.support.speed import multiples_of_unpickling  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]

models = oracle.torchvision().models
SMALLEST = (
    "convnext_tiny",
    "efficientnet_b0",
    "efficientnet_v2_s",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "resnext50_32x4d",
    "swin_t",
    "swin_v2_t",
    "vgg11_bn",
    "vit_b_16",
)
EVERY = bool(os.environ.get("JETDVFS_ALL_MODELS"))
CLASSIFIERS = models.list_models(module=models) if EVERY else SMALLEST
SEGMENTERS = models.list_models(module=models.segmentation) if EVERY else ["fcn_resnet50", "lraspp_mobilenet_v3_large"]
DETECTORS = (
    models.list_models(module=models.detection) if EVERY else ["fasterrcnn_resnet50_fpn", "ssdlite320_mobilenet_v3_large"]
)
LONG = {"efficientnet_v2_s", "swin_v2_t", "densenet121"}
FIXED_SIZE = ("vit", "maxvit")
SIZE_TRACED = ("vit", "maxvit", "swin", "inception")


def image(batch: int, side: int) -> list[TensorSpec]:
    return [TensorSpec((batch, 3, side, side))]


@functools.cache
def scripted_file(name: str) -> io.BytesIO:
    return oracle.archive_of(oracle.without_weights(oracle.build(name)), "script")


def plain(launches: Iterable[KernelInvocation], scopes: bool = True) -> list[KernelInvocation]:
    """Launches without CUDA's own parameters, which the dispatcher does not tell."""
    return [
        msgspec.structs.replace(
            launch,
            scope=launch.scope if scopes else "",
            params={name: value for name, value in launch.params.items() if name not in ("channels_last", "math")},
        )
        for launch in launches
    ]


def slow_if_long(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in names]


@pytest.mark.parametrize("name", slow_if_long(CLASSIFIERS))
def test_classifier_scripted_and_traced_is_what_pytorch_dispatches(name: str) -> None:
    side = 299 if name == "inception_v3" else 224
    thin = oracle.without_weights(oracle.build(name))
    scripted = scripted_file(name)
    small = side if name.startswith(SIZE_TRACED) else 64
    traced = oracle.archive_of(thin, "trace", [torch.zeros(1, 3, small, small)])
    for batch, grown in ((1, 0), (8, 0 if name.startswith(FIXED_SIZE) else 32)):
        inputs = image(batch, side + grown)
        expected = oracle.network_of(oracle.with_short_cuts(oracle.build(name)), inputs).launches
        assert plain(decompose(scripted, inputs).launches) == plain(expected)
        if (batch, grown) == (1, 0) or not name.startswith(SIZE_TRACED):
            assert plain(decompose(traced, inputs).launches, False) == plain(expected, False)


@pytest.mark.parametrize("name", slow_if_long(["densenet121", "googlenet", "resnext50_32x4d", "vgg11_bn"]))
def test_frozen_classifier_is_what_pytorch_dispatches_for_the_same_file(name: str) -> None:
    frozen = oracle.archive_of(oracle.without_weights(oracle.build(name)), "freeze")
    recorder = oracle.Recorder(torch.nn.Module())
    loaded, picture = torch.jit.load(frozen), torch.zeros(1, 3, 224, 224)
    with torch.no_grad(), torch.jit.optimized_execution(False), recorder:
        loaded(picture)
    expected = [call for call in recorder.calls if isinstance(call, KernelInvocation)]
    ours = decompose(frozen, image(1, 224)).launches
    essential = [(launch.kind, launch.output, dict(launch.params)) for launch in ours]
    assert essential == [(launch.kind, launch.output, dict(launch.params)) for launch in expected]


@pytest.mark.parametrize("name", SEGMENTERS)
def test_segmentation_model_is_what_pytorch_dispatches(name: str) -> None:
    scripted = scripted_file(name)
    expected = oracle.network_of(oracle.build(name), image(1, 256))
    assert plain(decompose(scripted, image(1, 256)).launches) == plain(expected.launches)


@pytest.mark.parametrize("name", DETECTORS)
def test_detector_is_decomposed_up_to_its_data_dependent_part(name: str) -> None:
    scripted = scripted_file(name)
    network = decompose(scripted, [TensorSpec((3, 480, 640))] * 2)
    assert network.boundary is not None
    assert network.boundary.operator in ("aten::where", "aten::index") and network.boundary.place.startswith("code/")
    assert network.kinds["conv2d"] > 20
    assert any(launch.output[0] == 2 for launch in network.launches if launch.kind == "conv2d")  # two images, one batch


@pytest.mark.slow
@pytest.mark.alone
def test_decomposition_takes_about_as_long_as_unpickling_thousands_of_records() -> None:
    works = (functools.partial(decompose, scripted_file(name), image(1, 224)) for name in SMALLEST)
    taken = multiples_of_unpickling(*works, tries=7)
    assert statistics.median(taken) < 1.8
    assert max(taken) < 8
