# SPDX-License-Identifier: Apache-2.0
"""Refusal of unsupported files, with their kind and the way to a supported one.

Files are recognised by their start, archives by their entries, never by file name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import BinaryIO

from .errors import ModelError

_HEAD = 4096
_READ = "TorchScript, a .pt2 of torch.export, ONNX, GGUF, or the layers of an engine"
_EXPORT = "torch.export.save(torch.export.export(model.eval(), (example,)), 'model.pt2')"
_ONNX = "torch.onnx.export(model.eval(), (example,), 'model.onnx')"
_LOADED = f"build the model in Python, load them into it, then {_EXPORT}"
_ENGINE = (
    "trtexec --loadEngine=FILE --profilingVerbosity=detailed --exportLayerInfo=engine.json writes its layers (of an "
    "engine built with --profilingVerbosity=detailed); or give the ONNX file that it was built from"
)
_TENSORFLOW = "python -m tf2onnx.convert"
_KERAS = f"model.export('saved'), then {_TENSORFLOW} --saved-model saved --output model.onnx"

#: Bytes at a place near the start of a file; its kind; and the remedy.
_STARTS: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"ftrt", "a TensorRT engine", _ENGINE),
    (0, b"ptrt", "a TensorRT engine", _ENGINE),
    (0, b"lmgg", "a GGML file of an early llama.cpp", "convert the model that it was made from: convert_hf_to_gguf.py"),
    (4, b"TFL3", "a TensorFlow Lite model", f"{_TENSORFLOW} --tflite MODEL.tflite --output model.onnx"),
    (4, b"ORTM", "a model in onnxruntime's own format", "give the ONNX file that it was made from"),
    (4, b"ET1", "an ExecuTorch program", f"give the exported program before it was lowered: {_EXPORT}"),
    (4, b"PTMF", "a flatbuffer for PyTorch's mobile interpreter", "save the same module with torch.jit.save"),
    (0, b"\x89HDF\r\n", "an HDF5 file (Keras?)", _KERAS),
    (0, b"\x93NUMPY", "a NumPy array", f"give a model: {_EXPORT}"),
    (0, b"7767517", "an ncnn network", f"give the model that it was converted from: {_EXPORT}"),
    (0, b"RKNN", "a Rockchip model", f"give the model that it was converted from: {_ONNX}"),
    (0, b"\x01HEF", "a Hailo model", f"give the model that it was compiled from: {_ONNX}"),
    (0, b"\x7fELF", "a compiled program (AOTInductor, TVM?)", f"give the model that it was compiled from: {_EXPORT}"),
    (0, b"version https://git-lfs", "a pointer of Git LFS to a file that is not here", "git lfs pull"),
    (0, b"\x1f\x8b", "compressed by gzip", "unpack it first (tar -xzf, gunzip)"),
    (0, b"BZh", "compressed by bzip2", "unpack it first"),
    (0, b"\xfd7zXZ", "compressed by xz", "unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "compressed by Zstandard", "unpack it first"),
    (0, b"7z\xbc\xaf", "a 7-Zip archive", "unpack it first"),
    (257, b"ustar", "a tar archive", "unpack it first (tar -xf)"),
    (0, b"SQLite format 3\0", "an SQLite file (Nsight Systems?)", f"give a model: {_EXPORT}"),
    (0, b"\x89PNG", "a picture", f"give a model: {_EXPORT}"),
    (0, b"\xff\xd8\xff", "a picture", f"give a model: {_EXPORT}"),
)  # fmt: skip
#: Start of a text, blanks and case aside.
_TEXTS: tuple[tuple[str, str, str], ...] = (
    (r"(<!doctype html|<html)", "a web page (a download that failed?)", "download the model itself"),
    (r"(<\?xml[^>]*>\s*)?<net\b", "an OpenVINO network", f"give the model that it was converted from: {_ONNX}"),
    (r".*\b(layer|layers|input_shape)\s*\{", "a Caffe network", f"give it as ONNX: {_ONNX}"),
    (r"\s*\[net(work)?\]", "a Darknet network", f"give it as ONNX: {_ONNX}"),
)
#: The image size among an Ultralytics checkpoint's arguments: an integer of one byte or two.
_IMAGE_SIZE = re.compile(rb"imgsz(?:q.|r.{4}|\x94)?(?:K(.)|M(..))", re.DOTALL)
_TORCH_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_DARKNET = b"\0\0\0\0\2\0\0\0\5\0\0\0"


def refuse_foreign(stream: BinaryIO) -> None:
    """Raise ModelError for a file that starts unlike any supported model."""
    try:
        stream.seek(0)
        head = stream.read(_HEAD)
    except (OSError, ValueError) as error:
        raise ModelError(f"model file: expected a regular file that can be read at any position ({error})") from error
    if not head:
        raise ModelError(f"the file is empty; expected {_READ}")
    for place, magic, what, instead in _STARTS:
        if head[place : place + len(magic)] == magic:
            raise _refusal(what, instead)
    if head.startswith(_TORCH_MAGIC):
        raise _pickled(head)
    if head[0] == 0x80 and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        raise _refusal("a Python pickle, which is never loaded", f"save its content as a network: {_EXPORT}")
    if head[:12] == _DARKNET:
        raise _refusal("weights of Darknet without a network", f"give it as ONNX: {_ONNX}")
    _refuse_ultralytics(head)
    if head[0] == 0x0A and (b"Placeholder" in head or b"\x12\x05Const" in head):
        raise _refusal(
            "a graph of TensorFlow", f"{_TENSORFLOW} --graphdef MODEL.pb --output model.onnx --inputs ... --outputs ..."
        )
    if head[:3] == b"\x08\x01\x12" and (b"NoOp" in head or b"VarHandleOp" in head or b"AssignVariableOp" in head):
        raise _refusal("a SavedModel of TensorFlow", f"{_TENSORFLOW} --saved-model FOLDER --output model.onnx")
    if head[0] == 0x0A and b"feed" in head and b"fetch" in head:
        raise _refusal("a program of PaddlePaddle", "paddle2onnx --model_dir FOLDER --save_file model.onnx")
    if b"\0" not in head and head[:2] != b"PK":
        text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
        for form, what, instead in _TEXTS:
            if re.match(form, text, re.IGNORECASE | re.DOTALL):
                raise _refusal(what, instead)


def _refuse_ultralytics(head: bytes) -> None:
    length = int.from_bytes(head[:4], "little")
    if not 2 <= length <= _HEAD - 4 or head[4:5] != b"{":
        return
    try:
        about = json.loads(head[4 : 4 + length])
    except ValueError:
        return
    if isinstance(about, dict) and ("description" in about or "stride" in about):
        name = str(about.get("description", "Ultralytics"))[:60]
        raise _refusal(f"a TensorRT engine ({name})", "yolo export model=MODEL.pt format=torchscript, or format=onnx")


def refuse_foreign_archive(names: Collection[str], pickle: bytes | None) -> None:
    """Raise ModelError for an archive without TorchScript or an exported program, by its entries and its pickle."""
    if any("aotinductor" in name or name.endswith((".cubin", ".wrapper.so")) for name in names):
        raise _refusal("a package compiled by AOTInductor", f"give the exported program that it was compiled from: {_EXPORT}")
    if any(name.endswith(".weights.h5") or name == "metadata.json" for name in names) and "config.json" in names:
        raise _refusal("a Keras model", _KERAS)
    if names and all(name.endswith(".npy") for name in names):
        raise _refusal("NumPy arrays without a network", _LOADED)
    if any(name.endswith((".mlmodel", "Manifest.json")) for name in names):
        raise _refusal("a Core ML model", f"give the model that it was converted from: {_EXPORT}")
    if any(name.endswith("extern_modules") for name in names):
        raise _refusal("a torch.package", f"load the model from it, then {_EXPORT}")
    if pickle is not None:
        raise _pickled(pickle)


def _pickled(pickle: bytes) -> ModelError:
    """Error for ``torch.save`` output: a whole module, or weights alone. Only names are searched."""
    if b"ultralytics" in pickle:
        size = _IMAGE_SIZE.search(pickle)
        pixels = int.from_bytes(size[1] or size[2], "little") if size else 640
        export = f"yolo export model=MODEL.pt format=onnx imgsz={pixels} (or format=torchscript)"
        return _refusal("a checkpoint of Ultralytics (data without code)", export)
    if b"input_names" in pickle and b"engine" in pickle:
        return _refusal("a TensorRT engine of torch2trt", f"write its member 'engine' to a file; {_ENGINE}")
    if b"torch.nn.modules" in pickle or b"__main__" in pickle or b"\nModule\n" in pickle:
        return _refusal(
            "a module pickled by torch.save (data without code)", f"load it where its classes are installed, then {_EXPORT}"
        )
    return _refusal("weights saved by torch.save (data without code)", _LOADED)


def _refusal(what: str, instead: str) -> ModelError:
    return ModelError(f"the file is {what}; expected {_READ}: {instead}")
