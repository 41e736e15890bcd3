# SPDX-License-Identifier: Apache-2.0
"""One network, three files: TorchScript, ``torch.export`` and ONNX list the same launches.

The fastest torchvision classifiers, or all of them with ``JETDVFS_ALL_MODELS=1``. What an ONNX file holds that is not in the
network, or the other way round, stands in ``ONNX_DIFFERS`` with its reason; for the rest the launches are equal, one by one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
from importlib.util import find_spec

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import TensorSpec

torch = pytest.importorskip("torch", reason="PyTorch writes the files; it is not installed")
pytest.importorskip("onnx", reason="PyTorch's ONNX exporter needs it; it is not installed")
if find_spec("torchvision") is None:
    pytest.skip("the networks are torchvision's; it is not installed", allow_module_level=True)

from . import oracle  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]

models = oracle.torchvision().models
EVERY = bool(os.environ.get("JETDVFS_ALL_MODELS"))
NAMES = models.list_models(module=models) if EVERY else ("mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1")
#: The exporter joins the lists of nested ``cat`` calls into one: four launches fewer.
ONNX_DIFFERS = {"inception_v3": {"cat": -4}}


def side_of(name: str) -> int:
    return 299 if name == "inception_v3" else 256 if name.startswith("swin_v2") else 518 if name == "vit_h_14" else 224


@contextlib.contextmanager
def written_out():
    """Without the fast path of attention, for which the exporter has no operator."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def exported(module, picture) -> io.BytesIO:
    stream = io.BytesIO()
    with torch.no_grad():
        torch.export.save(torch.export.export(module, (picture,)), stream)
    return stream


def onnx_file(module, *example, **options) -> io.BytesIO:
    """What the exporter writes when it folds nothing."""
    stream = io.BytesIO()
    kept = torch.onnx.TrainingMode.PRESERVE
    with written_out():
        torch.onnx.export(
            module, example, stream, dynamo=False, training=kept, do_constant_folding=False, opset_version=17, **options
        )
    return stream


def without_scopes(launches):
    return [dataclasses.replace(launch, scope="") for launch in launches]


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def module(name):
    return oracle.without_weights(oracle.build(name))


@pytest.fixture(scope="module")
def inputs(name):
    return [TensorSpec((1, 3, side_of(name), side_of(name)))]


@pytest.fixture(scope="module")
def scripted(module, inputs):
    return decompose(oracle.archive_of(module, "script"), inputs).launches


def test_an_exported_program_lists_what_the_script_does(module, inputs, scripted):
    ours = decompose(exported(module, torch.zeros(inputs[0].shape)), inputs).launches
    assert without_scopes(ours) == without_scopes(scripted)
    assert [launch.scope for launch in ours] == [launch.scope for launch in scripted]


def test_an_onnx_file_lists_what_the_script_does(name, module, inputs, scripted):
    network = decompose(onnx_file(module, torch.zeros(inputs[0].shape)), inputs)
    if name in ONNX_DIFFERS:
        expected = [launch.kind for launch in scripted]
        kinds = {kind: network.kinds.get(kind, 0) - expected.count(kind) for kind in {*network.kinds, *expected}}
        assert {kind: difference for kind, difference in kinds.items() if difference} == ONNX_DIFFERS[name]
        return
    assert without_scopes(network.launches) == without_scopes(scripted)
    assert [launch.scope for launch in network.launches] == [launch.scope for launch in scripted]
