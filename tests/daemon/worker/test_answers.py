# SPDX-License-Identifier: Apache-2.0
"""What children answer is believed in nothing: everything of another form, size or range is refused."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from jetdvfs.daemon.errors import InputError
from jetdvfs.daemon.worker import answers, packing
from jetdvfs.kernels.boundary import Boundary
from jetdvfs.kernels.errors import CostModelError, ModelError
from jetdvfs.kernels.network import Network, TensorSpec
from jetdvfs.kernels.surface import FIGURES, TERMS, Guess, Surface, Terms, UnmodelledKind
from jetdvfs.profiles.documents import DocumentError, convert
from jetdvfs.profiles.reference import reference_network
from jetdvfs.tests.support.profiles.small_bundle import BOARD

GRID = BOARD.grid
END = Boundary("torchvision::nms", "line 7", "boxes decide")
RELU = {"kind": "relu", "scope": "a", "inputs": [[8, 8]], "output": [8, 8], "dtype": "float32", "flops": 64, "bytes": 512}

SPREAD: dict[str, Any] = {
    name: 0.01 * (number + 1) for number, name in enumerate(f"{rate}_sigma" for rate in ("compute", "memory", "host", "all"))
} | {"idle_sigma": 0.1, "dynamic_sigma": 0.2}


def network(**members: Any) -> Network:
    return Network.from_json({"name": "small", "launches": [RELU], **members})


def surface() -> Surface:
    rng = np.random.default_rng(1)
    figures: dict[str, Any] = {name: rng.uniform(0.1, 1.0, GRID.shape) for name in FIGURES}
    times: dict[str, Any] = {name: rng.uniform(0.1, 1.0, GRID.shape).astype(np.float32) for name in TERMS}
    terms = Terms(**times, **SPREAD)
    guessed = (Guess("conv2d", "grouped 3x3 by 1x1: none measured", 4, 0.5),)
    unmodelled = (UnmodelledKind("add", 2, 0.25, 0.5),)
    return Surface(grid=GRID, method="sum", guessed=guessed, unmodelled=unmodelled, boundary=END, terms=terms, **figures)


def test_a_network_comes_back_as_it_was_without_names() -> None:
    whole = replace(reference_network("shufflenet_v2_x1_0"), boundary=END)
    info, payload = packing.packed_network(whole)
    assert packing.unpacked_network(payload) == replace(whole, name="")
    assert (info.launches, info.host_calls, info.kinds["conv2d"], info.digest) == (184, 62, 56, whole.digest)
    assert convert(json.loads(json.dumps(to_builtins(info))), answers.NetworkInfo, exact=True) == info
    inputs = (*(replace(spec, name="image") for spec in whole.inputs), TensorSpec((), "int", "size", (3,)))
    renamed, same = packing.packed_network(replace(whole, name="another", inputs=inputs))
    assert (renamed.name, same) == ("another", payload)


def test_what_cannot_be_kept_is_refused_by_name() -> None:
    for given_network, text in (
        (network(launches=[]), "network 'small' launches no kernel"),
        (network(name="x" * 257), "its name has 257 characters; at most 256"),
        (network(launches=[RELU] * 80_000), "its list of 80000 launches is longer than an answer may be"),
    ):
        with pytest.raises(InputError, match=text):
            packing.packed_network(given_network)
    rng = np.random.default_rng(1)
    noisy = [{**RELU, "scope": rng.bytes(400).hex()} for _ in range(6000)]
    with pytest.raises(InputError, match="bytes compressed, at most"):
        packing.packed_network(network(launches=noisy))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"nonsense",
        zlib.compress(b"{"),
        zlib.compress(b"[1]"),
        zlib.compress(b" " * (16 << 20)),
        zlib.compress(b"[" * 100_000),
    ],
)
def test_what_is_no_packed_network_is_refused(payload: bytes) -> None:
    with pytest.raises((InputError, ModelError)):
        packing.unpacked_network(payload)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("name", "x" * 257),
        ("name", 5),
        ("digest", "0" * 23),
        ("digest", "../../../../../../../../"),
        ("launches", 0),
        ("launches", -1),
        ("launches", 1.5),
        ("launches", True),
        ("host_calls", -1),
        ("kinds", {"relu": -1}),
        ("kinds", {"relu": "many"}),
        ("kinds", ["relu"]),
        ("flops", "1"),
        ("flops", float("inf")),
        ("boundary", {"operator": "", "place": "x", "reason": "x"}),
        ("boundary", {"operator": "x" * 1025, "place": "x", "reason": "x"}),
        ("boundary", "decomposed up to x"),
        ("more", 1),
    ],
)
def test_a_network_s_description_of_another_form_is_refused(member: str, value: Any) -> None:
    info, _ = packing.packed_network(network())
    with pytest.raises(DocumentError):
        convert({**to_builtins(info), member: value}, answers.NetworkInfo, exact=True)


def test_a_surface_comes_back_to_the_last_bit() -> None:
    made = surface()
    info, figures = packing.packed_surface(made)
    back = answers.unpacked_surface(json.loads(json.dumps(to_builtins(info))), figures, GRID, "sum")
    assert (back.grid, back.method, back.unmodelled, back.boundary) == (GRID, "sum", made.unmodelled, END)
    for name in FIGURES:
        np.testing.assert_array_equal(getattr(back, name), getattr(made, name))
    assert back.terms is not None and made.terms is not None and back.terms.host_sigma == made.terms.host_sigma
    for name in TERMS:
        np.testing.assert_array_equal(back.terms.arrays[name], made.terms.arrays[name])


@pytest.mark.parametrize("figure", [np.nan, np.inf, -np.inf, -1.0, 1e300, 5e-324])
@pytest.mark.parametrize("name", [*FIGURES, *TERMS])
def test_figures_that_are_none_are_refused(name: str, figure: float) -> None:
    info, figures = packing.packed_surface(surface())
    arrays = (*FIGURES, *TERMS)
    values = np.frombuffer(figures, "<f8").reshape(len(arrays), -1).copy()
    values[arrays.index(name), 17] = figure
    with pytest.raises(CostModelError, match=name):
        answers.unpacked_surface(to_builtins(info), values.tobytes(), GRID, "sum")


@pytest.mark.parametrize(
    "members",
    [
        {"method": "timeline"},
        {"method": 5},
        {"unmodelled": [{"kind": "x" * 2000, "launches": 1, "flops_share": 0, "bytes_share": 0}]},
        {"unmodelled": [{"kind": "add", "launches": 1, "flops_share": 2, "bytes_share": 0}]},
        {"unmodelled": [{"kind": "add", "launches": {}, "flops_share": 0, "bytes_share": 0}]},
        {"unmodelled": [{"kind": "add"}]},
        {"unmodelled": {"kind": "add"}},
        {"boundary": ["x"]},
        {"grid": {}},
    ],
)
def test_what_is_no_surface_is_refused(members: dict[str, Any]) -> None:
    info, figures = packing.packed_surface(surface())
    with pytest.raises(DocumentError):
        answers.unpacked_surface({**to_builtins(info), **members}, figures, GRID, "sum")


@pytest.mark.parametrize("size", [0, -8, 8, 1])
def test_figures_of_another_size_are_refused(size: int) -> None:
    info, figures = packing.packed_surface(surface())
    data = figures[:size] if size <= 0 else figures + bytes(size)
    with pytest.raises(CostModelError, match="bytes of figures; expected"):
        answers.unpacked_surface(to_builtins(info), data, GRID, "sum")


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=64),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["error", "message", "type", "confinement", "about", "x"]), inner, max_size=4)
            ),
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_a_header_is_of_the_form_or_refused(data: bytes) -> None:
    try:
        answer = answers.read_header(data)
    except DocumentError:
        return
    assert answer.error in ("", "input", "crash") and len(answer.message) <= 2000
    assert all(wall.isprintable() for wall in answer.confinement)


def test_a_surface_that_says_it_is_no_prediction_is_refused() -> None:
    info, figures = packing.packed_surface(surface())
    about = to_builtins(info)
    about["terms"]["unpredicted"] = True
    with pytest.raises(DocumentError, match="expected a prediction"):
        answers.unpacked_surface(about, figures, GRID, "sum")
