# SPDX-License-Identifier: Apache-2.0
"""Decoders as ONNX Runtime's tools write them: the work and traffic of the same model as safetensors, in both phases."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import ShapeError
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import KernelInvocation, Network, TensorSpec
from jetdvfs.tests.support.models.handmade_gguf import safetensors
from jetdvfs.tests.support.models.handmade_onnx import INT64, declared, graph, model, node, tensor

WIDTH, HEAD, HEADS, KV_HEADS, INNER, TOKENS, LAYERS = 128, 32, 4, 2, 256, 512, 2
HALF, UINT8 = 10, 2
MICROSOFT = "com.microsoft"


class Decoder:
    """A small Qwen 3 with 4-bit products, written layer by layer."""

    def __init__(self, **attention: Any) -> None:
        self._attention = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "do_rotary": 1, **attention}
        self._weights = [
            self._half("table", TOKENS, WIDTH),
            self._half("cos", 8192, HEAD // 2),
            self._half("sin", 8192, HEAD // 2),
        ]
        self._nodes = [
            node("Gather", ["table", "ids"], ["h0"]),
            node("Shape", ["mask"], ["mask shape"]),
            node("Gather", ["mask shape", "one"], ["total"]),
        ]
        self._weights.append(tensor("one", (), (1,), INT64))
        for layer in range(LAYERS):
            self._layer(f"{layer}")
        self._norm(f"h{2 * LAYERS}", "final")
        self._product("final", "logits", WIDTH, TOKENS)

    @staticmethod
    def _half(name: str, *sizes: int) -> bytes:
        count = 2
        for size in sizes:
            count *= size
        return tensor(name, sizes, b"\0" * count, HALF)

    def _product(self, source: str, name: str, k: int, n: int) -> None:
        self._weights += [
            tensor(f"{name} q", (n, k // 32, 16), b"\0" * (n * k // 2), UINT8),
            self._half(f"{name} s", n * k // 32),
        ]
        self._nodes.append(
            node("MatMulNBits", [source, f"{name} q", f"{name} s"], [name], domain=MICROSOFT, K=k, N=n, bits=4, block_size=32)
        )

    def _norm(self, source: str, name: str) -> None:
        self._weights.append(self._half(f"{name} w", WIDTH))
        self._nodes.append(node("SimplifiedLayerNormalization", [source, f"{name} w"], [name], axis=-1))

    def _layer(self, name: str) -> None:
        source, middle, last = (f"h{2 * int(name) + step}" for step in range(3))
        self._norm(source, f"{name} in")
        for part, size in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            self._product(f"{name} in", f"{name} {part}", WIDTH, size * HEAD)
        self._weights += [self._half(f"{name} q norm", HEAD), self._half(f"{name} k norm", HEAD)]
        given = [f"{name} q", f"{name} k", f"{name} v", f"{name} past k", f"{name} past v", "total", "total", "cos", "sin"]
        given += ["", "", "", "", "", f"{name} q norm", f"{name} k norm"]
        made = [f"{name} mixed", f"{name} present k", f"{name} present v"]
        self._nodes.append(node("GroupQueryAttention", given, made, domain=MICROSOFT, **self._attention))
        self._product(f"{name} mixed", f"{name} o", HEADS * HEAD, WIDTH)
        self._nodes.append(node("Add", [source, f"{name} o"], [middle]))
        self._norm(middle, f"{name} post")
        self._product(f"{name} post", f"{name} gate", WIDTH, INNER)
        self._product(f"{name} post", f"{name} up", WIDTH, INNER)
        self._nodes += [
            node("Sigmoid", [f"{name} gate"], [f"{name} sigmoid"]),
            node("Mul", [f"{name} gate", f"{name} sigmoid"], [f"{name} silu"]),
            node("Mul", [f"{name} silu", f"{name} up"], [f"{name} inner"]),
        ]
        self._product(f"{name} inner", f"{name} down", INNER, WIDTH)
        self._nodes.append(node("Add", [middle, f"{name} down"], [last]))

    def listed(self, tokens: int, past: int) -> Network:
        inputs = [declared("ids", (1, "t"), INT64), declared("mask", (1, "a"), INT64)]
        specs = [TensorSpec((1, tokens), "int64"), TensorSpec((1, tokens + past), "int64")]
        for layer in range(LAYERS):
            for part in "kv":
                inputs.append(declared(f"{layer} past {part}", (1, KV_HEADS, "p", HEAD), HALF))
                specs.append(TensorSpec((1, KV_HEADS, past, HEAD), "float16"))
        content = model(graph(self._nodes, inputs, ["logits"], self._weights), version=21)
        return decompose(io.BytesIO(content), specs)


def as_safetensors(folder: Path, phase: str) -> Network:
    """The same model with weights of 4 bits and a scale of half precision for each 32 (GPTQ)."""
    said = {
        "model_type": "qwen3", "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "intermediate_size": INNER, "torch_dtype": "float16",
    }  # fmt: skip
    tensors: dict[str, tuple[tuple[int, ...], str]] = {
        "model.embed_tokens.weight": ((TOKENS, WIDTH), "F16"), "model.norm.weight": ((WIDTH,), "F16"),
        "lm_head.weight": ((TOKENS, WIDTH), "F16"),
    }  # fmt: skip
    for layer in range(LAYERS):
        block = {
            "self_attn.q_proj": (HEADS * HEAD, WIDTH), "self_attn.k_proj": (KV_HEADS * HEAD, WIDTH),
            "self_attn.v_proj": (KV_HEADS * HEAD, WIDTH), "self_attn.o_proj": (WIDTH, HEADS * HEAD),
            "self_attn.q_norm": (HEAD,), "self_attn.k_norm": (HEAD,), "mlp.gate_proj": (INNER, WIDTH),
            "mlp.up_proj": (INNER, WIDTH), "mlp.down_proj": (WIDTH, INNER), "input_layernorm": (WIDTH,),
            "post_attention_layernorm": (WIDTH,),
        }  # fmt: skip
        tensors |= {f"model.layers.{layer}.{name}.weight": (shape, "F16") for name, shape in block.items()}
    (folder / "config.json").write_text(json.dumps(said))
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    return decompose(folder / "model.safetensors", [parse_input(f"{phase}:int")])


def work(network: Network, *kinds: str) -> int:
    return sum(launch.flops for launch in network.launches if not kinds or launch.kind in kinds)


def only(network: Network, kind: str) -> list[KernelInvocation]:
    return [launch for launch in network.launches if launch.kind == kind]


def test_a_token_costs_what_it_costs_as_safetensors(tmp_path: Path) -> None:
    onnx, other = Decoder().listed(1, 4095), as_safetensors(tmp_path, "decode=4096")
    assert work(onnx) == pytest.approx(work(other), rel=0.02)
    for kind in ("attention", "copy", "rope", "rms_norm"):
        assert len(only(onnx, kind)) == len(only(other, kind))
        assert sum(launch.bytes for launch in only(onnx, kind)) == sum(launch.bytes for launch in only(other, kind))
    products, whole = only(onnx, "matmul"), only(other, "matmul")
    assert {launch.dtype for launch in products} == {"int4"}
    moved = [
        sum(launch.bytes - 2 * (launch.inputs[0][-1] + launch.output[-1]) for launch in part) for part in (products, whole)
    ]
    assert moved[0] == moved[1] * (0.5 + 2 / 32) / 2  # half a byte and a scale's share, of two bytes


def test_a_prompt_has_an_empty_past(tmp_path: Path) -> None:
    onnx, other = Decoder().listed(64, 0), as_safetensors(tmp_path, "prefill=64")
    head = only(onnx, "matmul")[-1].flops * 63 // 64  # of a prompt, the file computes the words of all tokens
    assert work(onnx) - head == pytest.approx(work(other), rel=0.02)
    assert [launch.inputs for launch in only(onnx, "attention")] == [launch.inputs for launch in only(other, "attention")]
    assert not only(onnx, "cat")


@pytest.mark.parametrize(("tokens", "past", "read", "seen"), [(1, 4095, 128, 128), (256, 0, 256, 128), (1, 63, 64, 64)])
def test_a_window_bounds_what_attention_reads(tokens: int, past: int, read: int, seen: int) -> None:
    for launch in only(Decoder(local_window_size=128).listed(tokens, past), "attention"):
        assert launch.inputs[1][2] == read
        assert launch.flops == 2 * 2 * HEADS * tokens * seen * HEAD


def test_a_soft_cap_is_told() -> None:
    assert all(launch.params["softcap"] == 50.0 for launch in only(Decoder(softcap=50.0).listed(1, 15), "attention"))


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ShapeError, match="of 4 heads over 3 heads of keys"):
        Decoder(kv_num_heads=3).listed(1, 15)
