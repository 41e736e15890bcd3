# SPDX-License-Identifier: Apache-2.0
"""One network, three files: TorchScript, ``torch.export`` and ONNX list the same launches.

The fastest torchvision classifiers, or all of them with ``JETDVFS_ALL_MODELS=1``. What an ONNX file holds that is not in the
network, or the other way round, stands in ``ONNX_DIFFERS`` with its reason; for the rest the launches are equal, one by one.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import KernelInvocation, TensorSpec

torch = pytest.importorskip("torch", reason="PyTorch writes the files; it is not installed")
pytest.importorskip("onnx", reason="PyTorch's ONNX exporter needs it; it is not installed")
if find_spec("torchvision") is None:
    pytest.skip("the networks are torchvision's; it is not installed", allow_module_level=True)

from jetdvfs.tests.support.models import layers, oracle  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]

models = oracle.torchvision().models
EVERY = bool(os.environ.get("JETDVFS_ALL_MODELS"))
NAMES = models.list_models(module=models) if EVERY else ("mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1")
#: The exporter joins the lists of nested ``cat`` calls into one: four launches fewer.
ONNX_DIFFERS = {"inception_v3": {"cat": -4}}


def side_of(name: str) -> int:
    return 299 if name == "inception_v3" else 256 if name.startswith("swin_v2") else 224


@contextlib.contextmanager
def written_out() -> Iterator[None]:
    """Without the fast path of attention, for which the exporter has no operator."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def exported(module: Any, picture: Any) -> io.BytesIO:
    stream = io.BytesIO()
    with torch.no_grad():
        torch.export.save(torch.export.export(module, (picture,)), stream)
    return stream


def onnx_file(module: Any, *example: Any, **options: Any) -> io.BytesIO:
    """What the exporter writes when it folds nothing."""
    stream = io.BytesIO()
    kept = torch.onnx.TrainingMode.PRESERVE
    with written_out():
        torch.onnx.export(
            module, example, stream, dynamo=False, training=kept, do_constant_folding=False, opset_version=17, **options
        )
    return stream


def without_scopes(launches: Iterable[KernelInvocation]) -> list[KernelInvocation]:
    return [msgspec.structs.replace(launch, scope="") for launch in launches]


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def module(name: str) -> Any:
    return oracle.without_weights(oracle.build(name))


@pytest.fixture(scope="module")
def inputs(name: str) -> list[TensorSpec]:
    return [TensorSpec((1, 3, side_of(name), side_of(name)))]


@pytest.fixture(scope="module")
def scripted(module: Any, inputs: Sequence[TensorSpec]) -> tuple[KernelInvocation, ...]:
    return decompose(oracle.archive_of(module, "script"), inputs).launches


def test_an_exported_program_lists_what_the_script_does(
    module: Any, inputs: Sequence[TensorSpec], scripted: Sequence[KernelInvocation]
) -> None:
    ours = decompose(exported(module, torch.zeros(inputs[0].shape)), inputs).launches
    assert without_scopes(ours) == without_scopes(scripted)
    assert [launch.scope for launch in ours] == [launch.scope for launch in scripted]


def test_an_onnx_file_lists_what_the_script_does(
    name: str, module: Any, inputs: Sequence[TensorSpec], scripted: Sequence[KernelInvocation]
) -> None:
    network = decompose(onnx_file(module, torch.zeros(inputs[0].shape)), inputs)
    if name in ONNX_DIFFERS:
        expected = [launch.kind for launch in scripted]
        kinds = {kind: network.kinds.get(kind, 0) - expected.count(kind) for kind in {*network.kinds, *expected}}
        assert {kind: difference for kind, difference in kinds.items() if difference} == ONNX_DIFFERS[name]
        return
    assert without_scopes(network.launches) == without_scopes(scripted)
    assert [launch.scope for launch in network.launches] == [launch.scope for launch in scripted]


NETWORKS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "encoder": (layers.Encoder, ["2x10:int64"]),
    "encoder, norm first": (lambda: layers.Encoder(True, True, "gelu"), ["2x10:int64"]),
    "encoder, time first": (lambda: layers.Encoder(batch_first=False), ["10x2:int64"]),
    "transformer": (layers.Translator, ["2x10x64", "2x6x64"]),
    "causal": (layers.Causal, ["2x10x32"]),
    "larger": (layers.Larger, ["2x3x8x8", "2x3x40x30"]),
}


@pytest.mark.parametrize("case", NETWORKS)
def test_what_the_exporter_takes_apart_is_put_together_again(case: str) -> None:
    make, texts = NETWORKS[case]
    module, inputs = make().eval().requires_grad_(False), [parse_input(text) for text in texts]
    example = [torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in inputs]
    with written_out():
        traced = decompose(oracle.archive_of(module, "trace", example), inputs)
    assert decompose(onnx_file(module, *example), inputs).launches == traced.launches


def test_a_file_with_any_batch_size_takes_any() -> None:
    module = oracle.without_weights(oracle.build("squeezenet1_1"))
    batch = {"x": {0: "batch"}}
    stream = onnx_file(module, torch.zeros(1, 3, 224, 224), input_names=["x"], dynamic_axes=batch)
    scripted = oracle.archive_of(module, "script")
    for size in (1, 8):
        inputs = [TensorSpec((size, 3, 224, 224))]
        assert decompose(stream, inputs).launches == decompose(scripted, inputs).launches


@pytest.mark.skipif(not EVERY, reason="the newer exporter takes minutes; set JETDVFS_ALL_MODELS=1")
@pytest.mark.parametrize("network", ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x1_0", "convnext_tiny", "vit_b_16"])
def test_the_newer_exporter_lists_what_the_script_does(network: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="PyTorch's newer ONNX exporter needs it; it is not installed")
    module, inputs = oracle.without_weights(oracle.build(network)), [TensorSpec((1, 3, 224, 224))]
    with written_out():
        program = torch.onnx.export(module, (torch.zeros(1, 3, 224, 224),), dynamo=True, optimize=False)
    program.save(tmp_path / "model.onnx")
    scripted = decompose(oracle.archive_of(module, "script"), inputs)
    assert decompose(tmp_path / "model.onnx", inputs).launches == scripted.launches
