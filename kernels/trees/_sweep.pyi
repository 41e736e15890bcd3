# SPDX-License-Identifier: Apache-2.0
# Every plain int that is not a count is the address of an array whose type and size the caller has checked.

def sweep(
    nodes: int,
    roots: int,
    n_trees: int,
    n_features: int,
    boxes: int,
    features: int,
    n_rows: int,
    levels: tuple[int, ...],
    shape: tuple[int, ...],
    offsets: tuple[int, ...],
    scale: float,
    base_score: float,
    out: int,
    /,
) -> None: ...
def predict(
    nodes: int,
    roots: int,
    n_trees: int,
    n_features: int,
    n_axes: int,
    features: int,
    n_rows: int,
    scale: float,
    base_score: float,
    out: int,
    /,
) -> None: ...
def first_fault(
    nodes: int, n_nodes: int, roots: int, n_trees: int, n_features: int, box_shapes: int, n_boxes: int, leaf_bound: float, /
) -> int: ...
