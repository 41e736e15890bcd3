# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab compare tokens`` and ``batches``: applications on real boards."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from ....daemon.cli.output import SIMULATED, print_json, progress, table
from ....daemon.errors import TargetNotAttainable
from ....daemon.planning.limits import Limits
from ....daemon.planning.plan import plan
from ....kernels.correction.correct import correct
from ....kernels.cost.model import surface
from ....kernels.surface import Surface
from ...bundle.bundle import load_bundle
from ...reference import reference_network
from ..compare import batches as studied
from .arguments import add_data, reading_data
from .silicon_gate import MISSED

if TYPE_CHECKING:
    from ..compare.tokens import PredictedRow

REGRET = 0.10
"""Goal for the median excess energy per image within the deadline."""

_HEADERS = ("", "tokens/s", "predicted", "error", "", "mJ", "predicted", "error", "")


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    for name, text, action in (
        ("tokens", "predict the tokens of language models on real boards, each row by rates fitted to the remaining rows", run),
        (
            "batches",
            "choose batches and GPU clocks as plan --batches does, and compare them with measurements of real boards",
            batches,
        ),
    ):
        sub = verb(name, f"{text}\n\nexample: jetdvfs-lab compare {name} --data DIR", action)
        add_data(sub)


def run(args: argparse.Namespace) -> int:
    from ..compare.tokens import WITHIN_MJ, WITHIN_MS, predict_rows, rows

    with reading_data("compare tokens"):
        predicted = list(predict_rows(rows(args.data)))
    counted = [one for one in predicted if one.rates is not None]
    in_time, in_energy = sum(one.in_time for one in counted), sum(one.in_energy for one in counted)
    if args.json:
        print_json([_to_json(one) for one in predicted])
    else:
        for group in dict.fromkeys(one.row.group for one in predicted):
            print(f"{group[1]} on a real {group[0]}, each row by rates fitted to the remaining rows")
            print(table(_HEADERS, [_cells(one) for one in predicted if one.row.group == group]), end="\n\n")
        print(_moved(predicted))
        print(f"{in_time} of {len(counted)} rows within {WITHIN_MS:.0%} of the tokens per second")
        print(f"{in_energy} of {len(counted)} rows within {WITHIN_MJ:.0%} of the energy of a token")
    return 0 if in_time == in_energy == len(counted) else MISSED


def _cells(one: PredictedRow) -> list[str]:
    row = one.row
    name = f"  {row.model} {row.form} {row.label or f'{row.context} seen'}"
    if one.rates is None:
        return [name, f"{1e3 / row.ms:.1f}", "", "", "alone", f"{row.mj:.0f}", "", "", "alone"]
    time = [f"{1e3 / row.ms:.1f}", f"{1e3 / one.ms:.1f}", f"{one.rate_error:+.0%}", "ok" if one.in_time else "MISSED"]
    return [name, *time, f"{row.mj:.0f}", f"{one.mj:.0f}", f"{one.energy_error:+.0%}", "ok" if one.in_energy else "MISSED"]


def _moved(predicted: Sequence[PredictedRow]) -> str:
    ratios = [
        row.traffic_bytes_s * row.ms / 1e3 / row.token.bytes for row in (one.row for one in predicted) if row.traffic_bytes_s
    ]
    told = f"median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}" if ratios else "not measured"
    return f"bytes that a token really moved over those that are counted, {len(ratios)} rows: {told}"


def _to_json(one: PredictedRow) -> dict[str, Any]:
    row = one.row
    predicted = {"tokens_per_s": 1e3 / one.ms, "mj_per_token": one.mj}
    predicted |= {"rate_error": one.rate_error, "energy_error": one.energy_error}
    return {
        "table": row.table,
        "board": row.clocks.board,
        "runtime": row.runtime,
        "model": row.model,
        "format": row.form,
        "label": row.label,
        "tokens_per_s": 1e3 / row.ms,
        "mj_per_token": row.mj,
        "bytes_per_token": row.token.bytes,
        "bytes_moved": row.traffic_bytes_s * row.ms / 1e3 if row.traffic_bytes_s else None,
        "predicted": predicted if one.rates else None,
    }


class BatchChoice(Struct, frozen=True):
    """Batch and GPU clock planned for a deadline; ``regret`` is excess energy over the best measured."""

    board: str
    observed: bool
    deadline_ms: float
    batch: int
    gpu_hz: int
    predicted_ms: float
    predicted_item_mj: float
    real_ms: float
    real_item_mj: float
    best_batch: int
    best_gpu_hz: float
    regret: float

    @property
    def late(self) -> bool:
        return self.real_ms > self.deadline_ms


