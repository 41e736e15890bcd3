# SPDX-License-Identifier: Apache-2.0
"""Families of language models: windows, towers, mixtures, short convolutions, models in parts, quantised weights."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import ModelError, UnsupportedOperator
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import Network, tensor_bytes
from jetdvfs.tests.support.models.handmade_gguf import gguf, model, safetensors

WIDTH, HEAD, HEADS, KV_HEADS, INNER, TOKENS = 64, 16, 4, 2, 128, 96
Q, KV = HEADS * HEAD, KV_HEADS * HEAD
Made = tuple[tuple[int, ...], str]


def config(kind: str, layers: int = 4, **more: Any) -> dict[str, Any]:
    return {
        "model_type": kind, "hidden_size": WIDTH, "num_hidden_layers": layers, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "intermediate_size": INNER, **more,
    }  # fmt: skip


def weights(layers: int = 4, root: str = "model.", more: Mapping[str, tuple[int, ...]] | None = None) -> dict[str, Made]:
    """The tensors of a model in half precision; ``more`` are those that each block has besides."""
    block = {
        "self_attn.q_proj": (Q, WIDTH), "self_attn.k_proj": (KV, WIDTH), "self_attn.v_proj": (KV, WIDTH),
        "self_attn.o_proj": (WIDTH, Q), "mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH),
        "mlp.down_proj": (WIDTH, INNER), "input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,), **(more or {}),
    }  # fmt: skip
    table: dict[str, Made] = {f"{root}embed_tokens.weight": ((TOKENS, WIDTH), ""), f"{root}norm.weight": ((WIDTH,), "")}
    return table | {
        f"{root}layers.{n}.{name}.weight": (shape, "") for n in range(layers) for name, shape in block.items() if shape
    }


def listed(folder: Path, said: Mapping[str, Any], tensors: Mapping[str, Made], phase: str = "decode=1000") -> Network:
    (folder / "config.json").write_text(json.dumps(said))
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    return decompose(folder / "model.safetensors", [parse_input(f"{phase}:int")])


def seen(network: Network) -> list[int]:
    """Positions that each block's attention reads."""
    return [launch.inputs[1][2] for launch in network.launches if launch.kind == "attention"]


NAMELESS = {name: value for name, value in config("").items() if name != "model_type"}
FOUR_NORMS = {"pre_feedforward_layernorm": (WIDTH,), "post_feedforward_layernorm": (WIDTH,)}
QK_NORMS = {"self_attn.q_norm": (HEAD,), "self_attn.k_norm": (HEAD,)}
SLIDES, SEES_ALL = "sliding_attention", "full_attention"


@pytest.mark.parametrize(
    ("said", "more", "expected"),
    [
        (config("mistral", sliding_window=100), {}, [100] * 4),
        (config("mistral", sliding_window=None), {}, [1000] * 4),
        (config("qwen2", sliding_window=100, use_sliding_window=False, max_window_layers=0), {}, [1000] * 4),
        (config("qwen2", sliding_window=100, use_sliding_window=True, max_window_layers=3), {}, [1000] * 3 + [100]),
        (config("qwen3", sliding_window=100, use_sliding_window=True, layer_types=[SLIDES] * 4), QK_NORMS, [100] * 4),
        (config("qwen3", sliding_window=None, layer_types=[SEES_ALL] * 4), QK_NORMS, [1000] * 4),
        (config("gemma2", sliding_window=100), FOUR_NORMS, [100, 1000, 100, 1000]),
        (config("gemma3_text", sliding_window=100, sliding_window_pattern=2), FOUR_NORMS, [100, 1000, 100, 1000]),
        (config("gemma3_text", sliding_window=100, layer_types=[SEES_ALL] * 4), FOUR_NORMS, [1000] * 4),
        (config("gemma3_text", sliding_window=100, layer_types=[SEES_ALL, *[SLIDES] * 3]), FOUR_NORMS, [1000, 100, 100, 100]),
        (config("gemma3_text", sliding_window=100), FOUR_NORMS, [100] * 4),
        (config("olmo3", sliding_window=100, layer_types=[SLIDES] * 3 + [SEES_ALL]), {}, [100] * 3 + [1000]),
        (config("ministral", sliding_window=100, layer_types=[SLIDES, SEES_ALL] * 2), {}, [100, 1000] * 2),
    ],
)  # fmt: skip
def test_windows_are_those_of_each_layers_type(
    tmp_path: Path, said: dict[str, Any], more: dict[str, tuple[int, ...]], expected: list[int]
) -> None:
    assert seen(listed(tmp_path, said, weights(more=more))) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [({}, [100] * 5 + [1000]), ({"pattern": 2}, [100, 1000] * 3), ({"pattern": [False, True] * 3}, [1000, 100] * 3)],
)
def test_gguf_says_windows_by_period_or_by_block(pattern: dict[str, Any], expected: list[int]) -> None:
    more = {"attention.sliding_window": 100} | {f"attention.sliding_window_{name}": made for name, made in pattern.items()}
    content = gguf(*model("gemma3", 6, **more))
    assert seen(decompose(io.BytesIO(content), [parse_input("decode=1000:int")])) == expected


