# SPDX-License-Identifier: Apache-2.0
"""Tokens of language models on real boards, compared with two rates per runtime."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ....kernels.budget import Account, Budget
from ....kernels.cost.narrower import INSTRUCTIONS, OVERLAP
from ....kernels.inputs import parse_input
from ....kernels.language.launches import network_of
from ....kernels.language.model import Block, Family, LanguageModel
from ....kernels.network import Network, SizedTensor
from ...errors import ComparisonDataError
from .fit import find_file, read_rows


class ModelSizes(Struct, frozen=True):
    """Sizes of a config.json; ``tied``: the token table is also the last product's weight."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    tokens: int
    tied: bool
    head_size: int = 128


SIZES: Mapping[str, ModelSizes] = {
    "Qwen2.5-1.5B": ModelSizes(28, 1536, 12, 2, 8960, 151936, tied=True),
    "Qwen2.5-3B": ModelSizes(36, 2048, 16, 2, 11008, 151936, tied=True),
    "Qwen2.5-7B": ModelSizes(28, 3584, 28, 4, 18944, 152064, tied=False),
    "Qwen3-1.7B": ModelSizes(28, 2048, 16, 8, 6144, 151936, tied=True),
    "Qwen3-4B": ModelSizes(36, 2560, 32, 8, 9728, 151936, tied=True),
    "Llama-3.1-8B": ModelSizes(32, 4096, 32, 8, 14336, 128256, tied=False),
}

#: Element types of a format's products and of its last one. INT4 is TensorRT Edge-LLM's, whose last product is not quantised.
FORMATS: Mapping[str, tuple[str, str]] = {
    "bf16": ("bfloat16", "bfloat16"),
    "F16": ("float16", "float16"),
    "Q8_0": ("q8_0", "q8_0"),
    "Q6_K": ("q6_K", "q6_K"),
    "Q4_K_M": ("q4_K", "q6_K"),
    "IQ4_XS": ("iq4_xs", "q6_K"),
    "INT4": ("int4", "float16"),
}


_IN_ATTENTION = 1.0


class TokenPart(Struct, frozen=True):
    """A token's launches of one sort: products of one weight type, attention, or the rest.

    Attributes:
        bytes: weights, keys, values and activations moved.
        instructions: of attention, and of unpacking weights.
        cache: True for keys and values.
    """

    bytes: float
    instructions: float
    cache: bool = False


class TokenCost(Struct, frozen=True):
    parts: tuple[TokenPart, ...]
    launches: int

    @property
    def bytes(self) -> float:
        return sum(part.bytes for part in self.parts)

    @property
    def instructions(self) -> float:
        return sum(part.instructions for part in self.parts)


@cache
def token(model: str, form: str, context: int) -> TokenCost:
    """One token of a model in a format at a context. Raises KeyError."""
    launches = _network(model, form, context).launches
    parts: dict[str, TokenPart] = {}
    for call in launches:
        product = call.kind == "matmul"
        kind = call.dtype if product else call.kind if call.kind == "attention" else ""
        each = _IN_ATTENTION if kind == "attention" else INSTRUCTIONS.get(call.dtype, 0.0) if product else 0.0
        before = parts.get(kind, TokenPart(0.0, 0.0))
        done = before.instructions + each * call.flops / 2
        parts[kind] = TokenPart(before.bytes + call.bytes, done, cache=kind == "attention")
    return TokenCost(tuple(parts.values()), len(launches))


def _network(model: str, form: str, context: int) -> Network:
    sizes, (own, last) = SIZES[model], FORMATS[form]
    weights = dict(_weights(model, form))
    weights["token_embd"] = SizedTensor((sizes.tokens, sizes.width), last if sizes.tied else own)
    if not sizes.tied:
        weights["output"] = SizedTensor((sizes.tokens, sizes.width), last)
    known = LanguageModel(
        family=Family(),
        width=sizes.width,
        blocks=(Block(sizes.heads, sizes.kv_heads, sizes.head_size, sizes.head_size),) * sizes.layers,
        weights=weights,
        compute="float16",
        cache="float16",
        runtime="",
    )
    return network_of(known, [parse_input(f"decode={context}:int")], Account(Budget()), model)


