# SPDX-License-Identifier: Apache-2.0
"""Language models as launches: what a prompt and each token cost by the file's header alone, and all that is refused."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.kernels.cost.guesses import trust_in
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import BudgetExceeded, KernelsError, ModelError, ShapeError, UnsupportedOperator
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import KernelInvocation, Network, numel, tensor_bytes
from jetdvfs.tests.support.models.handmade_gguf import gguf, header, model, safetensors, text, value, weight_bytes
from jetdvfs.tests.support.profiles.analytic import board, matmul

#: The sizes of Llama 3.1 8B by its config.json.
LLAMA_8B: dict[str, Any] = {"layers": 32, "width": 4096, "heads": 32, "kv_heads": 8, "inner": 14336, "head_size": 128}
LLAMA_8B["tokens"] = 128256


def read(content: bytes, phase: str) -> Network:
    return decompose(io.BytesIO(content), [parse_input(f"{phase}:int")])


def decode(context: int = 100, **said: Any) -> Network:
    return read(gguf(*model(**said)), f"decode={context}")


def products(network: Network) -> list[KernelInvocation]:
    return [launch for launch in network.launches if launch.kind == "matmul"]


def of(network: Network, scope: str) -> KernelInvocation:
    (found,) = [launch for launch in network.launches if launch.scope == scope]
    return found


class Counted(io.FileIO):
    """A file that counts what is read of it."""

    taken = 0

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        self.taken += count
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size) or b""
        self.taken += len(data)
        return data


def test_a_large_file_costs_what_its_header_costs(tmp_path: Path) -> None:
    said, tensors = model(**LLAMA_8B, dtype="float16")
    path = tmp_path / "large.gguf"
    path.write_bytes(header(said, tensors))
    with open(path, "r+b") as stream:
        stream.truncate(70 << 30)
    with Counted(path) as stream:
        network = decompose(stream, [parse_input("decode=1:int")])
        assert stream.taken < 1 << 20
    assert network.runtime == "llama.cpp"


def test_each_token_reads_all_weights_once_as_they_are_stored(tmp_path: Path) -> None:
    said, tensors = model(**LLAMA_8B)
    path = tmp_path / "llama.gguf"
    path.write_bytes(header(said, tensors))
    with open(path, "r+b") as stream:
        stream.truncate(len(header(said, tensors)) + weight_bytes(tensors))
    network = decompose(path, [parse_input("decode=512:int")])
    matrices = {name: made for name, made in tensors.items() if len(made[0]) == 2 and name != "token_embd.weight"}
    weights = sum(tensor_bytes(numel(shape), dtype) for shape, dtype in matrices.values())
    moved = sum(launch.bytes for launch in products(network))
    assert weights < moved < 1.01 * weights
    assert sum(launch.flops for launch in products(network)) == sum(2 * numel(shape) for shape, _ in matrices.values())
    assert {launch.dtype for launch in products(network)} == {"q4_K", "q6_K"}
    kept = 32 * 512 * 8 * 128 * 2 * 2  # blocks, positions, heads, sizes, bytes, keys and values
    attended = sum(launch.bytes for launch in network.launches if launch.kind == "attention")
    assert kept < attended < 1.05 * kept


def test_a_prompt_reads_the_weights_once_and_works_for_each_token() -> None:
    prompt, token = (read(gguf(*model()), phase) for phase in ("prefill=64", "decode=64"))
    wide, narrow = (of(network, "blk.0.ffn_up") for network in (prompt, token))
    assert (wide.params["m"], narrow.params["m"]) == (64, 1)
    assert wide.flops == 64 * narrow.flops and wide.bytes < 64 * narrow.bytes
    assert of(prompt, "output").params["m"] == 1  # of a prompt, only the last token's result is wanted


def test_keys_and_values_are_written_once_and_all_read() -> None:
    short, long = decode(100), decode(200)
    assert of(short, "blk.1.cache_k").output == (1, 128) and of(short, "blk.1.cache_k").dtype == "float16"
    more = of(long, "blk.1.attn").bytes - of(short, "blk.1.attn").bytes
    assert more == 100 * 2 * 64 * 2 * 2
    assert of(long, "blk.1.attn").flops == 2 * of(short, "blk.1.attn").flops
    assert [launch.bytes for launch in products(short)] == [launch.bytes for launch in products(long)]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "phi2"])
def test_families_list_what_their_weights_are_for(family: str) -> None:
    joined = family.startswith("phi")
    network = decode(architecture=family, joined=joined, gated=family != "phi2")
    assert network.kinds["matmul"] == 2 * (4 if joined else 7) + 1
    finishing = next(launch for launch in network.launches if launch.scope == "blk.0.ffn")
    gelu = family.startswith("gemma") or family == "phi2"
    assert finishing.params.get("kinds", finishing.kind) in (("gelu+mul", "gelu") if gelu else ("silu+mul",))


def test_a_sliding_block_reads_the_last_positions_alone() -> None:
    network = decode(4000, architecture="gemma3", layers=6, **{"attention.sliding_window": 512})
    seen = [launch.inputs[1][2] for launch in network.launches if launch.kind == "attention"]
    assert seen == [512] * 5 + [4000]


def test_a_mixture_reads_the_experts_that_are_taken() -> None:
    said: dict[str, Any] = {"architecture": "qwen3moe", "experts": 8, "used": 2}
    one, prompt = decode(**said), read(gguf(*model(**said)), "prefill=64")
    taken, all_of_them = (of(network, "blk.0.ffn_up_exps") for network in (one, prompt))
    assert (taken.params["m"], taken.params["experts"]) == (2, 2)
    assert (all_of_them.params["m"], all_of_them.params["experts"]) == (128, 8)
    expert = tensor_bytes(512 * 256, "q4_K")
    assert 2 * expert < taken.bytes < 2.1 * expert + 4 * 2 * (512 + 256)


def test_types_that_were_not_measured_are_guessed_and_said_to_be() -> None:
    cost = board(sigma=0.1)
    quantised = of(decode(), "blk.0.attn_q")
    assert cost.model_for(quantised) is None
    assert trust_in(quantised, cost).guessed == "q4_K: measured float32"
    assert cost.model_for(matmul()) is not None


def test_a_saved_list_of_a_language_model_is_the_same() -> None:
    network = decode()
    assert Network.from_json(json.loads(json.dumps(network.to_json()))) == network


@pytest.mark.parametrize(
    "phase", ["", "1x3x224x224", "prefill=0:int", "decode=-1:int", "prefill=1.5:float", "x=5:int", "5:int"]
)
def test_what_is_no_phase_is_refused_with_what_would_be(phase: str) -> None:
    with pytest.raises(ShapeError, match=r"--prefill TOKENS|expected 1 to"):
        decompose(io.BytesIO(gguf(*model())), [parse_input(phase)] if phase else [])


def changed(said: dict[str, Any] | None = None, drop: str = "", **tensors: tuple[tuple[int, ...], str]) -> bytes:
    """A small file with other metadata, without a tensor, or with others."""
    whole, table = model()
    table |= {name.replace("__", "."): made for name, made in tensors.items()}
    table.pop(drop, None)
    return gguf(whole | (said or {}), table)


START = header(*model())
ABSURD: dict[str, tuple[bytes, type[ModelError], str]] = {
    "an old version": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), ModelError, "version 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), ModelError, "big-endian"),
    "more tensors than there can be": (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), BudgetExceeded, "tensors"),
    "more metadata than there can be": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), BudgetExceeded, "metadata"),
    "a key without end": (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 60), BudgetExceeded, "a text of"),
    "a text without end": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IQ", 8, 1 << 60), ModelError, "a text of",
    ),
    "an array without end": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 8, 1 << 60), ModelError, "an array of",
    ),
    "arrays within arrays": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 9, 1), ModelError, "an array of type 9",
    ),
    "a type of metadata nobody knows": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<I", 77), ModelError, "type 77",
    ),
    "weights that are not all there": (START + bytes(99), ModelError, "cut off"),
    "one of several parts, alone": (changed({"split.count": 3}), ModelError, "give the path of one, named like"),
    "a part of a model": (changed({"general.type": "mmproj"}), ModelError, "of type 'mmproj'"),
    "a family nobody knows": (changed({"general.architecture": "mamba"}), UnsupportedOperator, "'mamba'"),
    "a weight of no known use": (changed(blk__0__ssm_a__weight=((8, 8), "float32")), UnsupportedOperator, "ssm_a"),
    "a weight that is missing": (changed(drop="blk.1.ffn_down.weight"), ModelError, "blk.1.ffn_down"),
    "a product's weight without dimensions": (changed(blk__0__ffn_down__weight=((), "float32")), ModelError, "is one number"),
    "a gate's weight without dimensions": (changed(blk__0__ffn_gate__weight=((), "float32")), ModelError, "is one number"),
    "a weight of another shape": (changed(blk__0__attn_q__weight=((99, 256), "q4_K")), ModelError, r"expected \[256, 256\]"),
    "no heads": (changed({"llama.attention.head_count": 0}), ModelError, "heads is 0"),
    "heads that do not share": (changed({"llama.attention.head_count_kv": 3}), ModelError, "do not share"),
    "more blocks than there are": (changed({"llama.block_count": 1 << 31}), BudgetExceeded, "blocks"),
    "a number that is a text": (changed({"llama.block_count": "two"}), ModelError, "block_count"),
    "heads of another number of blocks": (changed({"llama.attention.head_count_kv": [1]}), ModelError, r"expected \[64, 256\]"),
    "heads by block that do not fit": (changed({"llama.attention.head_count_kv": [2, 1]}), ModelError, r"expected \[64, 256\]"),
    "an alignment of nothing": (changed({"general.alignment": 0}), ModelError, "general.alignment"),
}  # fmt: skip


@pytest.mark.parametrize("case", ABSURD)
def test_what_makes_no_sense_is_refused_in_one_line(case: str) -> None:
    content, error, said = ABSURD[case]
    with pytest.raises(error, match=said) as caught:
        read(content, "decode=1")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize("type_number", [4, 99, 1 << 31])
def test_an_element_type_nobody_knows_is_refused(type_number: int) -> None:
    content = bytearray(gguf({"general.architecture": "llama"}, {"a": ((32,), "q8_0")}))
    at = content.find(text("a"), 24) + len(text("a")) + 4 + 8
    struct.pack_into("<I", content, at, type_number)
    with pytest.raises(ModelError, match=f"type {type_number}, which is not known"):
        read(bytes(content), "decode=1")


@pytest.mark.parametrize("part", range(1, 40))
def test_a_file_that_was_cut_off_is_refused(part: int) -> None:
    whole = gguf(*model())
    with pytest.raises(KernelsError) as caught:
        read(whole[: len(START) * part // 40], "decode=1")
    assert "\n" not in str(caught.value)


def test_a_vocabulary_is_stepped_over() -> None:
    said, tensors = model()
    said["tokenizer.ggml.tokens"] = ["token"] * 100_000
    said["tokenizer.chat_template"] = "{{ x }}" * 5000
    assert read(gguf(said, tensors), "decode=1").kinds == decode(1).kinds
    assert value("a") == struct.pack("<IQ", 8, 1) + b"a"


# safetensors

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "intermediate_size": 128,
}  # fmt: skip
BLOCK = {
    "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64), "self_attn.o_proj": (64, 64),
    "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64), "mlp.down_proj": (64, 128),
    "input_layernorm": (64,), "post_attention_layernorm": (64,),
}  # fmt: skip
OUTSIDE = {"model.embed_tokens.weight": ((96, 64), ""), "model.norm.weight": ((64,), "")}
WHOLE = OUTSIDE | {f"model.layers.0.{name}.weight": (shape, "") for name, shape in BLOCK.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(safetensors(WHOLE))
    return tmp_path


def test_safetensors_list_the_same_as_gguf(folder: Path) -> None:
    network = decompose(folder / "model.safetensors", [parse_input("decode=10:int")])
    same = model(layers=1, width=64, heads=4, kv_heads=2, inner=128, tokens=96, head_size=16, dtype="float16")
    other = read(gguf(same[0], {name: made for name, made in same[1].items() if name != "token_embd.weight"} | {
        "token_embd.weight": ((96, 64), "float16"), "output.weight": ((96, 64), "float16")
    }), "decode=10")  # fmt: skip
    assert [(call.kind, call.scope, call.flops) for call in network.launches] == [
        (call.kind, call.scope, call.flops) for call in other.launches
    ]
    assert {launch.dtype for launch in network.launches} == {"bfloat16"}


def test_parts_are_read_together(folder: Path) -> None:
    names = sorted(WHOLE)
    for number, own in enumerate((names[:5], names[5:]), 1):
        part = folder / f"model-{number:05}-of-00002.safetensors"
        part.write_bytes(safetensors({name: WHOLE[name] for name in own}))
    whole, parts = (
        decompose(folder / name, [parse_input("prefill=4:int")])
        for name in ("model.safetensors", "model-00002-of-00002.safetensors")
    )
    assert parts.launches == whole.launches
    (folder / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match="a part of the model"):
        decompose(folder / "model-00002-of-00002.safetensors", [parse_input("prefill=4:int")])


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (None, "config.json, which describes"),
        ("{", "no JSON"),
        ("[]", "expected an object"),
        ({"model_type": "bert"}, "'bert'"),
        ({"model_type": ["llama"]}, "model_type"),
        (CONFIG | {"quantization_config": {"load_in_4bit": True}}, "quantised by 'load_in_4bit'"),
        (CONFIG | {"quantization": {"bits": 4}}, "quantised by 'mlx'"),
        (CONFIG | {"quantization_config": [1]}, "quantization_config is"),
        (CONFIG | {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": "all"}, "max_window_layers"),
        (CONFIG | {"layer_types": ["linear_attention"]}, "'linear_attention'"),
        (CONFIG | {"layer_types": ["sliding_attention"]}, "without a sliding_window"),
        (CONFIG | {"sliding_window": "wide", "model_type": "mistral"}, "sliding_window"),
        (CONFIG | {"hidden_size": "many"}, "hidden_size"),
        (CONFIG | {"hidden_size": 65}, "expected"),
    ],
)
def test_a_configuration_that_is_missing_or_absurd_is_refused(folder: Path, config: Any, text: str) -> None:
    if config is None:
        (folder / "config.json").unlink()
    else:
        (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    with pytest.raises(ModelError, match=text) as caught:
        decompose(folder / "model.safetensors", [parse_input("decode=1:int")])
    assert "\n" not in str(caught.value)


def test_safetensors_without_a_folder_say_what_is_missing() -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        decompose(io.BytesIO(safetensors(WHOLE)), [parse_input("decode=1:int")])


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ({"dtype": "F16", "shape": [4], "data_offsets": [0, 4]}, "lies at 0 to 4"),
        ({"dtype": "F16", "shape": [4], "data_offsets": [0, 8]}, "lies at 0 to 8"),
        ({"dtype": "X9", "shape": [4], "data_offsets": [0, 8]}, "'X9'"),
        ({"dtype": "F16", "shape": [1 << 60, 1 << 60], "data_offsets": [0, 8]}, "elements are possible"),
        ({"dtype": "F16", "shape": [-4], "data_offsets": [0, 8]}, "expected dtype"),
        (7, "expected dtype"),
    ],
)
def test_an_absurd_table_of_tensors_is_refused(folder: Path, made: Any, text: str) -> None:
    content = json.dumps({"a": made}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(content)) + content)
    with pytest.raises(ModelError, match=text):
        decompose(folder / "model.safetensors", [parse_input("decode=1:int")])


def test_a_phase_is_an_option_of_every_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.gguf"
    path.write_bytes(gguf(*model()))
    assert main(["decompose", str(path), "--decode", "100"]) == 0
    assert "small (decode=100:int), llama.cpp: 37 launches" in capsys.readouterr().out
    assert main(["decompose", str(path), "--prefill", "16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runtime"] == "llama.cpp"
    assert main(["decompose", str(path)]) == 3
    error = capsys.readouterr().err
    assert "--prefill TOKENS" in error and error.count("\n") == 1
