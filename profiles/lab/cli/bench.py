# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab evaluate --networks``: comparison of whole-network predictors on a record."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from ....daemon import arguments
from ....daemon.cli import output
from ....daemon.errors import InputError, UsageError
from ...bundle.bundle import load_bundle
from .arguments import add_count, stored_output

if TYPE_CHECKING:
    from ..networks.bench import PredictorScore
    from ..networks.predictors.estimator import Estimator

SIZES = (100, 500, 1000, 2000)
_OF_TRAINING = ("predictor", "split", "train_size", "epochs", "batch", "rate", "search", "ablations", "metric", "keep", "board")

#: Published values on the papers' own data.
REPORTED = (
    "PerfSeer: inference time 8.91%, memory 3.46% with 53,000 networks on an RTX 3090; with 2,000 19.25 and 7.49% (table 3)",
    "  without GNPB 10.70% of time, without SynMM too 13.15% (table 2); SeerNet-Multi 7.75% of all, without PCGrad 15.85%",
    "DNNPerf: training time 7.4%, memory 13.7% with 9,964 networks on a P40; with GAT 11.7, 17.1%, mean readout 20.9, 19.8%",
    "DIPPM: 1.9% over all metrics after 500 epochs on an A100; after 10 epochs 16.0%,",
    "  with GCN in place of GraphSAGE 17.5%, MLP 36.6%, GAT 36.7%, GIN 38.2% (table 4)",
    "Jung et al., with counters, on networks unlike those learnt: 10.39% on AGX Xavier (2,000), 11.89% on AGX Orin (4,000)",
)


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "networks", "predictors of whole networks, on a record that 'jetdvfs-lab networks measure' made"
    )
    group.add_argument("--networks", type=Path, metavar="FOLDER", help="the record; or a file, the stored output of --json")
    group.add_argument("--predictor", action="append", metavar="NAME", help="only this predictor; may be repeated")
    group.add_argument("--split", action="append", metavar="NAME", help="only this split; may be repeated")
    group.add_argument(
        "--train-size", type=arguments.whole(1), action="append", metavar="N", help=f"networks to learn from (default {SIZES})"
    )
    add_count(group, "--epochs", "largest number of epochs (default: the papers')")
    add_count(group, "--batch", "networks in a step (default: the papers')")
    group.add_argument("--rate", type=float, metavar="RATE", help="of learning (default: the papers')")
    group.add_argument(
        "--search",
        type=arguments.whole(1),
        metavar="S",
        help="also at the best of a search of S seconds of processor time, the same for each",
    )
    group.add_argument("--ablations", action="store_true", help="the papers' ablations, in distribution, at the largest size")
    group.add_argument(
        "--metric", action="append", metavar="NAME", help="learn and evaluate this metric alone; may be repeated"
    )
    group.add_argument("--keep", type=Path, metavar="FILE", help="keep results in this file, and resume an earlier run")
    group.add_argument(
        "--board", metavar="NAME", help="of a record of several boards: this one alone, compared with --profile's kernels"
    )


def run(args: argparse.Namespace) -> int:
    path, command = args.networks, "evaluate --networks FOLDER"
    if path.is_file() and (given := [name for name in _OF_TRAINING if getattr(args, name)]):
        raise UsageError(f"--networks FILE: shows stored scores as they are, without --{given[0].replace('_', '-')}")
    found = stored_output(path, "--networks", "networks", command, _lines) if path.is_file() else _evaluated(args)
    if args.json:
        output.print_json(found)
    else:
        print("\n".join(_lines(found)))
    return 0


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    about, scores = found["record"], found["scores"]
    yield f"{about['networks']} networks of {about['source']}{'; simulated' if about['simulated'] else ''}"
    if about["conditions"]:
        yield about["conditions"]
    if about["left_out"]:
        yield f"left out of the record: {', '.join(about['left_out'])}"
    yield f"\n{_table(scores)}"
    for one in {(each["method"], each["split"], each["networks"]): each for each in scores if each["settings"]}.values():
        yield f"{one['method']}, {one['split']}, {one['networks']} networks: {one['settings']}"
    for name, other in found["same"].items():
        yield f"{name}: of {len(about['metrics'])} metric{'s' * (len(about['metrics']) > 1)} the same network as {other}"
    for name, share in found["unseen"].items():
        yield f"{name}: its formula does not see the last launches, {share:.1%} of a network's operations in the mean"
    yield "\nReported by the papers on data of their own, as MAPE:"
    yield from (f"  {line}" for line in found["reported"])


