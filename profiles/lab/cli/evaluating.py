# SPDX-License-Identifier: Apache-2.0
"""Compare a simulated board's profile, and plans made with it, with unseen boards.

Errors are mean absolute ones at random configurations, measured with noise. A bound is the prediction for 95% of measurements;
the table shows the share below it. Plans for four targets are compared with an exhaustive search of each board: regret is the
excess energy (or latency) of plans that meet their target; missed plans do not, and refused ones were wrongly found out of
reach. Targets are LIMITS.

The floor is an oracle of the training boards' true mean.

MODEL is a model file, the .json of 'jetdvfs decompose --json', or a reference network (default: all), to which --input does not
apply.

With --as, boards run each network by their own engine, and predictions are those of 'predict --as'.

With --networks, whole-network predictors are compared, on a record of 'jetdvfs-lab networks measure': each learns from N
networks and is tested on unseen networks, families, sizes, boards and clocks; "in turn", on each once. --board takes one of the
record's boards and adds the kernel-level method of --profile.

examples:
  jetdvfs-lab evaluate --profile agx-xavier-sim
  jetdvfs-lab evaluate --families-left-out --boards 10
  jetdvfs-lab evaluate resnet18 lists/*.json --temperature 80
  jetdvfs-lab evaluate --profile agx-orin-64gb-sim --as engine-half
  jetdvfs-lab evaluate --perturbed 1 mobilenet_v2 --json
  jetdvfs-lab evaluate --networks records/cpu --predictor xgboost --predictor seernet --train-size 1000
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import asdict

from ....daemon import arguments
from ....daemon.cli import output
from ....kernels.engine.fusing import ENGINE_TYPES
from ....kernels.text import printable
from ....kernels.units import METHODS
from ...bundle.bundle import Bundle, load_bundle
from ...bundle.manifest import UNSEEN_BOARD_AND_NETWORK, UNSEEN_NETWORK, Manifest
from ...errors import BundleError
from ...twin.cli.arguments import add_perturbed
from ..compare.plans import TARGETS_IN_WORDS, PlanTrial, TrialCounts
from ..train.listed_networks import left_out_networks
from . import bench
from .arguments import add_count, add_seed, named_networks

if TYPE_CHECKING:
    from ..compare.plans import BoardResult, NetworkResult

BOARDS = 2


def configure(sub: argparse.ArgumentParser) -> None:
    arguments.add_json(sub)
    sub.description = (__doc__ or "").replace("LIMITS", TARGETS_IN_WORDS)
    sub.add_argument("models", nargs="*", metavar="MODEL", help="a model file, or the name of a reference network")
    arguments.add_input(sub)
    arguments.add_accept_boundary(sub)
    sub.add_argument("--profile", default="agx-xavier-sim", metavar="NAME|DIR")
    sub.add_argument("--configs", type=arguments.whole(1), default=100, help="random configurations per network (default 100)")
    group = arguments.titled(sub, "simulated boards")
    boards = group.add_mutually_exclusive_group()
    add_count(boards, "--boards", f"simulated boards: the first N that the profile was not trained on (default {BOARDS})")
    boards.add_argument(
        "--node", type=arguments.whole(0), action="append", metavar="N", help="simulated board by its number, may be repeated"
    )
    boards.add_argument(
        "--networks-left-out",
        action="store_true",
        help="show the training's evaluation: each network predicted by models trained without it and without its board",
    )
    add_perturbed(group)
    sub.add_argument(
        "--families-left-out",
        action="store_true",
        help="also evaluate networks of the families that no profile is trained on: transformers, detectors, language models",
    )
    sub.add_argument(
        "--as",
        dest="compiled",
        choices=tuple(ENGINE_TYPES),
        default="",
        help="compare engines: in single precision, in half (engine-half), or in 8 bits (engine-int8)",
    )
    arguments.add_temperature(sub)
    add_seed(sub)
    bench.configure(sub)


def run(args: argparse.Namespace) -> int:
    if args.networks is not None:
        return bench.run(args)
    bundle = load_bundle(args.profile)
    manifest = bundle.manifest
    if not manifest.simulated:
        raise BundleError(
            f"profile {manifest.name}: was measured on real boards; there is no simulated board to compare it with"
        )
    if args.networks_left_out:
        return _left_out(args, manifest)
    from ...twin.silicon.silicon import Silicon, check_version
    from ..compare.plans import evaluate_profile, untrained_nodes

    check_version(manifest.silicon_version, manifest.board)
    nodes = untrained_nodes(bundle, args.boards or BOARDS) if args.node is None else tuple(dict.fromkeys(args.node))
    networks = named_networks(args.models, args.inputs, args.accept_boundary)
    networks += left_out_networks() if args.families_left_out else ()
    results = list(
        evaluate_profile(
            bundle,
            networks,
            nodes,
            configurations=args.configs,
            seed=args.seed,
            temperature_c=args.temperature,
            compiled=args.compiled,
            perturbed=args.perturbed,
            progress=output.progress_bar,
        )
    )
    version = Silicon(board=manifest.board, perturbed=args.perturbed).version
    if args.json:
        output.print_json({**_to_json(bundle, results, nodes, version), "as": args.compiled or None})
    else:
        print("\n".join(_report(bundle, results, nodes, version, args.configs, args.compiled)))
    return 0


def _left_out(args: argparse.Namespace, manifest: Manifest) -> int:
    from ...adapt.network_errors import NetworkError
    from ..train import evaluation

    seen = manifest.other_boards_seen
    record = manifest.evaluation.get(UNSEEN_BOARD_AND_NETWORK if seen else UNSEEN_NETWORK, {})
    errors = [NetworkError.from_json(item) for item in record.get("networks", ())]
    if not errors:
        raise BundleError(f"profile {manifest.name}: keeps no record of networks left out of training")
    if args.json:
        output.print_json({"profile": manifest.name, "board": manifest.board, "simulated": manifest.simulated, **record})
        return 0
    boards = f"{'simulated ' if manifest.simulated else ''}{manifest.board}"
    where = f"on {boards} boards and for" if seen else f"on the only {boards} that was measured, of"
    print(f"Mean absolute error {where} networks that models were trained without")
    print(evaluation.table(errors))
    print(evaluation.coverage(errors))
    return 0


def _report(
    bundle: Bundle, results: Sequence[NetworkResult], nodes: Sequence[int], version: str, configurations: int, compiled: str
) -> Iterator[str]:
    from ..train.evaluation import coverage

    known = sorted(set(nodes) & set(bundle.manifest.nodes))
    trained = f"it was trained on board {', '.join(map(str, known))}" if known else "it was trained on none of them"
    run = f" run as {compiled}" if compiled else ""
    yield f"profile {bundle.manifest.name} on simulated {version}{run}, boards {', '.join(map(str, nodes))}; {trained}"
    yield f"\nMean absolute error at {configurations} random configurations, share of measurements under the 95% bounds"
    yield _errors(results)
    yield coverage([board.errors[METHODS[0]] for result in results for board in result.boards])
    yield f"\nPlans compared with an exhaustive search; targets: {TARGETS_IN_WORDS}"
    yield from _plans(results)
    yield "\nThe worst"
    yield from _worst(results)


def _errors(results: Sequence[NetworkResult]) -> str:
    from ..compare.plans import FLOOR

    own, plain = METHODS
    columns = (
        ("latency", own, "latency_percent"), ("energy", own, "energy_percent"),
        ("sum: latency", plain, "latency_percent"), ("energy", plain, "energy_percent"),
        ("floor: latency", FLOOR, "latency_percent"), ("energy", FLOOR, "energy_percent"),
        ("under bound: latency", own, "latency_covered"), ("energy", own, "energy_covered"),
    )  # fmt: skip

    def cells(name: str, of: Sequence[NetworkResult]) -> list[str]:
        boards = [board for result in of for board in result.boards]
        means = [np.mean([getattr(board.errors[method], figure) for board in boards]) for _, method, figure in columns]
        shown = [
            f"{mean:.1%}" if figure.endswith("covered") else f"{mean:.1f}%"
            for mean, (_, _, figure) in zip(means, columns, strict=True)
        ]
        return [name, *shown, f"{np.mean([result.guessed_share for result in of]):.0%}"]

    lines = [cells(result.network, [result]) for result in results]
    headers = ["network", *(header for header, _, _ in columns), "guessed"]
    return output.table(headers, [*lines, cells("mean", results)])


def _plans(results: Sequence[NetworkResult]) -> Iterator[str]:
    from ..compare.plans import CONFIDENCE, CONFIDENT, FLOOR, PLAIN

    def cells(name: str, of: Sequence[NetworkResult]) -> list[str]:
        line = [name]
        for outcome in (TrialCounts.of(_trials(of, planner)) for planner in (PLAIN, CONFIDENT)):
            line += [f"{outcome.mean_regret:.1%}", f"{outcome.worst_regret:.1%}", f"{outcome.missed}/{outcome.trials}"]
            line += [f"{outcome.worst_over:.1%}", str(outcome.refused)]
        return line

    headers = ["network"]
    for title in ("", f"with confidence {CONFIDENCE:g}: "):
        headers += [f"{title}regret", "worst", "missed", "by up to", "refused"]
    yield output.table(headers, [*(cells(result.network, [result]) for result in results), cells("all", results)])
    floor = TrialCounts.of(_trials(results, FLOOR))
    yield (
        f"floor: regret {floor.mean_regret:.1%}, at most {floor.worst_regret:.1%}; {floor.missed} of {floor.trials} missed, "
        f"by up to {floor.worst_over:.1%}"
    )


def _trials(results: Sequence[NetworkResult], planner: str) -> Iterator[PlanTrial]:
    return (trial for result in results for board in result.boards for trial in board.trials[planner])


def _worst(results: Sequence[NetworkResult]) -> Iterator[str]:
    from ..compare.plans import CONFIDENT, PLAIN

    rows = [(result.network, board) for result in results for board in result.boards]

    def where(name: str, board: BoardResult) -> str:
        return printable(f"{name} on board {board.node}")

    def figures(name: str) -> list[tuple[float, str, BoardResult]]:
        return [(getattr(board.errors[METHODS[0]], name), network, board) for network, board in rows]

    for figure in ("latency", "energy"):
        percent, network, board = max(figures(f"{figure}_percent"), key=itemgetter(0))
        yield f"  {figure} error    {percent:.1f}%, {where(network, board)}"
    for figure in ("latency", "energy"):
        covered, network, board = min(figures(f"{figure}_covered"), key=itemgetter(0))
        yield f"  under the {figure} bound    {covered:.1%}, {where(network, board)}"
    for planner in (PLAIN, CONFIDENT):
        tried = [(name, board, trial) for name, board in rows for trial in board.trials[planner] if trial.attainable]
        kept = [one for one in tried if one[2].regret is not None]
        if kept:
            name, board, trial = max(kept, key=lambda one: one[2].regret or 0.0)
            yield f"  regret, {planner}    {trial.regret:.1%}, {where(name, board)}, {trial.target}"
        if any(trial.missed for _, _, trial in tried):
            name, board, trial = max(tried, key=lambda one: one[2].over)
            yield f"  missed, {planner}    by {trial.over:.1%}, {where(name, board)}, {trial.target}"


def _to_json(bundle: Bundle, results: Sequence[NetworkResult], nodes: Sequence[int], version: str) -> dict[str, Any]:
    from ...adapt.network_errors import summary
    from ..compare.plans import CONFIDENT, FLOOR, PLAIN

    manifest = bundle.manifest
    own = [board.errors[method] for method in (*METHODS, FLOOR) for result in results for board in result.boards]
    planners = (PLAIN, CONFIDENT, FLOOR)
    return {
        "profile": manifest.name, "board": manifest.board, "simulated": True, "silicon": version, "nodes": list(nodes),
        "trained_on": sorted(set(nodes) & set(manifest.nodes)), "mean": summary(own),
        "plans": {planner: asdict(TrialCounts.of(_trials(results, planner))) for planner in planners},
        "networks": [
            {
                "network": result.network,
                "guessed_share": result.guessed_share,
                "plans": {planner: asdict(TrialCounts.of(_trials([result], planner))) for planner in planners},
                "boards": [
                    {
                        "node": board.node,
                        "errors": [error.to_json() for error in board.errors.values()],
                        "trials": {planner: [asdict(trial) for trial in board.trials[planner]] for planner in planners},
                    }
                    for board in result.boards
                ],
            }
            for result in results
        ],
    }  # fmt: skip
