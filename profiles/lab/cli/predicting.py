# SPDX-License-Identifier: Apache-2.0
"""Predict networks by a whole-network predictor trained on a record, with cross-validated bounds.

At most 5% of the record's own networks, left out in five parts, exceed the bound. For memory, pass it to 'jetdvfs plan MODEL
--modes --mig a100 --needs-mib'. Predictors with counters need --counters, a table of Nsight Compute of the network.

examples:
  jetdvfs-lab networks predict records/gpu model.pt --input 8x3x224x224
  jetdvfs-lab networks predict records/gpu model.pt --predictor "xgboost with counters" --counters ncu.csv
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ....daemon import arguments
from ....daemon.cli import output
from ....daemon.errors import UsageError
from ....kernels.graph import graph_of
from ...errors import RecordError
from .arguments import add_seed, named_networks


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    sub = verb("predict", __doc__ or "", predict)
    sub.add_argument("record", type=Path, metavar="FOLDER", help="record of 'jetdvfs-lab networks measure'")
    sub.add_argument("models", nargs="+", metavar="MODEL", help="a model file, or the name of a reference network")
    arguments.add_input(sub)
    arguments.add_accept_boundary(sub)
    sub.add_argument("--predictor", default="rates", metavar="NAME", help="as in 'jetdvfs-lab evaluate' (default rates)")
    sub.add_argument("--counters", type=arguments.named_file, metavar="TABLE", help="counters of the one MODEL")
    add_seed(sub)


def predict(args: argparse.Namespace) -> int:
    from ..networks.bench import upper_bounds
    from ..networks.counters import read_counters
    from ..networks.predictors.loading import COUNTED, PREDICTORS
    from ..networks.record import Query, read_record

    makes = {**PREDICTORS, **COUNTED}
    if args.predictor not in makes:
        raise UsageError(f"--predictor {args.predictor}: valid: {', '.join(makes)}")
    if args.counters is not None and len(args.models) > 1:
        raise UsageError("--counters: expected one MODEL, whose table it is")
    samples = read_record(args.record).samples
    if not samples:
        raise RecordError(f"{args.record}: holds no network that was measured")
    counters = {} if args.counters is None else next(iter(read_counters(args.counters).values()))
    networks = named_networks(args.models, args.inputs, args.accept_boundary)
    devices = list(dict.fromkeys((sample.board, sample.device) for sample in samples))
    made = makes[args.predictor]()
    made.fit(samples, output.progress_bar)
    bounds = upper_bounds(samples, makes[args.predictor], args.seed)
    asked = [(network.name, board, device, graph_of(network)) for network in networks for board, device in devices]
    found = made.predict([Query(graph, device, counters=counters) for _, _, device, graph in asked])
    rows = [
        {"network": name, "board": board, "metric": metric, "predicted": float(value), "at_most": float(value * bound)}
        for (name, board, _, _), values in zip(asked, found, strict=True)
        for metric, value, bound in zip(made.metrics, values, bounds, strict=True)
    ]
    if args.json:
        output.print_json({"predictor": args.predictor, "networks": rows})
        return 0
    cells = [(*list(map(str, one.values()))[:3], f"{one['predicted']:.4g}", f"{one['at_most']:.4g}") for one in rows]
    print(output.table(("network", "board", "metric", "predicted", "95% at most"), cells, text_columns=3))
    return 0
