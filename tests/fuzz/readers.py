# SPDX-License-Identifier: Apache-2.0
"""Feeds the readers of engines, language models and recorded runs with damaged and hostile files.

An engine's account and its times, GGUF, safetensors with its ``config.json``, PyTorch's traces and ONNX Runtime's profiles::

    python tests/fuzz/readers.py --seconds 60 --seed 0

Half of the inputs are put together from random choices, half are real or well-formed files with random edits. One that breaks a
reader is written to ``--failures``: its first byte names the reader, the rest is the file.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from jetdvfs.kernels.budget import Account
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.engine.program import read_times
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.lab.traces.comparing import compare, compare_nodes
from jetdvfs.profiles.lab.traces.kineto import Kineto
from jetdvfs.profiles.lab.traces.onnxruntime import OnnxRuntime
from jetdvfs.profiles.lab.traces.reading import read_events
from jetdvfs.tests.fuzz.archive import BUDGET, bounded, run
from jetdvfs.tests.fuzz.choices import Choices
from jetdvfs.tests.fuzz.engines import NUMBERS, engine, times
from jetdvfs.tests.fuzz.inputs import mutate
from jetdvfs.tests.fuzz.language_models import language_model
from jetdvfs.tests.support.models.handmade_engine import account, profile, small
from jetdvfs.tests.support.models.handmade_gguf import gguf, model
from jetdvfs.tests.support.models.handmade_gguf import safetensors as written
from jetdvfs.tests.support.paths import FIXTURES

TRACES = FIXTURES / "traces"
IMAGE = [parse_input("1x3x16x16")]
PHASES = ("prefill=512:int", "decode=4096:int", "decode=1:int", "1x3x16x16")
EVENTS = (
    "aten::conv2d",
    "aten::addmm",
    "aten::relu",
    "aten::to",
    "aten::_convolution",
    "gemm_kernel",
    "Conv_0_kernel_time",
    "",
)
CATEGORIES = ("cpu_op", "kernel", "gpu_memcpy", "Node", "user_annotation", 7)


def event(choices: Choices) -> Any:
    """An event of a trace: of an operator, a kernel or a node; now and then with a member that does not fit."""
    made: dict[str, Any] = {
        "ph": "X",
        "cat": choices.of(CATEGORIES),
        "name": choices.of(EVENTS),
        "pid": 1,
        "tid": choices.below(3),
    }
    made |= {"ts": choices.below(400), "dur": choices.below(200)}
    dims: Any = [[choices.of((1, 3, 16, 12, 0)) for _ in range(choices.below(5))] for _ in range(choices.below(4))]
    made["args"] = {"External id": choices.below(6), "Input Dims": dims, "op_name": choices.of(("Conv", "Relu", ""))}
    for _ in range(choices.of((0, 0, 0, 1, 2))):
        place = made["args"] if choices.below(2) and isinstance(made["args"], dict) else made
        place[choices.of((*made, "Input Dims", "External id"))] = deepcopy(choices.of(NUMBERS))
    return choices.of((None, 7, "X", [])) if choices.below(32) == 0 else made


def trace(choices: Choices) -> bytes:
    """A trace, or a profile of a session."""
    events = [event(choices) for _ in range(choices.below(40))]
    made: Any = choices.of((events, {"traceEvents": events}, {"schemaVersion": 1, "traceEvents": events, "more": events[:1]}))
    text = json.dumps(made).encode()
    return text[: choices.below(65536) % max(len(text), 1)] if choices.below(8) == 0 else text


_BYTES = {"I32": 4, "F32": 4, "U8": 1, "F8_E4M3": 1}
_MEMBERS = (
    "layer_types", "sliding_window_pattern", "use_sliding_window", "max_window_layers", "no_rope_layers",
    "num_kv_shared_layers", "global_head_dim", "quantization_config", "residual_multiplier", "top_k_experts",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    0, 1, 3, True, None, "text", ["sliding_attention", "full_attention"], ["conv"], [1, 0], {"quant_method": "awq", "bits": 4},
    {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 8}}}}, {"quant_method": 4},
    {"bits": 99},
)  # fmt: skip
_LEAVES = (
    ("qweight", "qzeros", "scales", "g_idx"), ("weight_packed", "weight_scale", "weight_shape"), ("weight", "weight_scale"),
    ("weight",), ("qweight",),
)  # fmt: skip
_PACKED: tuple[Any, ...] = (
    ((256, 32), "I32"), ((32, 256), "I32"), ((2, 256), "F16"), ((256, 128), "U8"), ((256, 16), "F8_E4M3"), ((256,), "I32"),
    ((), "F32"), ((0, 256), "I32"),
)  # fmt: skip


def weights(choices: Choices) -> bytes:
    """A safetensors file and its configuration, which the length before both divides."""
    kind = choices.of(
        (
            "llama",
            "qwen2",
            "mixtral",
            "gemma2",
            "gemma3_text",
            "gemma4",
            "gpt_oss",
            "lfm2",
            "olmo2",
            "phi3",
            "smollm3",
            "mystery",
        )
    )
    said: dict[str, Any] = {
        "model_type": kind, "hidden_size": 256, "num_hidden_layers": 1 + choices.below(2), "num_attention_heads": 2,
        "num_key_value_heads": 2, "intermediate_size": 256, "vocab_size": 64, "torch_dtype": "float16",
    }  # fmt: skip
    for _ in range(choices.of((0, 0, 1, 2))):
        said[choices.of((*said, "head_dim", "num_experts_per_tok", "sliding_window", "text_config"))] = choices.of(NUMBERS)
    for _ in range(choices.of((0, 0, 1, 2))):
        said[choices.of(_MEMBERS)] = choices.of(_VALUES)
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys((f"self_attn.{one}_proj" for one in "qkvo"), (256, 256)),
        **dict.fromkeys((f"mlp.{one}_proj" for one in ("gate", "up", "down")), (256, 256)),
        **dict.fromkeys(("input_layernorm", "post_attention_layernorm"), (256,)),
    }
    tensors: dict[str, Any] = {"model.embed_tokens.weight": ((64, 256), "F16"), "model.norm.weight": ((256,), "F16")}
    for number in range(2):
        tensors |= {f"model.layers.{number}.{name}.weight": (shape, "F16") for name, shape in shapes.items()}
    for _ in range(choices.below(3)):
        name = choices.of(sorted(tensors))
        shape, dtype = tensors.pop(name)
        if choices.below(3) == 0:  # packed, as quantisers do
            base = name.removesuffix(".weight")
            tensors |= {f"{base}.{leaf}": choices.of(_PACKED) for leaf in choices.of(_LEAVES)}
            continue
        sizes = tuple(choices.of((0, 1, 256, 1 << 20, 1 << 33)) for _ in range(choices.below(5))) if choices.below(2) else shape
        if choices.below(3):
            tensors[choices.of((name, "model.layers.9.mlp.experts.3.w1.weight", "é", ""))] = (
                sizes,
                choices.of((dtype, "F8_E4M3", "Q4", "")),
            )
    header: dict[str, Any] = {}
    at = 0
    for name, (shape, dtype) in tensors.items():
        size = _BYTES.get(dtype, 2)
        for one in shape:
            size *= one
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    for _ in range(choices.of((0, 0, 1, 2))):
        header[choices.of(sorted(header))][choices.of(("dtype", "shape", "data_offsets"))] = choices.of(NUMBERS)
    text = json.dumps(header).encode()
    length = choices.of((len(text), len(text), len(text), 0, 2, 1 << 62, (1 << 64) - 1))
    file = struct.pack("<Q", length) + text + bytes(min(at, 1 << 21))
    return _joined(json.dumps(said).encode(), file)


def _joined(said: bytes, file: bytes) -> bytes:
    return struct.pack("<I", len(said)) + said + file


def read_trace(data: bytes) -> None:
    """A trace beside a TorchScript file's launches, or beside the nodes of a model that ONNX Runtime optimised."""
    taken, session = Kineto(), OnnxRuntime()

    def keep(one: dict[str, Any]) -> None:
        taken.take(one)
        session.take(one)

    read_events(io.BytesIO(data), Account(BUDGET), keep)
    for found in (
        compare(_listed("small.pt"), taken.calls(), taken.recorder),
        compare_nodes(_listed("extended.onnx"), session.nodes, session.recorder),
    ):
        assert all(took is None or took >= 0 for took in found.measured_ms), "a time below nothing"