def _evaluated(args: argparse.Namespace) -> dict[str, Any]:
    from ..networks.bench import IN_TURN, SPLITS, evaluate
    from ..networks.predictors.combined import SPACES, RandomSearch
    from ..networks.predictors.loading import duplicates, unseen_share
    from ..networks.record import read_record

    if args.rate is not None and not 0 < args.rate < 1:
        raise UsageError(f"--rate {args.rate:g}: expected a number between 0 and 1")
    record = read_record(args.networks)
    samples = [one for one in record.samples if args.board is None or one.board.split()[0] == args.board]
    if not samples:
        boards = sorted({one.board for one in record.samples})
        raise UsageError(f"--board {args.board}: the record has {', '.join(boards) or 'no networks'}")
    sizes = tuple(args.train_size or SIZES)
    splits = _chosen(args.split or (SPLITS[:1] if args.ablations else SPLITS), (*SPLITS, *IN_TURN), "--split")
    methods = _methods(args, all(one.counters for one in samples))
    if args.ablations:
        sizes = (max(sizes),)
    metrics = _chosen(args.metric or record.about.metrics, record.about.metrics, "--metric")
    same = duplicates(methods, len(metrics))
    methods = {name: make for name, make in methods.items() if name not in same}
    if args.search:
        for name, make in list(methods.items()):
            if type(make()) in SPACES:
                methods[f"{name}, searched"] = partial(RandomSearch, make, args.search)
    samples = [replace(one, values={name: one.values[name] for name in metrics}) for one in samples]
    about = {name: getattr(args, name) for name in ("epochs", "batch", "rate", "seed", "board", "search")}
    about |= {"record": record.about.source, "samples": len(samples), "metrics": list(metrics)}
    known = [] if args.keep is None else _kept(args.keep, about)
    scores = []
    for score in evaluate(samples, methods, sizes, splits, args.seed, output.progress_bar, known=known):
        scores.append(score)
        if args.keep is not None and score not in known:
            with open(args.keep, "a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(score)) + "\n")
    graphs = list({one.name: one.graph for one in samples}.values())
    return {
        "study": "networks",
        "record": {**asdict(record.about), "networks": len(graphs), "left_out": record.left_out},
        "scores": [asdict(score) for score in scores],
        "same": same,
        "unseen": {name: share for name, make in methods.items() if (share := unseen_share(make(), graphs))},
        "reported": list(REPORTED),
    }


def _kept(path: Path, about: Mapping[str, Any]) -> list[PredictorScore]:
    from ..networks.bench import PredictorScore

    try:
        if not path.exists():
            path.write_text(json.dumps(about) + "\n", encoding="utf-8")
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        if json.loads(first) != about:
            raise InputError(f"--keep {path}: of another run ({first:.200}); give a new file")
        found = [PredictorScore(**json.loads(line)) for line in lines if line.endswith("}")]  # the last may have been cut short
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"--keep {path}: cannot be gone on with ({error})") from error
    last = {(one.method, one.split, one.networks, one.metric): one for one in found}
    counts = Counter(key[:3] for key in last)
    return [one for key, one in last.items() if counts[key[:3]] == len(about["metrics"])]


def _methods(args: argparse.Namespace, counted: bool) -> Mapping[str, Callable[[], Estimator]]:
    from ..networks.predictors.kernel_level import KernelLevel
    from ..networks.predictors.loading import ABLATIONS, COUNTED, PREDICTORS, trained_as

    known: dict[str, Callable[[], Estimator]] = dict(ABLATIONS if args.ablations else PREDICTORS)
    if counted and not args.ablations:
        known |= COUNTED
    if args.board is not None:
        bundle = load_bundle(args.profile)
        if bundle.manifest.board != args.board:
            raise UsageError(f"--profile {args.profile}: it is of {bundle.manifest.board}, not of {args.board}")
        known["kernels"] = lambda: KernelLevel(bundle)
    chosen = _chosen(args.predictor or tuple(known), tuple(known), "--predictor")
    told = {"epochs": args.epochs, "batch": args.batch, "rate": args.rate}
    return {name: trained_as(known[name], **told) for name in chosen}


def _chosen(names: Sequence[str], known: Sequence[str], option: str) -> Sequence[str]:
    strange = [name for name in names if name not in known]
    if strange:
        raise UsageError(f"{option} {', '.join(strange)}: valid: {', '.join(known)}")
    return tuple(dict.fromkeys(names))


def _table(scores: Sequence[Mapping[str, Any]]) -> str:
    headers = ["predictor", "split", "metric", "networks", "tested", "MAPE", "RMSPE", "within 5%", "10%", "training s"]
    rows = [
        (
            *(one[name] for name in ("method", "split", "metric")), str(one["networks"]), str(one["tested"]),
            f"{one['mape']:.1f}%", f"{one['rmspe']:.1f}%", f"{one['within_5']:.0%}", f"{one['within_10']:.0%}",
            f"{one['training_s']:.1f}", str(one["parameters"]), f"{one['prediction_ms']:.2f}",
        )
        for one in scores
    ]  # fmt: skip
    return output.table((*headers, "parameters", "ms each"), rows, text_columns=3)
