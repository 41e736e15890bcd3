# SPDX-License-Identifier: Apache-2.0
"""Files that are no model that is read: each is named for what it is, with what makes one that is, on one line."""

from __future__ import annotations

import io
import json
import struct
import tarfile

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import ModelError
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.tests.support.models.handmade import zipped

ABOUT = json.dumps({"description": "Ultralytics YOLOv8n", "imgsz": [640, 640]}).encode()
TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00."


DESCRIBED = struct.pack("<I", len(ABOUT)) + ABOUT + b"ftrt"


def pickled(content: bytes) -> bytes:
    """What ``torch.save`` writes."""
    return zipped({"m/data.pkl": b"\x80\x02" + content + b".", "m/version": b"3\n"})


def tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as file:
        file.addfile(tarfile.TarInfo("model.pt"))
    return stream.getvalue()


FILES: dict[str, tuple[bytes, str, str]] = {
    "engine": (b"ftrt\0\0\0\0" + bytes(64), "a TensorRT engine", "--exportLayerInfo=engine.json"),
    "plan": (b"ptrt" + bytes(64), "a TensorRT engine", "--exportLayerInfo=engine.json"),
    "engine of ultralytics": (DESCRIBED, r"engine \(Ultralytics YOLOv8n\)", "yolo export"),
    "tflite": (b"\x1c\0\0\0TFL3" + bytes(64), "TensorFlow Lite", "tf2onnx.convert --tflite"),
    "ort": (b"\x24\0\0\0ORTM" + bytes(64), "onnxruntime's own format", "ONNX file that it was made from"),
    "pte": (b"\x3c\0\0\0ET12eh00" + bytes(64), "an ExecuTorch program", "torch.export.save"),
    "ptl": (b"\x18\0\0\0PTMF" + bytes(64), "mobile interpreter", "torch.jit.save"),
    "old weights": (TORCH, "weights saved by torch.save", "torch.export.save"),
    "pickle": (b"\x80\x04\x95" + bytes(64), "a Python pickle", "torch.export.save"),
    "openvino": (b'<?xml version="1.0"?>\n<net name="m" version="11"></net>', "an OpenVINO network", "onnx"),
    "web page": (b"<!DOCTYPE html><html><body>404</body></html>", "a web page", "download the model itself"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\n", "a pointer of Git LFS", "git lfs pull"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(64), "an HDF5 file", "tf2onnx.convert --saved-model"),
    "tensorflow": (b"\n\x1f\n\x05input\x12\x0bPlaceholder*\x09\n\x05dtype\x12\x020\x01", "graph of TensorFlow", "--graphdef"),
    "caffe": (b'name: "x"\nlayer { name: "data" type: "Input" }\n', "a Caffe network", "onnx"),
    "ncnn": (b"7767517\n3 3\nInput in0 0 1 in0\n", "an ncnn network", "torch.export.save"),
    "darknet": (b"\0\0\0\0\2\0\0\0\5\0\0\0" + bytes(64), "weights of Darknet", "onnx"),
    "sqlite": (b"SQLite format 3\0" + bytes(64), "an SQLite file", "torch.export.save"),
    "torch2trt": (pickled(b"}(X\x06\0\0\0engineX\x0b\0\0\0input_namesu"), "engine of torch2trt", "member 'engine'"),
    "yolo of 320": (pickled(b"cultralytics\nX\x05\0\0\0imgszq\x05M\x40\x01"), "Ultralytics", "format=onnx imgsz=320 "),
    "yolo of 96": (pickled(b"cultralytics\nX\x05\0\0\0imgszr\x05\0\0\0K\x60"), "Ultralytics", "format=onnx imgsz=96 "),
    "yolo": (pickled(b"cultralytics\n"), "Ultralytics", "format=onnx imgsz=640 "),
    "gzip": (b"\x1f\x8b\x08" + bytes(64), "compressed by gzip", "unpack it first"),
    "tar": (tar(), "a tar archive", "unpack it first"),
    "elf": (b"\x7fELF" + bytes(64), "a compiled program", "torch.export.save"),
    "empty": (b"", "the file is empty", "TorchScript"),
    "npz": (zipped({"a.npy": b"\x93NUMPY"}), "NumPy arrays", "torch.export.save"),
    "keras": (zipped({"metadata.json": b"{}", "config.json": b"{}", "model.weights.h5": b""}), "a Keras model", "tf2onnx"),
    "weights": (pickled(b"}"), "weights saved by torch.save", "torch.export.save"),
    "module": (pickled(b"ctorch.nn.modules.container\nSequential\n"), "a module pickled", "classes are installed"),
    "checkpoint": (pickled(b"cultralytics.nn.tasks\nDetectionModel\n"), "checkpoint of Ultralytics", "yolo export"),
    "compiled": (zipped({"m/data/aotinductor/model/a.wrapper.so": b"\x7fELF"}), "compiled by AOTInductor", "torch.export.save"),
    "cut off": (zipped({"m/data.pkl": b"\x80\x02}." * 100})[:400], "archive is truncated", "download it again"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_kind_is_named_with_the_way_out(name: str) -> None:
    content, what, instead = FILES[name]
    with pytest.raises(ModelError, match=what) as caught:
        decompose(io.BytesIO(content), [parse_input("1x3x224x224")])
    assert instead in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_nothing_known_is_not_called_anything() -> None:
    for content in (b"hello world\n", bytes(range(1, 255)), b"\x03" * 5000):
        with pytest.raises(ModelError, match=r"not a TorchScript file|expected"):
            decompose(io.BytesIO(content), [parse_input("1x3x224x224")])
