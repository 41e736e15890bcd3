# SPDX-License-Identifier: Apache-2.0
"""Batch size and clocks with the least energy per item within a deadline."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ...kernels.inputs import parse_input
from ...kernels.text import printable
from ...profiles.bundle.bundle import Bundle
from ..errors import TargetNotAttainable, UsageError
from ..planning.plan import Plan, plan
from ..planning.targets import parse_target
from . import model_arguments as common
from . import output

_MOST = 16


class BatchPlan(Struct, frozen=True):
    size: int
    chosen: Plan | None
    refusal: str = ""

    @property
    def item_mj(self) -> float:
        """Energy of an item; with a rate, including the idle energy until the next batch."""
        assert self.chosen is not None
        return (self.chosen.energy_per_frame_mj or self.chosen.energy_mj) / self.size

    @property
    def items_per_s(self) -> float:
        assert self.chosen is not None
        return 1e3 * self.size / self.chosen.latency_ms

    def to_json(self) -> dict[str, Any]:
        if self.chosen is None:
            return {"batch": self.size, "refusal": self.refusal}
        return {"batch": self.size, "item_mj": self.item_mj, "items_per_s": self.items_per_s, **self.chosen.to_json()}


def sizes(text: str) -> tuple[int, ...]:
    try:
        found = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        found = ()
    if not found or len(found) > _MOST or not all(0 < size <= 1 << 16 for size in found):
        raise argparse.ArgumentTypeError(f"expected up to {_MOST} batch sizes such as 1,2,4,8, got {text!r:.40}")
    return found


def run(args: argparse.Namespace) -> int:
    """Plan for each batch size, and show them with the best one; raises TargetNotAttainable, or UsageError without a deadline
    or batch.
    """
    if args.deadline is None or args.targets:
        raise UsageError("--batches: expected --deadline MS, and no --target: planned for is the least energy of an item")
    target = parse_target(f"latency_ms={args.deadline:g}")
    bundle = common.read_profile_at(args)
    common.check_powered(bundle, "a plan")
    found, inputs = [], args.inputs or [str(spec) for spec in common.read_network(args).inputs]
    for size in args.batches:
        one = argparse.Namespace(**{**vars(args), "inputs": batched(inputs, size)})
        surface = common.predict_surface(common.read_network(one), bundle, one)
        try:
            rate = args.fps and args.fps / size
            found.append(BatchPlan(size, plan(surface, target, fps=rate, confidence=args.confidence)))
        except TargetNotAttainable as error:
            found.append(BatchPlan(size, None, str(error)))
    able = [batch for batch in found if batch.chosen is not None]
    if not able:
        raise TargetNotAttainable(f"--deadline {args.deadline:g}: no batch size meets it; of the first, {found[0].refusal}")
    best = min(able, key=lambda batch: batch.item_mj)
    if args.json:
        output.print_json({"batch": best.size, "batches": [batch.to_json() for batch in found]})
    else:
        _show(found, best, bundle, args)
    return 0


def batched(inputs: Sequence[str], size: int) -> list[str]:
    """Inputs with another batch, their first size; raises UsageError unless it is 1."""
    made = []
    for text in inputs:
        spec = parse_input(text)
        if spec.is_plain or spec.value is not None:
            made.append(text)
            continue
        if len(spec.shape) < 2 or spec.shape[0] != 1:
            raise UsageError(f"--batches: input {text} has no batch of 1 to be changed; write it as 1x3x224x224")
        name, equals, rest = text.rpartition("=")
        made.append(f"{name}{equals}{size}{rest.strip()[1:]}")
    if not made:
        raise UsageError("--batches: expected a model and --input shapes with a batch of 1")
    return made


def _show(found: Sequence[BatchPlan], best: BatchPlan, bundle: Bundle, args: argparse.Namespace) -> None:
    assert best.chosen is not None
    if best.chosen.caution:
        print(printable(best.chosen.caution))
    rate = f" at {args.fps:g} items per second" if args.fps else ""
    print(f"{args.model} on {bundle.manifest.board}, profile {bundle.manifest.name}, batches within {args.deadline:g} ms{rate}")
    if bundle.manifest.simulated:
        print(output.SIMULATED)
    print(f"\nset {best.chosen.configuration}, batch {best.size}\n")
    headers = ("batch", "CPU MHz", "GPU MHz", "EMC MHz", "latency ms", "items/s", "mJ per item", "")
    print(output.table(headers, [_row(batch, best) for batch in found]))


def _row(batch: BatchPlan, best: BatchPlan) -> list[str]:
    if batch.chosen is None:
        return [str(batch.size), "", "", "", "", "", "", "not within the deadline"]
    figures = [f"{batch.chosen.latency_ms:.2f}", f"{batch.items_per_s:.1f}", f"{batch.item_mj:.1f}"]
    return [str(batch.size), *batch.chosen.configuration.mhz_texts, *figures, "chosen" if batch is best else ""]
