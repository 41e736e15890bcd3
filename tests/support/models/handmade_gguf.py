# SPDX-License-Identifier: Apache-2.0
"""Language models' files put together by hand: GGUF headers, safetensors headers, and what stands beside them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from jetdvfs.kernels.language.gguf import TYPES
from jetdvfs.kernels.language.safetensors import TYPES as SAFETENSORS_TYPES
from jetdvfs.kernels.network import numel, tensor_bytes

_NUMBERS = {name: number for number, name in TYPES.items()}
_ALIGNMENT = 32

Tensors = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape, the outermost size first, and element type by name."""


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(made: Any) -> bytes:
    """A value of the metadata, with its type before it."""
    if isinstance(made, str):
        return struct.pack("<I", 8) + text(made)
    if isinstance(made, float):
        return struct.pack("<If", 6, made)
    if isinstance(made, list):
        kind, items = 5, [struct.pack("<i", n) for n in made if isinstance(n, int)]
        if isinstance(made[0], str):
            kind, items = 8, [text(item) for item in made]
        elif isinstance(made[0], bool):
            kind, items = 7, [struct.pack("<?", item) for item in made]
        return struct.pack("<IIQ", 9, kind, len(made)) + b"".join(items)
    return struct.pack("<I?", 7, made) if isinstance(made, bool) else struct.pack("<II", 4, made)


def header(said: Mapping[str, Any], tensors: Tensors, version: int = 3) -> bytes:
    """What stands before the weights, up to where they begin."""
    parts = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(said))]
    parts += [text(name) + value(made) for name, made in said.items()]
    offset = 0
    for name, (shape, dtype) in tensors.items():
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        parts.append(text(name) + sizes + struct.pack("<IQ", _NUMBERS[dtype], offset % (1 << 64)))
        offset += -(-tensor_bytes(numel(shape), dtype) // _ALIGNMENT) * _ALIGNMENT
    whole = b"".join(parts)
    return whole + bytes(-len(whole) % _ALIGNMENT)


def weight_bytes(tensors: Tensors) -> int:
    return sum(-(-tensor_bytes(numel(shape), dtype) // _ALIGNMENT) * _ALIGNMENT for shape, dtype in tensors.values())


def gguf(said: Mapping[str, Any], tensors: Tensors) -> bytes:
    """A whole file, its weights zeros."""
    return header(said, tensors) + bytes(weight_bytes(tensors))


def model(
    architecture: str = "llama", layers: int = 2, width: int = 256, heads: int = 4, kv_heads: int = 2, inner: int = 512,
    tokens: int = 1024, dtype: str = "q4_K", head_size: int = 64, experts: int = 0, used: int = 0, joined: bool = False,
    gated: bool = True, **more: Any,
) -> tuple[dict[str, Any], dict[str, tuple[tuple[int, ...], str]]]:  # fmt: skip
    """The metadata and the tensors of a small model."""
    said: dict[str, Any] = {
        "general.architecture": architecture, "general.name": "small", "tokenizer.ggml.tokens": ["a", "b"],
        f"{architecture}.block_count": layers, f"{architecture}.embedding_length": width,
        f"{architecture}.attention.head_count": heads, f"{architecture}.attention.head_count_kv": kv_heads,
        f"{architecture}.attention.key_length": head_size, f"{architecture}.attention.value_length": head_size,
        f"{architecture}.rope.freq_base": 10000.0,
    }  # fmt: skip
    said |= {f"{architecture}.expert_count": experts, f"{architecture}.expert_used_count": used} if experts else {}
    said |= {f"{architecture}.{name}": number for name, number in more.items()}
    q, kv = heads * head_size, kv_heads * head_size
    tensors: dict[str, tuple[tuple[int, ...], str]] = {
        "token_embd.weight": ((tokens, width), "q6_K"),
        "output_norm.weight": ((width,), "float32"),
        "output.weight": ((tokens, width), "q6_K"),
    }
    for number in range(layers):
        own: dict[str, tuple[tuple[int, ...], str]] = {"attn_norm": ((width,), "float32"), "ffn_norm": ((width,), "float32")}
        if joined:
            own["attn_qkv"] = ((q + 2 * kv, width), dtype)
        else:
            own |= {"attn_q": ((q, width), dtype), "attn_k": ((kv, width), dtype), "attn_v": ((kv, width), dtype)}
        own["attn_output"] = ((width, q), dtype)
        if experts:
            own["ffn_gate_inp"] = ((experts, width), "float32")
            own |= {f"ffn_{name}_exps": ((experts, inner, width), dtype) for name in ("gate", "up")}
            own["ffn_down_exps"] = ((experts, width, inner), dtype)
        else:
            own |= {"ffn_up": ((2 * inner if joined and gated else inner, width), dtype), "ffn_down": ((width, inner), dtype)}
            own |= {"ffn_gate": ((inner, width), dtype)} if gated and not joined else {}
        tensors |= {f"blk.{number}.{name}.weight": made for name, made in own.items()}
    return said, tensors


def safetensors(tensors: Tensors) -> bytes:
    """A whole file, its weights zeros; in half precision unless a tensor has a type under the format's names."""
    listed: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (shape, dtype) in tensors.items():
        start, end = end, end + tensor_bytes(numel(shape), SAFETENSORS_TYPES[dtype or "BF16"])
        listed[name] = {"dtype": dtype or "BF16", "shape": list(shape), "data_offsets": [start, end]}
    content = json.dumps(listed).encode()
    return struct.pack("<Q", len(content)) + content + bytes(end)