@cache
def _listed(name: str) -> Network:
    return decompose(TRACES / name, IMAGE, by_node=name.endswith(".onnx"))


def read_engine(data: bytes) -> None:
    """An engine's account as a network."""
    _checked(decompose(io.BytesIO(data), [], budget=BUDGET))


def read_engine_times(data: bytes) -> None:
    """Measured times beside a sound engine."""
    read_times(io.BytesIO(data), _engine(), Account(BUDGET))


@cache
def _engine() -> Network:
    return decompose(io.BytesIO(account(small(), "x", "y")), [])


def read_gguf(data: bytes) -> None:
    """A GGUF file in one of the phases."""
    _checked(decompose(io.BytesIO(data), [parse_input(PHASES[len(data) % len(PHASES)])], budget=BUDGET))


def read_safetensors(data: bytes) -> None:
    """A folder with a safetensors file and its configuration."""
    length = int.from_bytes(data[:4], "little") % (len(data) + 1)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_bytes(data[4 : 4 + length])
        path = Path(folder) / "model.safetensors"
        path.write_bytes(data[4 + length :])
        _checked(decompose(path, [parse_input(PHASES[len(data) % len(PHASES)])], budget=BUDGET))


def _checked(network: Network) -> None:
    assert Network.from_json(json.loads(json.dumps(network.to_json()))).launches == network.launches, "what was saved"