def _weights(model: str, form: str) -> Iterator[tuple[str, SizedTensor]]:
    sizes = SIZES[model]
    own, _ = FORMATS[form]
    width, q, kv = sizes.width, sizes.heads * sizes.head_size, sizes.kv_heads * sizes.head_size
    products = {"attn_q": (q, width), "attn_k": (kv, width), "attn_v": (kv, width), "attn_output": (width, q)}
    products |= {"ffn_gate": (sizes.inner, width), "ffn_up": (sizes.inner, width), "ffn_down": (width, sizes.inner)}
    yield "output_norm", SizedTensor((width,), "float32")
    for number in range(sizes.layers):
        finer = _finer(form, number, sizes.layers)
        for name, shape in products.items():
            yield f"blk.{number}.{name}", SizedTensor(shape, finer.get(name, own))
        norms = {"attn_norm": width, "ffn_norm": width}
        norms |= dict.fromkeys(("attn_q_norm", "attn_k_norm"), sizes.head_size) if model.startswith("Qwen3") else {}
        for name, size in norms.items():
            yield f"blk.{number}.{name}", SizedTensor((size,), "float32")


def _finer(form: str, number: int, layers: int) -> Mapping[str, str]:
    """Products that llama.cpp keeps in a finer type (``llama_tensor_get_type`` in its llama-quant.cpp)."""
    eighth = layers // 8
    if form == "Q4_K_M" and (number < eighth or number >= 7 * layers // 8 or (number - eighth) % 3 == 2):
        return {"attn_v": "q6_K", "ffn_down": "q6_K"}
    if form == "IQ4_XS":
        return {"attn_v": "q5_K", **({"ffn_down": "q5_K"} if number < eighth else {})}
    return {}


POWER_MODES = "derived.csv"
LLAMA = "energy-summary.json"
HYDRA = "hydra_table6_efficiency.csv"
XAVIER = "hydra_ae_quick_reference.csv"
TRAFFIC = "hydra_table4_gpu_mem_orin.csv"


class TableClocks(Struct, frozen=True):
    """Board state: GPU clock, active TPCs (``units``), and peak memory bandwidth."""

    board: str
    units: int
    gpu_hz: float
    memory_bytes_s: float


class TokenRow(Struct, frozen=True):
    """Measured time (``ms``) and energy (``mj``) of one token. Raises KeyError."""

    table: str
    runtime: str
    model: str
    form: str
    context: int
    clocks: TableClocks
    label: str
    ms: float
    mj: float
    traffic_bytes_s: float | None = None

    def __post_init__(self) -> None:
        _ = SIZES[self.model], FORMATS[self.form]

    @property
    def token(self) -> TokenCost:
        return token(self.model, self.form, self.context)

    @property
    def group(self) -> tuple[str, str]:
        return self.clocks.board, self.runtime


#: The boards of the tables that name no clocks, at the top of MAXN.
_TOPS = {
    "xavier": TableClocks("agx-xavier", 4, 1377e6, 136.5e9),
    "orin": TableClocks("agx-orin-64gb", 8, 1300.5e6, 204.8e9),
    "thor": TableClocks("agx-thor", 10, 1575e6, 273e9),
}
#: IFEval's prompts and answers: the middle of an answer, on average.
_IFEVAL_CONTEXT = 300
_ORIN_30W = TableClocks("agx-orin-64gb", 4, 612e6, 204.8e9)
_NX_BYTES_PER_CYCLE = 32


def rows(data: Path) -> list[TokenRow]:
    """Rows of all three tables. Raises ComparisonDataError."""
    try:
        return [*_power_modes(data), *_llama(data), *_hydra(data)]
    except (AttributeError, KeyError, ValueError, IndexError, TypeError, OSError) as error:
        raise ComparisonDataError(f"the tables of tokens are not as they were published ({error!r:.120})") from error


def _power_modes(data: Path) -> Iterator[TokenRow]:
    """Orin NX, TensorRT Edge-LLM, 4 bits, 128 positions before the token."""
    for row in read_rows(data, POWER_MODES):
        memory_hz = float(row["emc_current_mhz"].split()[0]) * 1e6
        clocks = TableClocks(
            "orin-nx-16gb", int(row["active_tpcs"]), float(row["gpu_mhz"]) * 1e6, memory_hz * _NX_BYTES_PER_CYCLE
        )
        ms = float(row["decode_ms_per_token"])
        model = "-".join(row["model"].split("-")[:2])
        mj = float(row["vdd_in_mw_decode"]) * ms / 1e3
        yield TokenRow("orin-nx-power-modes", "TensorRT Edge-LLM", model, "INT4", 129, clocks, row["mode"], ms, mj)


def _llama(data: Path) -> Iterator[TokenRow]:
    """AGX Orin 64GB, llama.cpp's llama-speculative without drafts: 256 tokens after 187, and 192 after 15,718."""
    for name, row in json.loads(find_file(data, LLAMA).read_text(encoding="utf-8")).items():
        variant = row["variant"]
        long, form = variant.startswith("lc"), {"q4km": "Q4_K_M", "iq4xs": "IQ4_XS"}.get(variant.removeprefix("lc"))
        if form is None:
            continue  # with drafts: how many of them are accepted is the text's affair
        clocks = _TOPS["orin"] if row["mode"] == "maxn" else _ORIN_30W
        context = 15718 + 96 if long else 187 + 128
        ms, mj = 1e3 / row["tok_per_s_median"], 1e3 * row["j_per_token_median"]
        yield TokenRow("agx-orin-llama", "llama-speculative", "Llama-3.1-8B", form, context, clocks, name, ms, mj)


def _hydra(data: Path) -> Iterator[TokenRow]:
    moved = {said["Model"]: said for said in read_rows(data, TRAFFIC)}

    def row(board: str, backend: str, form: str, model: str, watts: float, mj: float) -> TokenRow:
        runtime = "transformers" if backend == "hf" else "llama.cpp"
        # Of the memory's controller: its clock and its load, in the prompt and in the tokens after it.
        told = moved[model][f"{form} BW_eff"].split("/")[1].split("(")[0] if board == "orin" else None
        form = "bf16" if backend == "hf" else form
        traffic = None if told is None else float(told) * 1e9
        return TokenRow("jetson-llm", runtime, model, form, _IFEVAL_CONTEXT, _TOPS[board], "", mj / watts, mj, traffic)

    for said in read_rows(data, XAVIER):
        if said["platform"] == "xavier":
            ms, mj = float(said["itl_ms_mean"]), float(said["mj_per_token_mean"])
            yield row("xavier", said["backend"], said["dtype"], said["model"], mj / ms, mj)
    for said in read_rows(data, HYDRA):
        both = [[float(text.split("(")[0]) for text in said[name].split("/")] for name in ("Power (W)", "mJ/tok")]
        for board, watts, mj in zip(("orin", "thor"), *both, strict=True):
            backend = "hf" if said["Format"].startswith("HF") else "llama.cpp"
            yield row(board, backend, said["Format"], said["Model"], watts, mj)


WITHIN_MS, WITHIN_MJ = 0.15, 0.20
"""Goals for relative errors of tokens per second, and of energy per token."""

EAGER = ("transformers",)
# Rates before a fit, in the order of `Rates`; and the third under eager execution.
_USUAL, _USUAL_HOST_MS = (1.2, 1 / 128, 12_000.0, 1.0), 0.1
_LEAST = (1.0, 1e-5, 1e-3, 0.5)
_MEMORY, _WORK, _START, _CACHE = range(4)
_PAIRS = ((_MEMORY, _START), (_MEMORY, _WORK), (_WORK, _START), (_MEMORY, _CACHE), (_WORK, _CACHE))
# Weight of a rate's usual value, in the logarithms of the rows' errors: rates without data keep it.
_HOLD = 0.03


class RuntimeRates(Struct, frozen=True):
    """Rates of a runtime on a board.

    Attributes:
        memory: peak over attained bandwidth.
        work: cycles of one unit (a TPC) per instruction.
        start: of a launch: GPU cycles, or ms of the host under eager execution.
        cache: time of a byte of keys and values relative to one of weights.
        unit_mw: power per active unit.
    """

    memory: float
    work: float
    start: float
    cache: float = 1.0
    unit_mw: float = 0.0
    byte_mj: float = 0.0
    instruction_mj: float = 0.0

    def ms(self, row: TokenRow) -> float:
        clocks, token = row.clocks, row.token
        if row.runtime in EAGER:
            return _longer(1e3 * self.memory * token.bytes / clocks.memory_bytes_s, self.start * token.launches)
        shown_ms = 1e3 * self.start * token.launches / clocks.gpu_hz
        for part in token.parts:
            memory_ms = 1e3 * self.memory * part.bytes * (self.cache if part.cache else 1.0) / clocks.memory_bytes_s
            shown_ms += _longer(memory_ms, 1e3 * self.work * part.instructions / (clocks.units * clocks.gpu_hz))
        return shown_ms

    def mj(self, row: TokenRow) -> float:
        token = row.token
        power_mj = self.unit_mw * row.clocks.units * self.ms(row) / 1e3
        return power_mj + self.byte_mj * token.bytes + self.instruction_mj * token.instructions


class PredictedRow(Struct, frozen=True):
    """Row, and rates fitted to the rest of its group, if any."""

    row: TokenRow
    rates: RuntimeRates | None

    @property
    def ms(self) -> float:
        return self.rates.ms(self.row) if self.rates else math.nan

    @property
    def mj(self) -> float:
        return self.rates.mj(self.row) if self.rates else math.nan

    @property
    def rate_error(self) -> float:
        return self.row.ms / self.ms - 1

    @property
    def energy_error(self) -> float:
        return self.mj / self.row.mj - 1

    @property
    def in_time(self) -> bool:
        return abs(self.rate_error) <= WITHIN_MS

    @property
    def in_energy(self) -> bool:
        return abs(self.energy_error) <= WITHIN_MJ


def fit(rows: Sequence[TokenRow]) -> RuntimeRates:
    """Rates by least squares of relative errors. Raises ModuleNotFoundError without scipy."""
    from scipy.optimize import least_squares, nnls

    eager = rows[0].runtime in EAGER
    usual = np.log(_USUAL)
    if eager:
        usual[_START] = math.log(_USUAL_HOST_MS)

    def errors(logs: NDArray[np.float64], free: Sequence[int]) -> list[float]:
        rates = RuntimeRates(*np.exp(_with(usual, free, logs)))
        return [*(math.log(rates.ms(row) / row.ms) for row in rows), *(_HOLD * (logs - usual[free]))]

    found = []
    for free in map(list, _PAIRS[:1] if eager else _PAIRS):
        bounds = (np.log(_LEAST)[free], np.full(len(free), np.inf))
        solved = least_squares(errors, usual[free], bounds=bounds, args=(free,))
        found.append((float(solved.cost), RuntimeRates(*map(float, np.exp(_with(usual, free, solved.x))))))
    timed = min(found, key=lambda one: one[0])[1]
    # In billions, so that the columns are alike; nothing is unpacked in eager execution.
    costs = [(row.clocks.units * row.ms / 1e3, row.token.bytes / 1e9, row.token.instructions / 1e9) for row in rows]
    shares = np.array(costs)[:, : 2 if eager else 3] / np.array([[row.mj] for row in rows])
    prices = [*map(float, nnls(shares, np.ones(len(rows)))[0]), 0.0]
    return replace(timed, unit_mw=prices[0], byte_mj=prices[1] / 1e9, instruction_mj=prices[2] / 1e9)


def _with(usual: NDArray[np.float64], free: Sequence[int], logs: NDArray[np.float64]) -> NDArray[np.float64]:
    changed = usual.copy()
    changed[free] = logs
    return changed


def predict_rows(rows: Sequence[TokenRow]) -> Iterator[PredictedRow]:
    """Predict every row from the rest of its group. Raises ComparisonDataError, ModuleNotFoundError."""
    if not rows:
        raise ComparisonDataError("the tables of tokens have no rows")
    for group in dict.fromkeys(row.group for row in rows):
        own = [row for row in rows if row.group == group]
        for number, row in enumerate(own):
            others = own[:number] + own[number + 1 :]
            yield PredictedRow(row, fit(others) if others else None)


def _longer(*parts_ms: float) -> float:
    return float(sum(part**OVERLAP for part in parts_ms) ** (1 / OVERLAP))
