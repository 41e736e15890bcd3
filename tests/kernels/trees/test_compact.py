# SPDX-License-Identifier: Apache-2.0
"""Models in few bytes: the same nodes as treelite's, damaged ones refused."""

from __future__ import annotations

import lzma
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jetdvfs.kernels.errors import EnsembleError
from jetdvfs.kernels.trees.compact import MAGIC
from jetdvfs.kernels.trees.ensemble import TreeEnsemble
from jetdvfs.profiles.lab.train.kernel_models import compacted
from jetdvfs.tests.support.profiles.boosted import kernel_samples, train, trained, treelite

HEADER = struct.Struct("<5Id")


def exchanged(booster: Any) -> Any:
    return treelite.frontend.from_xgboost(booster)


@pytest.fixture(scope="module")
def model() -> Any:
    return exchanged(train(*kernel_samples(3000, seed=1), 40, max_depth=6))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trained())
def test_what_is_read_again_is_the_same_ensemble(drawn: tuple[Any, Any, int, Any]) -> None:
    model = exchanged(drawn[0])
    assert TreeEnsemble.from_compact(compacted(model)).packed() == TreeEnsemble.from_treelite(model).packed()


def test_it_compresses_to_less_than_half_of_what_treelites_form_does(model: Any) -> None:
    assert 2 * len(lzma.compress(compacted(model))) < len(lzma.compress(model.serialize_bytes()))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_is_damaged_is_refused_or_still_a_sum_of_trees(model: Any, data: st.DataObject) -> None:
    good = bytearray(compacted(model))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(good[: data.draw(st.sampled_from([len(good), len(good) - 1, len(good) // 2, 20, 3, 0]))])
    try:
        ensemble = TreeEnsemble.from_compact(damaged)
    except EnsembleError as error:
        assert "\n" not in str(error)
    else:
        assert ensemble.predict(np.zeros((1, ensemble.n_features), np.float32)).shape == (1,)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_are_read_as_something_that_they_are_not(data: bytes) -> None:
    for text in (data, MAGIC + data, MAGIC + HEADER.pack(5, 1, 3, 1, 1, 0.0) + data):
        try:
            TreeEnsemble.from_compact(text)
        except EnsembleError as error:
            assert "compact tree ensemble" in str(error) or "node" in str(error) or "features" in str(error)


def test_a_split_that_is_its_own_child_is_refused() -> None:
    bits = np.packbits([True, False, True]).tobytes() + np.packbits([False]).tobytes()
    tables = struct.pack("<Hff", 0, 1.0, 2.0)
    with pytest.raises(EnsembleError, match="damaged"):
        TreeEnsemble.from_compact(MAGIC + HEADER.pack(5, 1, 3, 1, 1, 0.0) + bits + tables + struct.pack("<3H", 0, 0, 0))


def test_more_nodes_than_any_model_has_are_refused_before_memory_is_asked_for() -> None:
    with pytest.raises(EnsembleError, match="damaged"):
        TreeEnsemble.from_compact(MAGIC + HEADER.pack(5, 1, 2**32 - 1, 1, 1, 0.0) + bytes(64))
