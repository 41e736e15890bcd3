# SPDX-License-Identifier: Apache-2.0
"""Tokens on real boards, as three tables of others have them: model, format, clocks, time and energy of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import ComparisonDataError
from .fit import find_file, read_rows
from .token_models import FORMATS, SIZES, Token, token

POWER_MODES = "derived.csv"
LLAMA = "energy-summary.json"
HYDRA = "hydra_table6_efficiency.csv"
XAVIER = "hydra_ae_quick_reference.csv"
TRAFFIC = "hydra_table4_gpu_mem_orin.csv"


@dataclass(frozen=True)
class Clocks:
    """A board as a table had it.

    Attributes:
        gpu_hz: of the GPU; units: how many of its TPCs were on.
        memory_bytes_s: what the memory moves at its clock, at most.
    """

    board: str
    units: int
    gpu_hz: float
    memory_bytes_s: float


@dataclass(frozen=True)
class Row:
    """A measurement: ``ms`` and ``mj`` of one token, and what the memory moved, where that was measured, too.

    Raises:
        KeyError: its model or its format is not among those that are known.
    """

    table: str
    runtime: str
    model: str
    form: str
    context: int
    clocks: Clocks
    label: str
    ms: float
    mj: float
    traffic_bytes_s: float | None = None

    def __post_init__(self) -> None:
        _ = SIZES[self.model], FORMATS[self.form]

    @property
    def token(self) -> Token:
        return token(self.model, self.form, self.context)

    @property
    def group(self) -> tuple[str, str]:
        """What rates are fitted to: a runtime on a board."""
        return self.clocks.board, self.runtime


#: The boards of the tables that name no clocks, at the top of MAXN.
_TOPS = {
    "xavier": Clocks("agx-xavier", 4, 1377e6, 136.5e9),
    "orin": Clocks("agx-orin-64gb", 8, 1300.5e6, 204.8e9),
    "thor": Clocks("agx-thor", 10, 1575e6, 273e9),
}
#: IFEval's prompts and what came of them: the middle of an answer, on average.
_IFEVAL_CONTEXT = 300
_ORIN_30W = Clocks("agx-orin-64gb", 4, 612e6, 204.8e9)
_NX_BYTES_PER_CYCLE = 32


def rows(data: Path) -> list[Row]:
    """All rows of the three tables.

    Raises:
        ComparisonDataError: one is missing, or not as it was published.
    """
    try:
        return [*_power_modes(data), *_llama(data), *_hydra(data)]
    except (AttributeError, KeyError, ValueError, IndexError, TypeError, OSError) as error:
        raise ComparisonDataError(f"the tables of tokens are not as they were published ({error!r:.120})") from error


def _power_modes(data: Path) -> Iterator[Row]:
    """Orin NX, TensorRT Edge-LLM, 4 bits, 128 positions seen before the token."""
    for row in read_rows(data, POWER_MODES):
        memory_hz = float(row["emc_current_mhz"].split()[0]) * 1e6
        clocks = Clocks("orin-nx-16gb", int(row["active_tpcs"]), float(row["gpu_mhz"]) * 1e6, memory_hz * _NX_BYTES_PER_CYCLE)
        ms = float(row["decode_ms_per_token"])
        model = "-".join(row["model"].split("-")[:2])
        mj = float(row["vdd_in_mw_decode"]) * ms / 1e3
        yield Row("orin-nx-power-modes", "TensorRT Edge-LLM", model, "INT4", 129, clocks, row["mode"], ms, mj)


def _llama(data: Path) -> Iterator[Row]:
    """AGX Orin 64GB, llama.cpp's llama-speculative without drafts: 256 tokens after 187, and 192 after 15,718."""
    for name, row in json.loads(find_file(data, LLAMA).read_text(encoding="utf-8")).items():
        variant = row["variant"]
        long, form = variant.startswith("lc"), {"q4km": "Q4_K_M", "iq4xs": "IQ4_XS"}.get(variant.removeprefix("lc"))
        if form is None:
            continue  # with drafts: how many of them are accepted is the text's affair
        clocks = _TOPS["orin"] if row["mode"] == "maxn" else _ORIN_30W
        context = 15718 + 96 if long else 187 + 128
        ms, mj = 1e3 / row["tok_per_s_median"], 1e3 * row["j_per_token_median"]
        yield Row("agx-orin-llama", "llama-speculative", "Llama-3.1-8B", form, context, clocks, name, ms, mj)


def _hydra(data: Path) -> Iterator[Row]:
    """AGX Xavier, Orin and Thor, llama.cpp and transformers, as their power modes had the clocks; Orin and Thor in one cell."""

    moved = {said["Model"]: said for said in read_rows(data, TRAFFIC)}

    def row(board: str, backend: str, form: str, model: str, watts: float, mj: float) -> Row:
        runtime = "transformers" if backend == "hf" else "llama.cpp"
        # Of the memory's controller: its clock and its load, in the prompt and in the tokens after it.
        told = moved[model][f"{form} BW_eff"].split("/")[1].split("(")[0] if board == "orin" else None
        form = "bf16" if backend == "hf" else form
        traffic = None if told is None else float(told) * 1e9
        return Row("jetson-llm", runtime, model, form, _IFEVAL_CONTEXT, _TOPS[board], "", mj / watts, mj, traffic)

    for said in read_rows(data, XAVIER):
        if said["platform"] == "xavier":
            ms, mj = float(said["itl_ms_mean"]), float(said["mj_per_token_mean"])
            yield row("xavier", said["backend"], said["dtype"], said["model"], mj / ms, mj)
    for said in read_rows(data, HYDRA):
        both = [[float(text.split("(")[0]) for text in said[name].split("/")] for name in ("Power (W)", "mJ/tok")]
        for board, watts, mj in zip(("orin", "thor"), *both, strict=True):
            backend = "hf" if said["Format"].startswith("HF") else "llama.cpp"
            yield row(board, backend, said["Format"], said["Model"], watts, mj)
