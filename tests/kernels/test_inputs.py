# SPDX-License-Identifier: Apache-2.0
"""A network's inputs as people and programs write them."""

from __future__ import annotations

import json

import pytest

from jetdvfs.kernels.errors import ShapeError
from jetdvfs.kernels.inputs import input_spec, parse_input
from jetdvfs.kernels.network import DTYPE_BYTES, TensorSpec


def test_an_input_has_a_shape_and_a_type() -> None:
    assert parse_input("1x3x224x224") == TensorSpec((1, 3, 224, 224), "float32")
    assert parse_input(" 8x128:int64 ") == TensorSpec((8, 128), "int64")
    assert parse_input("scalar:int64") == TensorSpec((), "int64")
    assert input_spec((), "bool") == TensorSpec((), "bool")


@pytest.mark.parametrize(
    ("text", "dtype"), [("fp16", "float16"), ("bf16", "bfloat16"), ("fp32", "float32"), ("fp64", "float64"), ("int8", "int8")]
)
def test_an_element_type_has_a_short_name(text: str, dtype: str) -> None:
    assert parse_input(f"image=1x3x8x8:{text}") == TensorSpec((1, 3, 8, 8), dtype, "image")
    with pytest.raises(ShapeError, match=r"element type 'fp8'; valid: .*float32.*, fp16, bf16"):
        parse_input("1x3:fp8")


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_an_input_reads_back_as_it_is_printed(dtype: str) -> None:
    for shape in ((), (1,), (2, 3)):
        assert parse_input(str(TensorSpec(shape, dtype))) == TensorSpec(shape, dtype)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16000:int", TensorSpec((), "int", value=(16000,))),
        ("0.5:float", TensorSpec((), "float", value=(0.5,))),
        ("soft:str", TensorSpec((), "str", value=("soft",))),
        ("true", TensorSpec((), "flag", value=(True,))),
        ("none", TensorSpec((), "none")),
        ("sr=16000:int", TensorSpec((), "int", "sr", (16000,))),
        ("image=1x3x8x8:float16", TensorSpec((1, 3, 8, 8), "float16", "image")),
        ("2:int64=7,5", TensorSpec((2,), "int64", value=(7, 5))),
        ("sr=scalar:int64=16000", TensorSpec((), "int64", "sr", (16000,))),
        ("2:bool=true,0", TensorSpec((2,), "bool", value=(True, False))),
    ],
)
def test_an_input_may_be_no_tensor_or_have_a_name_or_numbers(text: str, expected: TensorSpec) -> None:
    assert parse_input(text) == expected
    assert parse_input(str(expected)) == expected
    assert TensorSpec.from_json(json.loads(json.dumps(expected.to_json()))) == expected


@pytest.mark.parametrize(
    "text", ["1.5:int", "x:float", "2:int64=7", "2:int64=7,x", "1e30:float", "100:int64=" + ",".join("1" * 100)]
)
def test_a_value_that_does_not_fit_its_type_is_refused(text: str) -> None:
    with pytest.raises(ShapeError) as caught:
        parse_input(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250


@pytest.mark.parametrize("text", ["", "1x", "x3", "1x-3", "axb", "1.5x2", "1 x 2", "scalarx2", "1x3\n", "\u0661x2", ":int64"])
def test_what_is_no_input_is_refused_with_the_form_of_one(text: str) -> None:
    if text.endswith("\n"):
        text = f"{text}x3"
    with pytest.raises(ShapeError, match="like 1x3x224x224:float32") as caught:
        parse_input(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["1x3:float31", "1x3x224x224:", "1:torch.float32", "scalar:"])
def test_an_element_type_nobody_knows_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(ShapeError, match=r"element type .*; .*valid: bool, .*float32.*, as in 1x3x224x224:float32"):
        parse_input(text)


def test_a_cache_may_be_empty() -> None:
    assert parse_input("1x2x0x32").shape == (1, 2, 0, 32)


@pytest.mark.parametrize("text", ["0", "0x2x3", "1x00"])
def test_a_size_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="a size of 0 leaves nothing to run"):
        parse_input(text)


@pytest.mark.parametrize("text", ["x".join("1" * 17), str(1 << 31), "9" * 10_000])
def test_an_input_that_no_board_could_hold_is_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="at most 16 sizes of 1 to 2147483647") as caught:
        parse_input(text)
    assert len(str(caught.value)) < 200
