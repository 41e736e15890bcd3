# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles over the grid predict what XGBoost and treelite's GTIL predict."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import jetdvfs
from jetdvfs.kernels.errors import EnsembleError
from jetdvfs.kernels.trees import ensemble as ensemble_module
from jetdvfs.kernels.trees.ensemble import TreeEnsemble
from jetdvfs.kernels.trees.node_table import most_features
from jetdvfs.tests.support.profiles.boosted import (
    XAVIER,
    kernel_samples,
    on_grid,
    thresholds,
    train,
    trained,
    treelite,
    xgboost,
)

# XGBoost adds float32 leaves one by one; we add them exactly.
TOLERANCE = 1e-4
CORES = [
    pytest.param(
        True,
        marks=pytest.mark.skipif(ensemble_module._core is None, reason="the C core is not built: that needs a C compiler"),
        id="compiled",
    ),
    pytest.param(False, id="numpy"),
]


@pytest.fixture(params=CORES)
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr(ensemble_module, "_core", None)
    return bool(request.param)


def convert(booster: Any, axes: int = 3) -> TreeEnsemble:
    return TreeEnsemble.from_treelite(treelite.frontend.from_xgboost(booster), axes)


def assert_sweeps_as_predicted(booster: Any, rows: NDArray[Any], levels: tuple[NDArray[Any], ...]) -> None:
    """The sweep equals XGBoost's prediction at every configuration, with and without the C core."""
    ensemble = convert(booster, len(levels))
    swept = ensemble.sweep(rows, levels)
    assert swept.dtype == np.float32
    assert swept.shape == (len(rows), *map(len, levels))
    for row, surface in zip(rows, swept, strict=True):
        everywhere = on_grid(row, levels)
        np.testing.assert_allclose(
            surface.ravel(), booster.predict(xgboost.DMatrix(everywhere, nthread=1)), rtol=1e-6, atol=TOLERANCE
        )
        np.testing.assert_array_equal(surface.ravel(), ensemble.predict(everywhere))


