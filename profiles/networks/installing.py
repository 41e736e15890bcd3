# SPDX-License-Identifier: Apache-2.0
"""Giving a profile a predictor of whole networks: judged on families it does not know, then trained on all there are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..bundle.bundle import Bundle
from ..bundle.files import PREDICTOR
from ..bundle.manifest import Manifest, PredictorEntry
from ..bundle.writing import copy_bundle, write_manifest
from ..errors import RecordError
from .bench import split
from .predictors.estimator import Estimator, Told, save, silent
from .record import Record

FIGURES = ("latency_ms", "energy_mj")


def add_predictor(
    bundle: Bundle,
    record: Record,
    name: str,
    make: Callable[[], Estimator],
    command: str,
    folder: Path,
    told: Told = silent,
) -> Manifest:
    """Write the profile into a new folder, with a predictor trained on a record's networks.

    How far it is off is found on every fourth family, before it learns from those too.

    Args:
        name: the predictor's.
        make: makes it anew.

    Raises:
        RecordError: the record has nothing of the profile's board, one family only, or not the metrics that the profile needs.
    """
    manifest = bundle.manifest
    metrics = FIGURES if manifest.rails else FIGURES[:1]
    missing = [metric for metric in metrics if metric not in record.about.metrics]
    if missing:
        raise RecordError(
            f"the record has {', '.join(record.about.metrics)}; profile {manifest.name} needs {', '.join(missing)} too"
        )
    samples = [replace(one, values={metric: one.values[metric] for metric in metrics}) for one in record.samples]
    learnt, tested = split(samples, "unseen family")
    tested = [one for one in tested if one.board.split()[0] == manifest.board]
    if not learnt or not tested:
        boards = sorted({one.board for one in samples})
        raise RecordError(
            f"the record has {', '.join(boards) or 'no networks'}; expected networks of several families on {manifest.board}"
        )
    judged = make()
    judged.fit(learnt, told)
    wanted = np.array([list(one.values.values()) for one in tested])
    found = judged.predict(tested)
    percent, sigma = 100 * np.abs(found / wanted - 1).mean(0), np.sqrt((np.log(wanted / found) ** 2).mean(0))
    estimator = make()
    estimator.fit(samples, told)
    copy_bundle(bundle, folder)
    save(estimator, folder / PREDICTOR)
    entry = PredictorEntry(
        name, metrics, len({one.name for one in samples}), record.about.source, tuple(sorted({one.family for one in tested})),
        float(percent[0]), float(sigma[0]), float(percent[-1]) if manifest.rails else 0.0,
        float(sigma[-1]) if manifest.rails else 0.0, command,
    )  # fmt: skip
    digest = hashlib.sha256((folder / PREDICTOR).read_bytes()).hexdigest()
    return write_manifest(folder, replace(manifest, predictor=entry), {**manifest.checksums, PREDICTOR: digest})
