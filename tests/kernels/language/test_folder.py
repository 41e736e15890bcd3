# SPDX-License-Identifier: Apache-2.0
"""Folders of models, and the files that describe them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import ModelError
from jetdvfs.kernels.language.folder import model_file
from jetdvfs.tests.support.models.handmade_onnx import declared, graph, model, node

ONNX = model(graph([node("Relu", ["x"], ["y"])], [declared("x", (2, 3))], ["y"]))


def folder(tmp_path: Path, **files: object) -> Path:
    for name, content in files.items():
        path = tmp_path / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return tmp_path


@pytest.mark.parametrize("name", ["", "config.json"])
def test_a_folder_of_one_model_is_that_model(tmp_path: Path, name: str) -> None:
    where = folder(tmp_path, model__onnx=ONNX, config__json={}) / name
    assert decompose(where).kinds == {"relu": 1}


@pytest.mark.parametrize("name", ["", "config.json", "model.safetensors.index.json"])
def test_a_folder_of_safetensors_is_read_by_its_first_part(tmp_path: Path, name: str) -> None:
    parts = {"model-00001-of-00002__safetensors": b"", "model-00002-of-00002__safetensors": b"", "extra__safetensors": b""}
    where = folder(tmp_path, config__json={}, model__safetensors__index__json={}, **parts)
    assert model_file(where / name) == where / "model-00001-of-00002.safetensors"


@pytest.mark.parametrize("name", ["", "genai_config.json"])
def test_a_folder_of_onnxruntime_genai_is_its_decoder(tmp_path: Path, name: str) -> None:
    told = {"model": {"decoder": {"filename": "decoder.onnx"}}}
    where = folder(tmp_path, genai_config__json=told, decoder__onnx=ONNX, embedding__onnx=ONNX)
    assert model_file(where / name) == where / "decoder.onnx"


@pytest.mark.parametrize("told", [{}, {"model": {"decoder": {"filename": "../decoder.onnx"}}}, {"model": []}, b"{"], ids=str)
def test_a_description_that_names_no_file_is_refused(tmp_path: Path, told: object) -> None:
    with pytest.raises(ModelError, match=r"genai_config\.json"):
        model_file(folder(tmp_path, genai_config__json=told))


@pytest.mark.parametrize("name", ["", "adapter_config.json", "adapter_model.safetensors"])
def test_an_adapter_names_its_base_model(tmp_path: Path, name: str) -> None:
    where = folder(tmp_path, adapter_config__json={"base_model_name_or_path": "base/model"}, adapter_model__safetensors=b"")
    with pytest.raises(ModelError, match="LoRA adapter, which adds to the model 'base/model'"):
        decompose(where / name)


def test_a_folder_of_several_models_or_none_names_them(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model in this folder"):
        model_file(tmp_path)
    with pytest.raises(ModelError, match=r"several models: a\.onnx, b\.pt; give one of them"):
        model_file(folder(tmp_path, a__onnx=ONNX, b__pt=b""))


def test_other_files_are_taken_as_they_are(tmp_path: Path) -> None:
    for name in ("model.onnx", "list.json", "absent/model.pt"):
        assert model_file(tmp_path / name) == tmp_path / name