def batches(args: argparse.Namespace) -> int:
    """Plan for deadlines, before and after one observation of each batch size."""
    with reading_data("compare batches"):
        measured = studied.cells(args.data)
    made = [choice for board, own in measured.items() for choice in _choices(board, own)]
    seen = [choice for choice in made if choice.observed]
    if args.json:
        print_json([{**asdict(choice), "late": choice.late} for choice in made])
    else:
        print(f"{studied.NETWORK}: batch and GPU clock within a deadline, as planned and as really measured there")
        print(SIMULATED)
        what = ["", "observed", "deadline ms", "batch", "GPU MHz", "ms", "real"]
        headers = (*what, "mJ/image", "real", "best", "at", "more", "")
        print(table(headers, [_choice_cells(choice) for choice in made]), end="\n\n")
        for name, some in (
            ("as predicted", [one for one in made if not one.observed]),
            ("each batch size observed once", seen),
        ):
            late = sum(choice.late for choice in some)
            print(f"{name}: {late} of {len(some)} late, {_regret(some):.1%} more energy in the median")
    return 0 if _regret(seen) <= REGRET and not any(choice.late for choice in seen) else MISSED


def _regret(choices: Sequence[BatchChoice]) -> float:
    return statistics.median([choice.regret for choice in choices] or [0.0])


def _choices(board: str, measured: Sequence[studied.BatchMeasurement]) -> list[BatchChoice]:
    cost = load_bundle(studied.PROFILES[board]).cost
    predicted: dict[int, Surface] = {}
    for size in studied.SIZES:
        if any(cell.batch == size for cell in measured):
            with progress(f"predicting batches of {size} on {board}"):
                predicted[size] = surface(reference_network(studied.NETWORK, size), cost)
    corrected = {}
    for size, one in predicted.items():
        once = studied.seen(one, measured, size)
        corrected[size] = one if once is None else correct(one, [once]).surface
    found = []
    for observed, surfaces in ((False, predicted), (True, corrected)):
        for deadline_ms in studied.deadlines_ms(measured):
            choice = _choose(board, measured, surfaces, deadline_ms, observed=observed)
            found += [choice] if choice else []
    return found


def _choose(
    board: str,
    measured: Sequence[studied.BatchMeasurement],
    surfaces: Mapping[int, Surface],
    deadline_ms: float,
    *,
    observed: bool,
) -> BatchChoice | None:
    plans = []
    for size, one in surfaces.items():
        cpu_khz, _, emc_hz = one.grid.top
        limits = Limits(cpu_khz=(cpu_khz, cpu_khz), emc_hz=(emc_hz, emc_hz))
        try:
            made = plan(one, f"latency_ms={deadline_ms:g}", confidence=0.95 if observed else None, limits=limits)
        except TargetNotAttainable:
            continue
        plans.append((made.energy_mj / size, size, made))
    best = studied.best(measured, deadline_ms)
    if not plans or best is None:
        return None
    item_mj, size, made = min(plans, key=lambda one: one[0])
    real = studied.at(measured, size, made.configuration.gpu_hz)
    if real is None:
        return None
    return BatchChoice(
        board, observed, deadline_ms, size, made.configuration.gpu_hz, made.latency_ms, item_mj, real.latency_ms, real.item_mj,
        best.batch, best.gpu_hz, real.item_mj / best.item_mj - 1,
    )  # fmt: skip


def _choice_cells(choice: BatchChoice) -> list[str]:
    chosen = [str(choice.batch), f"{choice.gpu_hz / 1e6:.0f}"]
    times = [f"{choice.predicted_ms:.0f}", f"{choice.real_ms:.0f}"]
    energies = [f"{figure:.0f}" for figure in (choice.predicted_item_mj, choice.real_item_mj)]
    best = [f"{choice.real_item_mj / (1 + choice.regret):.0f}", f"{choice.best_batch} x {choice.best_gpu_hz / 1e6:.0f} MHz"]
    said = [f"{choice.regret:+.1%}", "LATE" if choice.late else ""]
    return [
        choice.board,
        "yes" if choice.observed else "no",
        f"{choice.deadline_ms:.0f}",
        *chosen,
        *times,
        *energies,
        *best,
        *said,
    ]
