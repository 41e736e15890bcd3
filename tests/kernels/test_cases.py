# SPDX-License-Identifier: Apache-2.0
"""Small models that were once refused, listed wrongly, or taken for something else: none of them is any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import ModelError
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import Network, TensorSpec
from jetdvfs.tests.support.paths import SHARED_CASES
from jetdvfs.tests.zoo.attempt import apart
from jetdvfs.tests.zoo.comparison import Judgement, judge

pytestmark = pytest.mark.shared_data

CASES = SHARED_CASES / "decompose"
#: TorchScript that PyTorch runs as well: the inputs of each.
RUN = {
    "d_cat.pt": "1x2x4 1x2x4 1x2x4",
    "d_dead.script.pt": "1x3x32x32",
    "d_diff.pt": "1x16:int64",
    "d_fakequant.pt": "1x3x16x16",
    "d_optional_in.pt": "2x4",
    "d_s_affine_grid.pt": "1x3x8x8",
    "d_s_bucketize.pt": "2x3",
    "d_s_cdist_large.pt": "30x4",
    "d_s_cdist_small.pt": "4x4",
    "d_s_cholesky_solve.pt": "4x4",
    "d_s_complex_fft.pt": "1x3x8x8",
    "d_s_ctc_like.pt": "1x9x4",
    "d_s_diff_prepend.pt": "2x8",
    "d_s_fused_linear_gelu.pt": "1x2x8x8",
    "d_s_grid3d.pt": "1x3x4x4x4",
    "d_s_grouped_norms.pt": "1x3x8x8",
    "d_s_hann_window.pt": "2x8",
    "d_s_histc.pt": "9",
    "d_s_interpolate_aa.pt": "1x3x8x8",
    "d_s_inverse.pt": "4x4",
    "d_s_kthvalue_median.pt": "3x5",
    "d_s_logcumsumexp.pt": "3x5",
    "d_s_multinomial.pt": "3x5",
    "d_s_num_minus_tensor.pt": "3x5",
    "d_s_pixel_unshuffle.pt": "1x3x8x8",
    "d_s_randn.pt": "3x5",
    "d_s_repeat_interleave.pt": "3x5",
    "d_s_scatter_reduce.pt": "9",
    "d_s_searchsorted.pt": "3x5",
    "d_s_to_copy.pt": "3x5",
    "d_s_trig.pt": "3x5",
    "d_s_unfold_fold.pt": "1x3x8x8",
    "d_tfpad.pt": "1x3x224x224",
    "d_vae_dec.pt": "1x4x16x16",
}
QUANTIZED = "quantize_per_tensor conv2d conv2d sigmoid mul mean matmul dequantize"
#: All others: the inputs, and the launches that their code or nodes come to.
LISTED = {
    "d_dict_in.pt": ("a=2x4 b=2x4", "matmul add"),
    "d_int_in.pt": ("1x3x16x16 8:int 8:int", "conv2d upsample_nearest2d"),
    "d_int8_dyn.pt": ("1x8", "aminmax quantize_per_tensor matmul relu aminmax quantize_per_tensor matmul"),
    "d_int8_static.pt": ("1x3x32x32", "quantize_per_tensor conv2d relu mean matmul dequantize"),
    "d_s_int8_mm.pt": ("32x32:int8", "matmul"),
    "d_fp16.onnx": ("1x3x64x64", "to conv2d relu conv2d silu mean matmul to"),
    "d_gqa_llm.onnx": ("1x1x32 1x1x16 1x1x16 1x2x10x8 1x2x10x8 1:int32 scalar:int32", "copy copy attention"),
    "d_host_clip.onnx": ("2x6", "relu"),
    "d_loop.onnx": ("1x1x30", "conv1d mul_scalar mul_scalar"),
    "d_matmulnbits_llm.onnx": ("1x8x64", "matmul"),
    "d_not_equal.onnx": ("2x6", "relu"),
    "d_op23_rope.onnx": ("1x4x8x16 1x8x8 1x8x8", "mul mul sub mul mul add cat cat"),
    "d_qdq.onnx": ("1x3x64x64", QUANTIZED),
    "d_qop.onnx": ("1x3x64x64", QUANTIZED),
    "d_scan.onnx": ("4 6x4", "add add add add add add stack"),
    "d_simplified_ln.onnx": ("1x8x32", "rms_norm"),
    "d_tfpad.onnx": ("1x3x224x224", "constant_pad_nd conv2d constant_pad_nd conv2d"),
    "d_topk.onnx": ("1x100", "topk"),
    "d_trt_efficientnms.onnx": ("1x8400x4 1x8400x80", "ends at TRT::EfficientNMS_TRT"),
}
#: Files that are no model: what each is called.
NAMED = {
    **dict.fromkeys(("m.engine", "m.plan", "yolov8n.engine"), "a TensorRT engine"),
    **dict.fromkeys(("sd.pth", "sd_old.pth"), "weights saved by torch.save"),
    "dl.onnx": "a web page",
    "empty.pt": "the file is empty",
    "lfs.onnx": "a pointer of Git LFS",
    "m.gguf": "at most 256 are read",
    "m.h5": "an HDF5 file",
    "m.keras": "a Keras model",
    "m.npz": "NumPy arrays",
    "m.ort": "onnxruntime's own format",
    "m.param": "an ncnn network",
    "m.pb": "a graph of TensorFlow",
    "m.prototxt": "a Caffe network",
    "m.pte": "an ExecuTorch program",
    "m.safetensors": "config.json, which describes",
    "m.tar.gz": "compressed by gzip",
    "m.tflite": "TensorFlow Lite",
    "m.xml": "an OpenVINO network",
    "readme.pt": "not a TorchScript file",
    "trunc.pt": "archive is truncated",
    "whole.pt": "a module pickled",
    "yolo.weights": "weights of Darknet",
}
#: Named like a phone's model and like saved state, but TorchScript of one convolution and one product.
MODELS = ("lite.ptl", "s.pt")


@pytest.fixture(scope="module", autouse=True)
def there() -> None:
    if not CASES.is_dir():
        pytest.skip(f"no cases at {CASES}")


def network(file: Path, texts: str) -> Network:
    return decompose(file, [parse_input(text) for text in texts.split()])


@pytest.mark.parametrize("name", LISTED)
def test_a_case_is_listed_as_its_code_says(name: str) -> None:
    texts, expected = LISTED[name]
    made = network(CASES / name, texts)
    told = f"ends at {made.boundary.operator}" if made.boundary else " ".join(launch.kind for launch in made.launches)
    assert told == expected


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::Warning")
def test_cases_of_torchscript_are_listed_as_pytorch_dispatches_them() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what lists are held against; it is not installed")
    from jetdvfs.tests.zoo import dispatched, formats

    def judged() -> dict[str, Judgement]:
        torch.set_num_threads(1)
        found = {}
        for name, texts in RUN.items():
            specs = [spec for text in texts.split() if isinstance(spec := parse_input(text), TensorSpec)]
            tensors = [torch.ones(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in specs]
            if name == "d_s_cholesky_solve.pt" or name == "d_s_inverse.pt":
                tensors = [torch.eye(4)]
            module, constants = formats.opened(CASES / name, "traced")
            found[name] = judge(network(CASES / name, texts), dispatched.launches_of(module, module, tensors, constants))
        return found

    verdicts, trouble = apart(judged, 120)  # it changes what is dispatched for as long as its process lives
    assert not trouble and set(verdicts) == set(RUN), (verdicts, trouble)
    others = {name: judgement for name, judgement in verdicts.items() if judgement.verdict != "equal"}
    assert others.keys() == {"d_s_ctc_like.pt"} and others["d_s_ctc_like.pt"].verdict == "explained", others


@pytest.mark.parametrize("name", NAMED)
def test_what_is_no_model_is_called_what_it_is(name: str) -> None:
    with pytest.raises(ModelError, match=NAMED[name]) as caught:
        network(CASES / "not-models" / name, "1x3x224x224")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", MODELS)
def test_the_name_of_a_file_says_nothing(name: str) -> None:
    made = network(CASES / "not-models" / name, "1x3x224x224")
    assert [launch.kind for launch in made.launches] == ["conv2d", "relu", "mean", "matmul"]


def test_every_case_is_tried() -> None:
    files = {path.name for path in CASES.iterdir() if path.is_file() and path.suffix != ".md"}
    assert files == RUN.keys() | LISTED.keys()
    assert {path.name for path in (CASES / "not-models").iterdir()} == NAMED.keys() | set(MODELS)
