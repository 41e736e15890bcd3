# SPDX-License-Identifier: Apache-2.0
"""Folders of models (Hugging Face, onnxruntime-genai): find the model's file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import ModelError

_GENAI, _ADAPTER = "genai_config.json", "adapter_config.json"
#: Files that accompany a model.
_ABOUT = ("config.json", _GENAI, _ADAPTER, "tokenizer.json", "tokenizer_config.json", "generation_config.json")
_SUFFIXES = (".gguf", ".onnx", ".pt2", ".pt", ".pth", ".ts", ".jit")
_MOST_BYTES = 16 << 20


def nonblocking(path: str, flags: int) -> int:
    """Opener for ``open`` that does not wait for the writer of a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def model_file(path: Path) -> Path:
    """The path; or the model's file for a folder, its ``config.json`` or index, or a LoRA adapter. Raises ModelError."""
    folder = path if path.is_dir() else path.parent
    if path.name.startswith("adapter_model.") or ((path.name == _ADAPTER or path == folder) and (folder / _ADAPTER).exists()):
        base = str(_object(folder / _ADAPTER).get("base_model_name_or_path", "unknown"))
        raise ModelError(
            f"{path}: a LoRA adapter, which adds to the model {base!r:.120}; give that one, or merge them (merge_and_unload)"
        )
    if path != folder and path.name not in _ABOUT and not path.name.endswith(".index.json"):
        return path
    if (folder / _GENAI).exists():
        named = _object(folder / _GENAI).get("model")
        decoder = named.get("decoder") if isinstance(named, dict) else None
        file = decoder.get("filename") if isinstance(decoder, dict) else None
        if not isinstance(file, str) or Path(file).name != file:
            raise ModelError(f"{folder / _GENAI}: expected the decoder's file name as model.decoder.filename")
        return folder / file
    try:
        files = sorted(file for file in folder.iterdir() if file.is_file())
    except OSError as error:
        raise ModelError(f"{folder}: {error.strerror or error}") from error
    parts = [file for file in files if file.suffix == ".safetensors"]
    if parts and (folder / "config.json").exists():
        return next((part for part in parts if part.name.startswith("model")), parts[0])
    found = [file for file in files if file.suffix in _SUFFIXES]
    if len(found) == 1:
        return found[0]
    names = ", ".join(file.name for file in found)
    raise ModelError(f"{path}: {f'several models: {names:.300}; give one of them' if found else 'no model in this folder'}")


def _object(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(_MOST_BYTES))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not JSON ({error})") from error
    return data if isinstance(data, dict) else {}
