# SPDX-License-Identifier: Apache-2.0
"""Models that cannot be swept exactly are refused by name; malformed node tables never reach the C core."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jetdvfs.kernels.errors import EnsembleError
from jetdvfs.kernels.stored_files import stamp_of
from jetdvfs.kernels.trees import ensemble as ensemble_module
from jetdvfs.kernels.trees import node_table
from jetdvfs.kernels.trees.ensemble import TreeEnsemble
from jetdvfs.kernels.trees.forest import read_treelite
from jetdvfs.kernels.trees.node_table import KEY_BITS, NodeTable
from jetdvfs.tests.support.profiles.boosted import XAVIER, kernel_samples, train, treelite, xgboost


def small_model() -> Any:
    rows, target = kernel_samples(400, seed=1)
    return treelite.frontend.from_xgboost(train(rows, target, 5, max_depth=4))


@functools.cache
def small_table() -> NodeTable:
    return read_treelite(small_model())


# Sorts of models


def other_objective(**parameters: Any) -> Any:
    rows, target = kernel_samples(200, seed=2)
    classes = np.digitize(target, [0, 2]) if "num_class" in parameters else target > 1
    return treelite.frontend.from_xgboost(train(rows, classes, 2, **parameters))


def several_outputs() -> Any:
    rows, target = kernel_samples(200, seed=2)
    return treelite.frontend.from_xgboost(train(rows, np.stack([target, -target], axis=1), 2))


def categorical() -> Any:
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, 6, 300), *rng.random((3, 300))], axis=1).astype(np.float32)
    data = xgboost.DMatrix(rows, rows[:, 0] % 2, feature_types=["c", "q", "q", "q"], enable_categorical=True)
    return treelite.frontend.from_xgboost(xgboost.train({"max_cat_to_onehot": 1, "nthread": 1}, data, 2))


def one_split(
    operator: str = "<", kind: str = "float32", threshold: float = 0.5, average: bool = False, features: int = 4
) -> Any:
    builder = treelite.model_builder
    model = builder.ModelBuilder(
        threshold_type=kind,
        leaf_output_type=kind,
        metadata=builder.Metadata(features, "kRegressor", average, 1, [1], (1, 1)),
        tree_annotation=builder.TreeAnnotation(1, [0], [0]),
        postprocessor=builder.PostProcessorFunc("identity"),
        base_scores=[0.0],
    )
    model.start_tree()
    model.start_node(0)
    model.numerical_test(1, threshold, default_left=False, opname=operator, left_child_key=1, right_child_key=2)
    model.end_node()
    for key in (1, 2):
        model.start_node(key)
        model.leaf(float(key))
        model.end_node()
    model.end_tree()
    return model.commit()


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: other_objective(objective="multi:softprob", num_class=3), "3 classes"),
        (lambda: other_objective(objective="count:poisson"), "postprocessor 'exponential'"),
        (lambda: other_objective(objective="reg:logistic"), "postprocessor 'sigmoid'"),
        (several_outputs, "2 outputs"),
        (categorical, r"tree 0, node \d+: categorical split"),
        (lambda: one_split(operator="<="), "tree 0, node 0: compares with another operator than '<'"),
        (lambda: one_split(kind="float64", threshold=0.1), "tree 0, node 0: 0.1 is not a float32 number"),
        (lambda: one_split(average=True), "averages its trees"),
        (lambda: one_split(features=2), "2 features: expected 3 to 508"),
        (lambda: one_split(features=509), "509 features: expected 3 to 508"),
        (lambda: "no such file", "no such file: cannot be read as a serialized treelite model"),
        (lambda: 7, "expected a treelite.Model or the path of a serialized one, got int"),
    ],
)
def test_a_model_that_cannot_be_swept_is_refused_by_name(build: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(EnsembleError, match=complaint):
        TreeEnsemble.from_treelite(build())


def test_float64_models_whose_numbers_are_float32_are_accepted() -> None:
    ensemble = TreeEnsemble.from_treelite(one_split(kind="float64", threshold=0.5))
    assert ensemble.predict(np.array([[0, 0.5, 0, 0], [0, 0.49, 0, 0]])).tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("field", "node", "value", "complaint"),
    [
        ("cleft", 0, 1000, "tree 3, node 0: child out of range"),
        ("cright", 1, -5, "tree 3, node 1: child out of range"),
        ("cleft", 1, 0, "tree 3, node 0: has 1 parents; expected a tree without cycles"),
        ("cright", 0, 1, "tree 3, node 1: has 2 parents"),
        ("split_index", 2, 13, "tree 3, node 2: splits on feature 13; expected 0 to 12"),
        ("split_index", 2, -1, "tree 3, node 2: splits on feature -1"),
        ("threshold", 1, np.nan, "tree 3, node 1: leaf value or threshold is nan"),
        ("cmp", 0, 4, "tree 3, node 0: compares with another operator"),
    ],
)
def test_a_malformed_tree_is_refused_by_node(field: str, node: int, value: float, complaint: str) -> None:
    model = small_model()
    tree = model.get_tree_accessor(3)
    values = tree.get_field(field).copy()
    values[node] = value
    tree.set_field(field, values)
    with pytest.raises(EnsembleError, match=complaint):
        TreeEnsemble.from_treelite(model)


def test_a_leaf_that_is_no_number_is_refused() -> None:
    model = small_model()
    tree = model.get_tree_accessor(2)
    values = tree.get_field("leaf_value").copy()
    leaf = int(np.flatnonzero(tree.get_field("node_type") == 0)[0])
    values[leaf] = np.inf
    tree.set_field("leaf_value", values)
    with pytest.raises(EnsembleError, match=f"tree 2, node {leaf}: leaf value or threshold is inf"):
        TreeEnsemble.from_treelite(model)


def test_nodes_that_no_root_leads_to_are_left_out() -> None:
    model = small_model()
    tree = model.get_tree_accessor(0)
    left = tree.get_field("cleft").copy()
    skipped = int(left[0])
    assert left[skipped] > 0
    left[0], left[skipped] = left[skipped], skipped  # what is cut off even leads to itself
    tree.set_field("cleft", left)
    rows, _ = kernel_samples(50, seed=3)
    expected = treelite.gtil.predict(model, rows, nthread=1).ravel()
    np.testing.assert_allclose(TreeEnsemble.from_treelite(model).predict(rows), expected, atol=1e-5)


# Node tables


def changed(table: NodeTable, node: int, *, bits: int | None = None, meta: int | None = None) -> NodeTable:
    nodes = table.nodes.copy()
    if bits is not None:
        nodes["bits"][node] = bits
    if meta is not None:
        nodes["meta"][node] = meta
    return replace(table, nodes=nodes)


def split_and_leaf(table: NodeTable) -> tuple[int, int]:
    """A split that is not a root, and the leaf that comes first after it."""
    keys = table.nodes["meta"] & node_table.KEY_MASK
    leaf = keys >= 2 * table.n_features
    split = int(np.flatnonzero(~leaf & ~np.isin(np.arange(len(leaf)), table.roots))[0])
    return split, split + int(np.flatnonzero(leaf[split:])[0])


def float_bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


@pytest.mark.parametrize(
    "breakage",
    [
        lambda t, split, leaf: changed(t, split, meta=(100_000 << KEY_BITS) | 1),  # child beyond the tree
        lambda t, split, leaf: changed(t, split, meta=1),  # its own child: a cycle
        lambda t, split, leaf: changed(t, split, meta=(1 << KEY_BITS) | 1),  # both children the same
        lambda t, split, leaf: changed(t, split, meta=int(t.nodes["meta"][split]) + (1 << KEY_BITS)),  # child of another
        lambda t, split, leaf: changed(t, split, meta=int(t.nodes["meta"][split]) | node_table.KEY_MASK),  # no such feature
        lambda t, split, leaf: changed(t, split, meta=int(t.nodes["meta"][leaf])),  # a leaf with nodes below
        lambda t, split, leaf: changed(t, leaf, meta=int(t.nodes["meta"][split])),  # a split without
        lambda t, split, leaf: changed(t, leaf, meta=int(t.nodes["meta"][leaf]) + (len(t.boxes) << KEY_BITS)),  # no such box
        lambda t, split, leaf: changed(t, leaf, meta=int(t.nodes["meta"][leaf]) ^ 1),  # a box of another shape
        lambda t, split, leaf: changed(t, leaf, bits=float_bits(np.nan)),
        lambda t, split, leaf: changed(t, leaf, bits=float_bits(np.inf)),
        lambda t, split, leaf: changed(t, leaf, bits=float_bits(2 * t.leaf_bound)),
        lambda t, split, leaf: changed(t, split, bits=float_bits(np.nan)),
        lambda t, split, leaf: replace(t, roots=np.delete(t.roots, 1)),  # two trees taken for one
    ],
)
def test_a_malformed_node_table_is_refused(breakage: Callable[..., NodeTable], monkeypatch: pytest.MonkeyPatch) -> None:
    table = small_table()
    broken = breakage(table, *split_and_leaf(table))
    with pytest.raises(EnsembleError, match=r"tree 0, node \d+: malformed"):
        TreeEnsemble(broken)
    monkeypatch.setattr(ensemble_module, "_core", None)
    with pytest.raises(EnsembleError, match=r"tree 0, node \d+: malformed"):
        TreeEnsemble(broken)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (lambda t: {"n_features": 2}, "2 features"),
        (lambda t: {"base_score": np.nan}, "base_score"),
        (lambda t: {"leaf_bound": -1.0}, "leaf_bound"),
        (lambda t: {"nodes": t.nodes[:-1]}, "roots"),
        (lambda t: {"roots": t.roots[::-1].copy()}, "roots"),
        (lambda t: {"roots": t.roots.astype(np.int64)}, "roots: expected"),
        (lambda t: {"boxes": t.boxes[:, :4].copy()}, "boxes"),
        (lambda t: {"boxes": t.boxes + np.uint16(40000)}, "boxes: an edge is beyond"),
        (lambda t: {"thresholds": (t.thresholds[0], t.thresholds[1][::-1], t.thresholds[2])}, "GPU thresholds"),
    ],
)
def test_arrays_of_a_node_table_that_do_not_fit_are_refused(changes: Callable[[NodeTable], Any], complaint: str) -> None:
    table = small_table()
    with pytest.raises(EnsembleError, match=complaint):
        replace(table, **changes(table))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_node_table_changed_anywhere_is_refused_by_both_cores_or_swept_alike_by_both(data: st.DataObject) -> None:
    table = small_table()
    nodes = table.nodes.copy()
    words = nodes.view(np.uint32)
    for _ in range(data.draw(st.integers(1, 3))):
        word, bit = data.draw(st.integers(0, len(words) - 1)), data.draw(st.integers(0, 31))
        words[word] ^= np.uint32(1 << bit)
    mutant = replace(table, nodes=nodes)
    rows, _ = kernel_samples(3, seed=5)
    levels = tuple(axis[::5] for axis in XAVIER)
    results = []
    core = ensemble_module._core
    for use in (core, None):
        ensemble_module._core = use
        try:
            results.append(TreeEnsemble(mutant).sweep(rows, levels).tolist())
        except EnsembleError:
            results.append(None)
        finally:
            ensemble_module._core = core
    assert results[0] == results[1]


# Files


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.trees"
    TreeEnsemble(small_table()).save(path)
    return path


def test_a_saved_ensemble_loads_read_only_and_predicts_the_same(saved: Path) -> None:
    rows, _ = kernel_samples(5, seed=6)
    loaded = TreeEnsemble.load(saved)
    np.testing.assert_array_equal(loaded.sweep(rows, XAVIER), TreeEnsemble(small_table()).sweep(rows, XAVIER))
    assert not node_table.map_table(saved).nodes.flags.writeable
    assert [path.name for path in saved.parent.iterdir()] == ["model.trees"]


def test_saving_again_leaves_what_is_mapped_as_it_was(saved: Path) -> None:
    rows, _ = kernel_samples(2, seed=6)
    mapped = TreeEnsemble.load(saved)
    before = mapped.predict(rows)
    TreeEnsemble.from_treelite(one_split()).save(saved)
    np.testing.assert_array_equal(mapped.predict(rows), before)
    assert TreeEnsemble.load(saved).n_features == 4


def test_a_file_that_was_checked_is_checked_again_only_if_it_was_touched(saved: Path) -> None:
    rows, _ = kernel_samples(5, seed=6)
    stamp = stamp_of(saved.stat())
    np.testing.assert_array_equal(TreeEnsemble.load(saved, stamp).predict(rows), TreeEnsemble(small_table()).predict(rows))
    with saved.open("r+b") as file:
        file.seek(int.from_bytes(saved.read_bytes()[16:20], "little"))  # the first node's threshold
        file.write(b"?")
    with pytest.raises(EnsembleError, match="damaged"):
        TreeEnsemble.load(saved, stamp)
    TreeEnsemble.load(saved, stamp_of(saved.stat()))  # whoever hands over this stamp says that it was checked
    saved.unlink()
    with pytest.raises(EnsembleError, match="cannot map"):
        TreeEnsemble.load(saved, stamp)


@pytest.mark.parametrize("sort", ["no trees", "one leaf"])
def test_the_smallest_ensembles_are_saved_too(sort: str, tmp_path: Path) -> None:
    rows, target = kernel_samples(50, seed=7)
    booster = train(rows, target, 0 if sort == "no trees" else 1, gamma=1e9, base_score=3.25)
    TreeEnsemble.from_treelite(treelite.frontend.from_xgboost(booster)).save(tmp_path / "tiny.trees")
    swept = TreeEnsemble.load(tmp_path / "tiny.trees").sweep(rows[:2], XAVIER)
    np.testing.assert_allclose(swept, booster.predict(xgboost.DMatrix(rows[:1]))[0], atol=1e-5)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_file_damaged_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged_model.trees"
    TreeEnsemble(small_table()).save(path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    path.write_bytes(content)
    with pytest.raises(EnsembleError, match=r"damaged_model\.trees: "):
        TreeEnsemble.load(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "cannot map the node table"),
        (b"PK\x03\x04 something else altogether", "not a node table file"),
        (None, "cannot map the node table"),
    ],
)
def test_a_foreign_file_is_refused(content: bytes | None, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EnsembleError, match=complaint):
        TreeEnsemble.load(path)


def test_a_file_of_another_version_is_refused_as_that(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    content[12] += 1
    saved.write_bytes(content)
    with pytest.raises(EnsembleError, match="node table of version 2; this program reads version 1"):
        TreeEnsemble.load(saved)


@pytest.mark.parametrize("header", [b"{}", b"[" * 3000, b'{"arrays": [[0, 99999999]]}', b'{"n_features": 1e999, "arrays": 7}'])
def test_a_header_that_says_nonsense_with_a_right_checksum_is_refused(header: bytes, saved: Path) -> None:
    header += b" " * (-(28 + len(header)) % 64)
    prefix = saved.read_bytes()[:16] + (28 + len(header)).to_bytes(4, "little") + zlib.crc32(header).to_bytes(4, "little")
    saved.write_bytes(prefix + zlib.crc32(b"").to_bytes(4, "little") + header)
    with pytest.raises(EnsembleError, match="malformed node table"):
        TreeEnsemble.load(saved)