@pytest.mark.parametrize(
    ("said", "root", "head"),
    [
        (
            {"model_type": "gemma3", "text_config": config("gemma3_text", sliding_window=512), "vision_config": {}},
            "language_model.model.",
            "",
        ),
        ({"model_type": "qwen2_5_vl", **config("qwen2_5_vl"), "vision_config": {}}, "model.", "lm_head.weight"),
        (config("qwen2_5_vl"), "model.", "lm_head.weight"),
        ({"model_type": "qwen3_vl", "text_config": config("qwen3_vl_text")}, "model.language_model.", "lm_head.weight"),
        (
            {"model_type": "mistral3", "text_config": config("ministral3")},
            "language_model.model.",
            "language_model.lm_head.weight",
        ),
        (
            {"model_type": "mistral3", "text_config": NAMELESS},
            "language_model.model.",
            "language_model.lm_head.weight",
        ),
    ],
)
def test_of_a_model_with_towers_the_text_tower_is_listed(tmp_path: Path, said: dict[str, Any], root: str, head: str) -> None:
    towers: dict[str, Made] = {
        "visual.patch_embed.proj.weight": ((8, 3, 2, 14, 14), ""),
        "vision_tower.layers.0.self_attn.q_proj.weight": ((8, 8), ""),
        "multi_modal_projector.linear_1.weight": ((64, 8), ""),
    }  # fmt: skip
    heads: dict[str, Made] = {head: ((TOKENS, WIDTH), "")} if head else {}
    with_towers = listed(tmp_path, said, weights(root=root) | towers | heads, "decode=100")
    alone = listed(
        tmp_path, config("llama"), weights() | ({"lm_head.weight": ((TOKENS, WIDTH), "")} if head else {}), "decode=100"
    )
    products = [(each.scope, each.flops, each.bytes) for each in with_towers.launches if each.kind == "matmul"]
    assert products == [(each.scope, each.flops, each.bytes) for each in alone.launches if each.kind == "matmul"]


def test_sizes_that_a_configuration_leaves_out_are_those_of_the_weights(tmp_path: Path) -> None:
    said = config("gemma3_text", sliding_window=512, sliding_window_pattern=6)
    whole = listed(tmp_path, said, weights(more=QK_NORMS | FOUR_NORMS))
    for name in ("num_attention_heads", "num_key_value_heads", "head_dim", "num_hidden_layers", "hidden_size"):
        del said[name]
    assert listed(tmp_path, said, weights(more=QK_NORMS | FOUR_NORMS)).launches == whole.launches


def kinds(network: Network) -> Counter[str]:
    return Counter(launch.kind for launch in network.launches)


def test_blocks_without_rotary_embedding_launch_none(tmp_path: Path) -> None:
    assert kinds(listed(tmp_path, config("smollm3"), weights()))["rope"] == 6
    assert kinds(listed(tmp_path, config("smollm3", no_rope_layers=[1, 0, 0, 0]), weights()))["rope"] == 2
    assert kinds(decompose(io.BytesIO(gguf(*model("smollm3", 8))), [parse_input("decode=9:int")]))["rope"] == 12


