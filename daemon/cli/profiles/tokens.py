# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs profile tokens``: tokens of language models on real boards, each from two rates fitted to the others."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....profiles.errors import ComparisonDataError
from ... import arguments
from ...errors import InputError
from ..output import print_json, table
from .checks import MISSED

if TYPE_CHECKING:
    from ....profiles.studies.tokens.rates import Judged

_HEADERS = ("", "tokens/s", "predicted", "error", "", "mJ", "predicted", "error", "")


def configure(verb: Callable[[str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    """Add the action; ``verb(name, summary, action)`` gives the parser of a new one."""
    sub = verb("tokens", "predict the tokens of language models on real boards, each row by rates fitted to the others", run)
    sub.add_argument(
        "--data", type=arguments.folder, required=True, metavar="DIR", help="folder with the measurements, anywhere below it"
    )


def run(args: argparse.Namespace) -> int:
    from ....profiles.studies.tokens.rates import WITHIN_MJ, WITHIN_MS, judge
    from ....profiles.studies.tokens.rows import rows

    try:
        judged = list(judge(rows(args.data)))
    except ModuleNotFoundError as error:
        raise InputError(f"profile tokens: needs the Python package {error.name} (jetdvfs[train])") from error
    except ComparisonDataError as error:
        raise InputError(f"--data: {error}") from error
    counted = [one for one in judged if one.rates is not None]
    in_time, in_energy = sum(one.in_time for one in counted), sum(one.in_energy for one in counted)
    if args.json:
        print_json([_to_json(one) for one in judged])
    else:
        for group in dict.fromkeys(one.row.group for one in judged):
            print(f"{group[1]} on a real {group[0]}, each row by rates fitted to the others")
            print(table(_HEADERS, [_cells(one) for one in judged if one.row.group == group]), end="\n\n")
        print(f"{in_time} of {len(counted)} rows within {WITHIN_MS:.0%} of the tokens per second")
        print(f"{in_energy} of {len(counted)} rows within {WITHIN_MJ:.0%} of the energy of a token")
    return 0 if in_time == in_energy == len(counted) else MISSED


def _cells(one: Judged) -> list[str]:
    row = one.row
    name = f"  {row.model} {row.form} {row.label or f'{row.context} seen'}"
    if one.rates is None:
        return [name, f"{1e3 / row.ms:.1f}", "", "", "alone", f"{row.mj:.0f}", "", "", "alone"]
    time = [f"{1e3 / row.ms:.1f}", f"{1e3 / one.ms:.1f}", f"{one.rate_error:+.0%}", "ok" if one.in_time else "MISSED"]
    return [name, *time, f"{row.mj:.0f}", f"{one.mj:.0f}", f"{one.energy_error:+.0%}", "ok" if one.in_energy else "MISSED"]


def _to_json(one: Judged) -> dict[str, Any]:
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
        "predicted": predicted if one.rates else None,
    }