@pytest.mark.parametrize("compiled", [CORES[0], pytest.param(False, id="numpy", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize("grow", [{"max_depth": 8}, {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 90}])
def test_sweep_equals_xgboost_at_all_xavier_configurations(grow: dict[str, Any], compiled: bool) -> None:
    rows, target = kernel_samples(3000, seed=1)
    booster = train(rows, target, 40, **grow)
    other, _ = kernel_samples(3, seed=2)
    assert XAVIER[0].size * XAVIER[1].size * XAVIER[2].size == 3654
    assert convert(booster).compiled == compiled
    assert_sweeps_as_predicted(booster, other, XAVIER)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trained(), st.data())
def test_sweep_equals_xgboost_for_any_model_and_axes(compiled: bool, model: Any, data: st.DataObject) -> None:
    check_anywhere(model, data, most_levels=6)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([1, 2, 4, 5, 6]).flatmap(lambda axes: trained(axes=axes)), st.data())
def test_sweep_equals_xgboost_for_any_number_of_axes(compiled: bool, model: Any, data: st.DataObject) -> None:
    check_anywhere(model, data, most_levels=3 if len(model[3]) > 4 else 6)


@pytest.mark.parametrize("n_features", [125, 128, most_features(3)])
def test_a_model_of_as_many_features_as_there_is_room_for_sweeps_as_xgboost_predicts(n_features: int, compiled: bool) -> None:
    rows, target = kernel_samples(300, seed=5)
    work, clocks = np.split(rows, [-3], axis=1)
    wide = np.hstack([work, np.zeros((len(rows), n_features - rows.shape[1]), np.float32), clocks])
    assert_sweeps_as_predicted(train(wide, target, 5, max_depth=4), wide[:2], tuple(axis[::4] for axis in XAVIER))


def check_anywhere(model: Any, data: st.DataObject, most_levels: int) -> None:
    """Sweeps over axes with levels at and next to thresholds, of rows with features at thresholds and missing ones."""
    booster, rng, n_features, seen = model
    levels = []
    for axis, trained_on in enumerate(seen, start=n_features - len(seen)):
        cuts = thresholds(booster, axis)
        at_cuts = [near for cut in cuts for near in (cut, np.nextafter(cut, np.float32(0)), np.nextafter(cut, np.float32(1e6)))]
        pool = np.unique(np.array([*trained_on, *at_cuts, 1.0, 5000.0], np.float32))
        count = data.draw(st.integers(1, min(most_levels, len(pool))))
        levels.append(np.sort(rng.choice(pool, count, replace=False)))
    rows = rng.normal(0, 1, (data.draw(st.integers(1, 4)), n_features)).astype(np.float32)
    for feature in range(n_features - len(seen)):  # fixed features exactly at thresholds
        for cut in thresholds(booster, feature)[:1]:
            rows[0, feature] = cut
    rows[rng.random(rows.shape) < 0.3] = np.nan
    assert_sweeps_as_predicted(booster, rows, tuple(levels))


@settings(max_examples=25, deadline=None)
@given(trained())
def test_predict_equals_gtil_with_every_feature_missing_at_times(model: Any) -> None:
    booster, rng, n_features, seen = model
    rows = rng.normal(0, 1, (40, n_features)).astype(np.float32)
    for axis, levels in enumerate(seen, start=n_features - 3):
        rows[:, axis] = rng.choice(levels, len(rows))
    rows[rng.random(rows.shape) < 0.4] = np.nan
    expected = treelite.gtil.predict(treelite.frontend.from_xgboost(booster), rows, nthread=1)
    np.testing.assert_allclose(convert(booster).predict(rows), np.ravel(expected), rtol=1e-6, atol=TOLERANCE)


@pytest.mark.parametrize("alike", [False, True], ids=["unlike", "alike"])
def test_many_rows_sweep_as_each_of_them_alone(compiled: bool, alike: bool) -> None:
    """Rows that share most nodes of the trees go through them together, others apart."""
    rows, target = kernel_samples(2000, seed=3)
    ensemble = convert(train(rows, target, 30, max_depth=6))
    levels = tuple(axis[::4] for axis in XAVIER)
    if alike:
        rows = rows[:1] * np.random.default_rng(4).uniform(0.98, 1.02, rows.shape).astype(np.float32)
    together = ensemble.sweep(rows[:101], levels)
    for number in range(0, 101, 10):
        np.testing.assert_array_equal(together[number], ensemble.sweep(rows[number : number + 1], levels)[0])
    assert ensemble.sweep(rows[:0], levels).shape == (0, *map(len, levels))
    assert ensemble.predict(rows[:0]).shape == (0,)


@pytest.mark.parametrize("axes", [1, 2, 4, 6])
def test_an_ensemble_of_other_axes_is_kept_with_them(axes: int, compiled: bool, tmp_path: Path) -> None:
    rows, target = kernel_samples(500, seed=23)
    ensemble = convert(train(rows, target, 10, max_depth=5), axes)
    levels = [np.unique(column)[:3] for column in rows.T[-axes:]]
    ensemble.save(tmp_path / "model.trees")
    np.testing.assert_array_equal(
        TreeEnsemble.load(tmp_path / "model.trees").sweep(rows[:2], levels), ensemble.sweep(rows[:2], levels)
    )
    with pytest.raises(EnsembleError, match=f"3 axes of levels: expected {axes}"):
        ensemble.sweep(rows[:2], XAVIER)


@pytest.mark.parametrize("axes", [0, 7, 14])
def test_too_many_or_no_axes_are_refused(axes: int) -> None:
    rows, target = kernel_samples(100, seed=24)
    with pytest.raises(EnsembleError, match=r"frequency axes: expected 1 to 6"):
        convert(train(rows, target, 2), axes)


@pytest.mark.skipif(ensemble_module._core is None, reason="the C core is not built: that needs a C compiler")
def test_numpy_and_the_c_core_agree_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, target = kernel_samples(4000, seed=4)
    rows[::3, 2] = np.nan
    ensemble = convert(train(rows, target, 60, max_depth=9))
    fast, fast_points = ensemble.sweep(rows[:20], XAVIER), ensemble.predict(rows[:200])
    monkeypatch.setattr(ensemble_module, "_core", None)
    np.testing.assert_array_equal(fast, ensemble.sweep(rows[:20], XAVIER))
    np.testing.assert_array_equal(fast_points, ensemble.predict(rows[:200]))


def test_frequency_columns_of_the_rows_are_ignored(compiled: bool) -> None:
    rows, target = kernel_samples(500, seed=5)
    ensemble = convert(train(rows, target, 10, max_depth=5))
    blank = rows[:4].copy()
    blank[:, -3:] = [np.nan, np.inf, -7]
    np.testing.assert_array_equal(ensemble.sweep(rows[:4], XAVIER), ensemble.sweep(blank, XAVIER))


def test_frequency_columns_may_be_left_out(compiled: bool) -> None:
    rows, target = kernel_samples(300, seed=21)
    ensemble = convert(train(rows, target, 20))
    assert np.array_equal(ensemble.sweep(rows[:5, :-3], XAVIER), ensemble.sweep(rows[:5], XAVIER))


def test_dart_sweeps_with_the_weights_of_its_trees() -> None:
    rows, target = kernel_samples(1000, seed=6)
    booster = train(rows, target, 20, booster="dart", rate_drop=0.4, max_depth=5)
    assert_sweeps_as_predicted(booster, rows[:2], XAVIER)


def test_thresholds_at_infinity_send_only_missing_values_astray(compiled: bool) -> None:
    builder = treelite.model_builder
    for default_left in (False, True):
        for threshold, number_goes_left in ((-np.inf, False), (np.inf, True)):
            model = builder.ModelBuilder(
                threshold_type="float32",
                leaf_output_type="float32",
                metadata=builder.Metadata(4, "kRegressor", False, 1, [1], (1, 1)),
                tree_annotation=builder.TreeAnnotation(1, [0], [0]),
                postprocessor=builder.PostProcessorFunc("identity"),
                base_scores=[0.0],
            )
            model.start_tree()
            for key, fields in ((0, None), (1, 1.0), (2, 2.0)):
                model.start_node(key)
                if fields is None:
                    model.numerical_test(
                        0, threshold, default_left=default_left, opname="<", left_child_key=1, right_child_key=2
                    )
                else:
                    model.leaf(fields)
                model.end_node()
            model.end_tree()
            ensemble = TreeEnsemble.from_treelite(model.commit())
            rows = np.array([[-3e38, 0, 0, 0], [3.4e38, 0, 0, 0], [np.nan, 0, 0, 0]], np.float32)
            number, missing = (1.0 if number_goes_left else 2.0), (1.0 if default_left else 2.0)
            assert ensemble.predict(rows).tolist() == [number, number, missing]


def test_a_model_is_read_from_a_serialized_file(tmp_path: Path) -> None:
    rows, target = kernel_samples(500, seed=7)
    model = treelite.frontend.from_xgboost(train(rows, target, 10, max_depth=5))
    model.serialize(tmp_path / "model.treelite")
    np.testing.assert_array_equal(
        TreeEnsemble.from_treelite(tmp_path / "model.treelite").predict(rows), TreeEnsemble.from_treelite(model).predict(rows)
    )


@pytest.mark.parametrize(
    ("rows", "levels", "complaint"),
    [
        (np.zeros((2, 9)), XAVIER, r"features of shape \(2, 9\): expected \(n, 13\)"),
        (np.zeros(13), XAVIER, "features of shape"),
        (np.full((1, 13), np.inf), XAVIER, "feature 0 of row 0 is infinite"),
        (np.zeros((1, 13)), XAVIER[:2], "2 axes of levels: expected 3"),
        (np.zeros((1, 13)), (XAVIER[0], XAVIER[1][::-1], XAVIER[2]), "GPU levels"),
        (np.zeros((1, 13)), (XAVIER[0], XAVIER[1], np.empty(0)), "EMC levels"),
        (np.zeros((1, 13)), ([1.0, np.nan], XAVIER[1], XAVIER[2]), "CPU levels"),
    ],
)
def test_what_does_not_fit_the_ensemble_is_refused(rows: Any, levels: Any, complaint: str) -> None:
    samples, target = kernel_samples(100, seed=8)
    ensemble = convert(train(samples, target, 2))
    assert ensemble.n_features == 13
    with pytest.raises(EnsembleError, match=complaint):
        ensemble.sweep(rows, levels)


def test_other_programs_find_the_ensemble_in_the_package() -> None:
    kernels = importlib.import_module("jetdvfs.kernels")
    assert kernels.TreeEnsemble is TreeEnsemble


def test_without_the_c_core_one_warning_and_the_same_results(tmp_path: Path) -> None:
    rows, target = kernel_samples(500, seed=9)
    ensemble = convert(train(rows, target, 10, max_depth=5))
    ensemble.save(tmp_path / "model.trees")
    np.save(tmp_path / "rows.npy", rows[:3])
    np.savez(tmp_path / "levels.npz", *XAVIER)
    root = Path(jetdvfs.__file__).parent
    copy = tmp_path / "installed" / "jetdvfs"
    shutil.copytree(root / "kernels", copy / "kernels", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(root / "__init__.py", copy)
    script = """
        import sys, warnings
        import numpy as np
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            from jetdvfs.kernels.trees.ensemble import TreeEnsemble
            ensemble = TreeEnsemble.load("model.trees")
            levels = list(np.load("levels.npz").values())
            np.save("swept.npy", ensemble.sweep(np.load("rows.npy"), levels))
            ensemble.sweep(np.load("rows.npy"), levels)
        assert [w.category for w in caught] == [RuntimeWarning], caught
        assert "C core" in str(caught[0].message)
        assert not ensemble.compiled
        assert sys.modules["jetdvfs"].__file__.startswith(sys.path[0]), sys.modules["jetdvfs"].__file__
    """
    bootstrap = f"import sys; sys.path.insert(0, {str(copy.parent)!r}); "
    finders = "sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
    subprocess.run([sys.executable, "-c", bootstrap + finders + textwrap.dedent(script)], cwd=tmp_path, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "swept.npy"), ensemble.sweep(rows[:3], XAVIER))


def test_loading_and_sweeping_need_neither_treelite_nor_xgboost(tmp_path: Path) -> None:
    rows, target = kernel_samples(200, seed=10)
    convert(train(rows, target, 3)).save(tmp_path / "model.trees")
    script = (
        "import sys, numpy as np; from jetdvfs.kernels.trees.ensemble import TreeEnsemble; "
        "TreeEnsemble.load('model.trees').sweep(np.zeros((1, 13)), [[1], [2], [3]]); "
        "sys.exit(bool({'treelite', 'xgboost', 'torch', 'scipy'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
