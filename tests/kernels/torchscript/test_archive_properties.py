# SPDX-License-Identifier: Apache-2.0
"""Whatever a file holds, reading it ends in a network or in one of the reader's own errors, within its budget."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetdvfs.tests.fuzz import archive as fuzz_archive
from jetdvfs.tests.fuzz import inputs as fuzz_inputs
from jetdvfs.tests.fuzz.torchscript_code import TOKENS
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.paths import FIXTURES

FEW = settings(max_examples=150, deadline=None, derandomize=True)

OPCODES = st.one_of(
    st.sampled_from([bytes([code]) for code in b"(012N]})tasueRbQ." + b"\x81\x85\x86\x87\x88\x89\x93\x94"]),
    st.binary(min_size=1, max_size=1).map(lambda index: b"q" + index),
    st.binary(min_size=1, max_size=1).map(lambda index: b"h" + index),
    st.integers(-(2**31), 2**31 - 1).map(lambda number: b"J" + struct.pack("<i", number)),
    st.text(max_size=8).map(handmade.text),
    st.sampled_from(
        [b"c__torch__\nM\n", b"ctorch\nFloatStorage\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ccollections\nOrderedDict\n"]
    ),
    st.just(handmade.tensor("0", 2, 3)),
)
STATEMENTS = st.lists(st.sampled_from([token.decode("latin-1") for token in TOKENS]), max_size=12)


@FEW
@given(st.integers(0, len(fuzz_inputs.LAYERS) - 1), st.binary(max_size=400))
def test_arbitrary_bytes_in_any_layer(layer: int, data: bytes) -> None:
    fuzz_archive.attempt(bytes([layer]) + data)


@FEW
@given(st.lists(OPCODES, max_size=40))
def test_arbitrary_pickle_opcodes(opcodes: list[bytes]) -> None:
    fuzz_archive.attempt(b"\x01\x80\x02" + b"".join(opcodes) + b".")


@FEW
@given(STATEMENTS)
def test_arbitrary_statements(lines: list[str]) -> None:
    fuzz_archive.attempt(b"\x03" + handmade.forward(*lines, "return x").encode("utf-8", "replace"))


@FEW
@pytest.mark.parametrize("layer", ["CONTAINER", "OPCODE", "PROGRAM", "GRAPH_CHOICES", "ONNX", "ENGINE", "LANGUAGE", "HOST"])
@given(choices=st.binary(min_size=20, max_size=300))
def test_arbitrary_structures(layer: str, choices: bytes) -> None:
    fuzz_archive.attempt(bytes([getattr(fuzz_inputs, layer)]) + choices)


@FEW
@given(st.integers(0, 2**32))
def test_mutations_of_real_files(seed: int) -> None:
    source = random.Random(seed)
    fuzz_archive.attempt(fuzz_inputs.mutate(source.choice(SEEDS), source))


SEEDS = fuzz_inputs.seeds()


@pytest.mark.parametrize("path", sorted((FIXTURES / "corpus").iterdir()), ids=lambda path: path.name)
def test_inputs_that_once_broke_the_reader(path: Path) -> None:
    fuzz_archive.attempt(path.read_bytes())
