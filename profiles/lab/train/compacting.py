# SPDX-License-Identifier: Apache-2.0
"""Writing tree ensembles in few bytes, in the form of :mod:`jetdvfs.kernels.trees.compact`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels.trees.compact import HEADER, MAGIC, Header, number_type
from ....kernels.trees.forest import levels
from ....kernels.trees.node_table import FREQUENCIES
from ....kernels.trees.reader import forest_of


def compacted(model: Any, axes: int = len(FREQUENCIES)) -> bytes:
    """A ``treelite.Model`` in few bytes, for :func:`jetdvfs.kernels.trees.compact.read_compact`.

    Raises:
        EnsembleError: as of :func:`jetdvfs.kernels.trees.reader.read_treelite`.
    """
    n_features, base_score, forest = forest_of(model, axes)
    order = np.concatenate([forest.first[:0], *levels(forest)])
    leaf, value = forest.leaf[order], forest.value[order].astype("<f4")
    split = np.stack([forest.feature[order][~leaf], value[~leaf].view("<u4")])
    splits, split_number = np.unique(split, axis=1, return_inverse=True)
    leaves, leaf_number = np.unique(value[leaf].view("<u4"), return_inverse=True)
    header = Header(n_features, len(forest.sizes), len(leaf), splits.shape[1], len(leaves), base_score)
    return b"".join(
        [
            MAGIC,
            HEADER.pack(*header),
            np.packbits(leaf).tobytes(),
            np.packbits(forest.default_left[order][~leaf]).tobytes(),
            splits[0].astype("<u2").tobytes(),
            splits[1].astype("<u4").tobytes(),
            leaves.tobytes(),
            split_number.ravel().astype(number_type(header.splits)).tobytes(),
            leaf_number.ravel().astype(number_type(header.leaves)).tobytes(),
        ]
    )