def test_granite_scales_embedding_residuals_and_logits(tmp_path: Path) -> None:
    scales: dict[str, Any] = {"embedding_multiplier": 12.0, "residual_multiplier": 0.2, "logits_scaling": 8.0}
    plain, scaled = (listed(tmp_path, config("granite", **more), weights()) for more in (dict[str, Any](), scales))
    assert kinds(scaled) - kinds(plain) == {"mul_scalar": 1 + 2 * 4 + 1}


def test_olmo_norms_queries_over_all_heads_and_after_each_part(tmp_path: Path) -> None:
    norms: dict[str, tuple[int, ...]] = {
        "self_attn.q_norm": (Q,),
        "self_attn.k_norm": (KV,),
        "post_feedforward_layernorm": (WIDTH,),
        "input_layernorm": (),
    }
    network = listed(tmp_path, config("olmo2"), weights(more=norms))
    assert [launch.output for launch in network.launches if launch.kind == "rms_norm"][:4] == [
        (1, Q),
        (1, KV),
        (1, WIDTH),
        (1, WIDTH),
    ]


def gpt_oss(experts: int = 8, inner: int = 96, blocks: bool = True) -> dict[str, Made]:
    """A small mixture in MXFP4: blocks of 32 elements in 16 bytes, and a scale of 8 bits for each."""
    dropped: dict[str, tuple[int, ...]] = {"mlp.gate_proj": (), "mlp.up_proj": (), "mlp.down_proj": ()}
    tensors = weights(2, more=dropped) | {"lm_head.weight": ((TOKENS, WIDTH), "")}
    for layer in range(2):
        place = f"model.layers.{layer}"
        tensors |= {
            f"{place}.self_attn.sinks": ((HEADS,), ""), f"{place}.self_attn.q_proj.bias": ((Q,), ""),
            f"{place}.mlp.router.weight": ((experts, WIDTH), ""), f"{place}.mlp.router.bias": ((experts,), ""),
            f"{place}.mlp.experts.gate_up_proj_bias": ((experts, 2 * inner), ""),
            f"{place}.mlp.experts.down_proj_bias": ((experts, WIDTH), ""),
        }  # fmt: skip
        for name, rows, columns in (("gate_up_proj", 2 * inner, WIDTH), ("down_proj", WIDTH, inner)):
            if blocks:
                tensors[f"{place}.mlp.experts.{name}_blocks"] = ((experts, rows, columns // 32, 16), "U8")
                tensors[f"{place}.mlp.experts.{name}_scales"] = ((experts, rows, columns // 32), "U8")
            else:
                tensors[f"{place}.mlp.experts.{name}"] = ((experts, columns, rows), "")
    return tensors


def test_a_mixture_in_mxfp4_reads_the_bits_of_the_experts_taken(tmp_path: Path) -> None:
    said = config("gpt_oss", 2, sliding_window=128, num_experts_per_tok=2, layer_types=[SLIDES, SEES_ALL])
    quantised = said | {"quantization_config": {"quant_method": "mxfp4"}}
    network = listed(tmp_path, quantised, gpt_oss())
    (first, _) = (launch for launch in network.launches if launch.scope.endswith("ffn_gate_up_exps"))
    assert (first.dtype, first.params["experts"], first.params["n"], first.params["bias"]) == ("mxfp4", 2, 192, True)
    read = 2 * (tensor_bytes(192 * WIDTH, "mxfp4") + 192 * 2)
    assert first.bytes == read + 2 * 2 * WIDTH + 2 * 2 * 192
    assert seen(network) == [128, 1000]
    half = listed(tmp_path, said, gpt_oss(blocks=False))
    assert [launch.flops for launch in half.launches] == [launch.flops for launch in network.launches]


def test_short_convolutions_stand_where_a_block_has_no_attention(tmp_path: Path) -> None:
    convolution: dict[str, tuple[int, ...]] = {
        "conv.in_proj": (3 * WIDTH, WIDTH), "conv.conv": (WIDTH, 1, 3), "conv.out_proj": (WIDTH, WIDTH),
        "feed_forward.w1": (INNER, WIDTH), "feed_forward.w3": (INNER, WIDTH), "feed_forward.w2": (WIDTH, INNER),
        "operator_norm": (WIDTH,), "ffn_norm": (WIDTH,),
    }  # fmt: skip
    dropped: dict[str, tuple[int, ...]] = {
        name.removeprefix("model.layers.0.").removesuffix(".weight"): () for name in weights(1) if ".layers." in name
    }
    tensors = weights(2, more=dropped | convolution) | {"model.embedding_norm.weight": ((WIDTH,), "")}
    del tensors["model.norm.weight"]
    network = listed(tmp_path, config("lfm2", 2, layer_types=["conv", "conv"]), tensors, "prefill=10")
    (first, _) = (launch for launch in network.launches if launch.kind == "conv1d")
    assert (first.inputs, first.output, first.params["groups"]) == (((1, WIDTH, 12),), (1, WIDTH, 10), WIDTH)
    assert kinds(network)["matmul"] == 2 * 5 + 1 and not kinds(network)["attention"]


def gemma4(layers: int = 4, per_layer: int = 8) -> tuple[dict[str, Any], dict[str, Made]]:
    """A small Gemma 4: the last block sees all positions with wider heads, and attends to an earlier block's cache."""
    more: dict[str, Any] = {
        "attention.key_length": 2 * HEAD, "attention.value_length": 2 * HEAD, "attention.key_length_swa": HEAD,
        "attention.value_length_swa": HEAD, "attention.sliding_window": 100, "attention.shared_kv_layers": 1,
        "attention.sliding_window_pattern": [True, True, False, True], "final_logit_softcapping": 30.0,
    }  # fmt: skip
    said, tensors = model("gemma4", layers, WIDTH, HEADS, KV_HEADS, INNER, TOKENS, "q8_0", HEAD, **more)
    size = per_layer * layers
    tensors |= {
        "per_layer_token_embd.weight": ((TOKENS, size), "q8_0"), "per_layer_model_proj.weight": ((size, WIDTH), "float16"),
        "per_layer_proj_norm.weight": ((per_layer,), "float32"),
    }  # fmt: skip
    for layer in range(layers):
        place, head = f"blk.{layer}", HEAD if layer != 2 else 2 * HEAD
        tensors |= {
            f"{place}.attn_q.weight": ((HEADS * head, WIDTH), "q8_0"),
            f"{place}.attn_k.weight": ((KV_HEADS * head, WIDTH), "q8_0"),
            f"{place}.attn_v.weight": ((KV_HEADS * head, WIDTH), "q8_0"),
            f"{place}.attn_output.weight": ((WIDTH, HEADS * head), "q8_0"),
            f"{place}.attn_q_norm.weight": ((head,), "float32"), f"{place}.attn_k_norm.weight": ((head,), "float32"),
            f"{place}.inp_gate.weight": ((per_layer, WIDTH), "float16"),
            f"{place}.proj.weight": ((WIDTH, per_layer), "float16"),
            f"{place}.post_norm.weight": ((WIDTH,), "float32"), f"{place}.layer_output_scale.weight": ((1,), "float32"),
        }  # fmt: skip
    return said, tensors


def test_gemma_4_has_heads_of_two_sizes_shared_caches_and_inputs_per_layer() -> None:
    said, tensors = gemma4()
    del tensors["blk.2.attn_v.weight"]  # its values are its keys
    network = decompose(io.BytesIO(gguf(said, tensors)), [parse_input("decode=1000:int")])
    assert seen(network) == [100, 100, 1000, 100]
    assert [launch.inputs[1][3] for launch in network.launches if launch.kind == "attention"] == [HEAD, HEAD, 2 * HEAD, HEAD]
    scopes = [launch.scope for launch in network.launches]
    assert "blk.3.attn_k" not in scopes and "blk.3.cache_k" not in scopes and "blk.2.attn_v" in scopes
    assert kinds(network)["matmul"] == 4 * 9 - 3 + 2 and kinds(network)["tanh"] == 1
    assert [launch.kind for launch in network.launches if launch.scope == "blk.2.attn_v"] == ["rms_norm"]


PACKINGS: dict[str, tuple[dict[str, Any], dict[str, Any], str, int]] = {
    "awq": (
        {"qweight": ((WIDTH, Q // 8), "I32"), "qzeros": ((1, Q // 8), "I32"), "scales": ((1, Q), "F16")},
        {"quant_method": "awq", "bits": 4}, "int4", Q * WIDTH // 2 + Q // 2 + 2 * Q,
    ),
    "gptq": (
        {"qweight": ((WIDTH // 8, Q), "I32"), "qzeros": ((1, Q // 8), "I32"), "scales": ((1, Q), "F16"),
         "g_idx": ((WIDTH,), "I32")},
        {"quant_method": "gptq", "bits": 4}, "int4", Q * WIDTH // 2 + Q // 2 + 2 * Q,
    ),
    "gptq in 8 bits": (
        {"qweight": ((WIDTH // 4, Q), "I32"), "qzeros": ((1, Q // 4), "I32"), "scales": ((1, Q), "F16")},
        {"quant_method": "gptq", "bits": 8}, "int8", Q * WIDTH + Q + 2 * Q,
    ),
    "compressed-tensors": (
        {"weight_packed": ((Q, WIDTH // 8), "I32"), "weight_scale": ((Q, 1), "BF16"), "weight_shape": ((2,), "I64")},
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}},
        "int4", Q * WIDTH // 2 + 2 * Q,
    ),
    "fp8": (
        {"weight": ((Q, WIDTH), "F8_E4M3"), "weight_scale_inv": ((1, 1), "F32")},
        {"quant_method": "fp8"}, "float8_e4m3fn", Q * WIDTH + 4,
    ),
    "fp8 by ModelOpt": (
        {"weight": ((Q, WIDTH), "F8_E4M3"), "weight_scale": ((), "F32"), "input_scale": ((), "F32")},
        {}, "float8_e4m3fn", Q * WIDTH + 4,
    ),
    "nvfp4 by ModelOpt": (
        {"weight": ((Q, WIDTH // 2), "U8"), "weight_scale": ((Q, WIDTH // 16), "F8_E4M3"), "weight_scale_2": ((), "F32"),
         "input_scale": ((), "F32")},
        {}, "nvfp4", Q * WIDTH // 2 + Q * WIDTH // 16,
    ),
}  # fmt: skip


def quantised(packing: str) -> tuple[dict[str, Any], dict[str, Made]]:
    """A model whose query products are packed, and its configuration."""
    own, said, *_ = PACKINGS[packing]
    tensors = weights(1)
    del tensors["model.layers.0.self_attn.q_proj.weight"]
    tensors |= {f"model.layers.0.self_attn.q_proj.{name}": made for name, made in own.items()}
    return config("llama", 1, **({"quantization_config": said} if said else {})), tensors


@pytest.mark.parametrize("packing", PACKINGS)
def test_quantised_weights_count_the_bits_and_scales_that_are_stored(tmp_path: Path, packing: str) -> None:
    *_, dtype, stored = PACKINGS[packing]
    network = listed(tmp_path, *quantised(packing))
    product = next(launch for launch in network.launches if launch.scope == "blk.0.attn_q")
    assert (product.dtype, product.flops) == (dtype, 2 * Q * WIDTH)
    assert product.bytes == stored + 2 * (WIDTH + Q)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            {"qweight": ((WIDTH * 3 // 32, Q), "I32"), "scales": ((1, Q), "F16"), "g_idx": ((WIDTH,), "I32")},
            "weights of 3 bits",
        ),
        ({"weight": ((Q * WIDTH // 2, 1), "U8"), "weight.absmax": ((64,), "U8")}, "no scales of its own"),
    ],
)
def test_packings_without_a_rule_are_refused(tmp_path: Path, made: dict[str, Made], text: str) -> None:
    tensors = weights(1)
    del tensors["model.layers.0.self_attn.q_proj.weight"]
    tensors |= {f"model.layers.0.self_attn.q_proj.{name}": each for name, each in made.items()}
    with pytest.raises((UnsupportedOperator, ModelError), match=text) as caught:
        listed(tmp_path, config("llama", 1, quantization_config={"quant_method": "gptq", "bits": 3}), tensors)
    assert "\n" not in str(caught.value)


def test_a_model_in_parts_is_the_model(tmp_path: Path) -> None:
    said, tensors = model()
    names = list(tensors)
    parts = [dict.fromkeys(names[:9]), dict.fromkeys(names[9:])]
    for number, own in enumerate(parts):
        split = {"split.no": number, "split.count": 2, "split.tensors.count": len(names)}
        content = gguf((said if number == 0 else {}) | split, {name: tensors[name] for name in own})
        (tmp_path / f"big-{number + 1:05}-of-00002.gguf").write_bytes(content)
    whole = decompose(io.BytesIO(gguf(said, tensors)), [parse_input("decode=10:int")])
    for number in (1, 2):
        path = tmp_path / f"big-{number:05}-of-00002.gguf"
        assert decompose(path, [parse_input("decode=10:int")]).launches == whole.launches
    (tmp_path / "big-00002-of-00002.gguf").unlink()
    with pytest.raises(ModelError, match=r"big-00002-of-00002\.gguf, a part of the model, cannot be read"):
        decompose(tmp_path / "big-00001-of-00002.gguf", [parse_input("decode=10:int")])
    (tmp_path / "big-00002-of-00002.gguf").write_bytes(gguf(said, tensors))
    with pytest.raises(ModelError, match="no part of the same model"):
        decompose(tmp_path / "big-00001-of-00002.gguf", [parse_input("decode=10:int")])


def test_gguf_and_safetensors_of_one_model_work_and_move_the_same(tmp_path: Path) -> None:
    width, inner, tokens, head = 1024, 2816, 32000, 64
    said, tensors = model("llama", 2, width, 16, 4, inner, tokens, "float16", head)
    tensors |= {name: (tensors[name][0], "float16") for name in ("token_embd.weight", "output.weight")}
    own = {name.removesuffix(".weight"): shape for name, (shape, _) in tensors.items() if name.startswith("blk.0.")}
    names = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }  # fmt: skip
    other: dict[str, Made] = {
        f"model.layers.{n}.{names[name.removeprefix('blk.0.')]}.weight": (shape, "")
        for n in range(2)
        for name, shape in own.items()
    }
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        other[name] = ((tokens, width), "")
    other["model.norm.weight"] = ((width,), "")
    config_of = config("llama", 2, hidden_size=width, num_attention_heads=16, num_key_value_heads=4, head_dim=head)
    config_of["intermediate_size"] = inner
    for phase in ("decode=512", "prefill=64"):
        one, two = (
            decompose(io.BytesIO(gguf(said, tensors)), [parse_input(f"{phase}:int")]),
            listed(tmp_path, config_of, other, phase),
        )
        assert [launch.flops for launch in one.launches] == [launch.flops for launch in two.launches]
        moved = [sum(launch.bytes for launch in network.launches if launch.kind == "matmul") for network in (one, two)]
        # llama.cpp keeps what passes between launches in single precision, which counts for a prompt.
        assert moved[0] == pytest.approx(moved[1], rel=0.02 if phase.startswith("decode") else 0.1)


def test_nvfp4_counts_its_block_scales_and_a_launch_for_the_scale_of_each_tensor() -> None:
    said, tensors = model(dtype="nvfp4")
    plain = decompose(io.BytesIO(gguf(said, tensors)), [parse_input("decode=10:int")])
    scale: dict[str, Made] = {"blk.0.attn_q.scale": ((1,), "float32")}
    scaled = decompose(io.BytesIO(gguf(said, tensors | scale)), [parse_input("decode=10:int")])
    assert kinds(scaled) - kinds(plain) == {"mul_scalar": 1}
    product = next(launch for launch in plain.launches if launch.scope == "blk.0.attn_q")
    assert product.bytes == 256 * 256 * 36 // 64 + 4 * 2 * 256