#: Each reader, and what makes a file for it from choices.
READERS: tuple[tuple[Callable[[bytes], None], Callable[[Choices], bytes]], ...] = (
    (read_trace, trace),
    (read_engine, engine),
    (read_engine_times, times),
    (read_gguf, language_model),
    (read_safetensors, weights),
)


def attempt(data: bytes) -> str:
    """Give one file to the reader that its first byte names; how that ended.

    Raises:
        Exception: whatever the reader raises beyond its own errors.
        AssertionError: it took too long or too much memory.
    """
    reader, _ = READERS[data[0] % len(READERS)]
    return f"{reader.__name__}: {bounded(lambda: reader(data[1:]))}"


def seeds() -> list[bytes]:
    """Well-formed files for every reader, those of real profilers among them."""
    said, tensors = model("llama", layers=1, width=256, inner=256, heads=2, tokens=64)
    made: list[tuple[Callable[[bytes], None], bytes]] = [
        (read_trace, path.read_bytes()) for path in sorted(TRACES.glob("*.json"))
    ]
    made += [(read_engine, account(small(), "x", "y")), (read_engine_times, profile(["r", "a", "b"]))]
    made += [(read_gguf, gguf(said, tensors)), (read_safetensors, _joined(b"{}", written({})))]
    made += [(reader, make(Choices(random.Random(seed).randbytes(200)))) for reader, make in READERS for seed in range(8)]
    places = {reader: place for place, (reader, _) in enumerate(READERS)}
    return [bytes([places[reader]]) + file for reader, file in made]


def at_random(seconds: float, seed: int) -> Iterator[bytes]:
    """Files from choices, and edited ones, for so much processor time."""
    source, pool = random.Random(seed), seeds()
    end = time.process_time() + seconds
    while time.process_time() < end:
        if source.random() < 0.5:
            place = source.randrange(len(READERS))
            yield bytes([place]) + READERS[place][1](Choices(source.randbytes(source.choice((20, 60, 200, 600)))))
        else:
            start = source.choice(pool)
            yield start[:1] + mutate(start[1:], source)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of processor time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"))
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return 1 if run(at_random(arguments.seconds, arguments.seed), arguments.failures, attempt) else 0


if __name__ == "__main__":
    sys.exit(main())
