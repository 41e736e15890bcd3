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
    cpu_levels: int,
    gpu_levels: int,
    emc_levels: int,
    shape: tuple[int, int, int],
    cpu_offsets: int,
    gpu_offsets: int,
    emc_offsets: int,
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
