# SPDX-License-Identifier: Apache-2.0
"""What an archive's pickle can hold beside modules, kind by kind."""

from __future__ import annotations

import struct

import pytest

from jetdvfs.kernels.network import Network
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.models.reading import read
from jetdvfs.tests.support.paths import DOCS

DOCUMENT = (DOCS / "models.md").read_text()


def attribute_of(pickled: bytes, *lines: str, more: dict[str, bytes] | None = None) -> Network:
    """A network with this pickled attribute ``a``, and lines of forward that use it."""
    data = handmade.module({"a": pickled})
    return read(handmade.archive(handmade.forward(*lines), data=data, more=more))


LISTS = {
    "intlist": (b"K\x02K\x03", "torch.relu(torch.view(x, self.a))"),
    "doublelist": (b"G" + struct.pack(">d", 2.0), "torch.mul(x, self.a[0])"),
    "boollist": (b"\x88\x89", "torch.sum(x, [0], self.a[1])"),
    "tensorlist": (handmade.tensor("0", 2, 3), "torch.add(x, self.a[0])"),
}


@pytest.mark.parametrize("kind", LISTS)
def test_typed_lists_are_lists(kind: str) -> None:
    items, use = LISTS[kind]
    pickled = f"ctorch.jit._pickle\nbuild_{kind}\n](".encode() + items + b"e\x85R"
    assert len(attribute_of(pickled, f"return {use}").launches) == 1


def test_a_type_tag_is_taken_off() -> None:
    pickled = (
        b"ctorch.jit._pickle\nrestore_type_tag\n}("
        + handmade.text("k")
        + b"K\x02u"
        + handmade.text("Dict[str, int]")
        + b"\x86R"
    )
    assert attribute_of(pickled, "return torch.mul(x, self.a['k'])").kinds == {"mul_scalar": 1}


@pytest.mark.parametrize(
    ("number", "value"),
    [(b"K\x03", 3), (b"M\x03\x00", 3), (b"J\x03\x00\x00\x00", 3), (b"\x8a\x01\x03", 3), (b"G" + struct.pack(">d", 3.0), 3)],
)
def test_numbers_of_every_width(number: bytes, value: int) -> None:
    network = attribute_of(number, "n = int(self.a)", "return torch.zeros([n], dtype=6)")
    assert network.launches[0].output == (value,)


STORAGES: tuple[str, ...] = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
STORAGES += ("ComplexFloat", "ComplexDouble", "QInt8", "QUInt8", "QInt32")


@pytest.mark.parametrize("storage", STORAGES)
def test_tensors_of_every_storage(storage: str) -> None:
    network = attribute_of(handmade.tensor("0", 2, 3, storage=f"{storage}Storage"), "return torch.relu(self.a)")
    assert network.launches[0].inputs == ((2, 3),)
    assert f"`{storage}`" in DOCUMENT


def test_a_parameter_is_its_tensor() -> None:
    pickled = b"ctorch._utils\n_rebuild_parameter\n(" + handmade.tensor("0", 3, 3) + b"\x88}tR"
    assert attribute_of(pickled, "return torch.matmul(x, self.a)").kinds == {"matmul": 1}


def test_a_quantised_tensor_has_its_shape() -> None:
    start = handmade.tensor("0", 2, 3, storage="QInt8Storage").replace(b"_rebuild_tensor_v2", b"_rebuild_qtensor")
    scheme = b"(ctorch\nper_tensor_affine\nG" + struct.pack(">d", 0.1) + b"K\x00t"
    pickled = start.replace(b"\x89ccollections", scheme + b"\x89ccollections")
    made = attribute_of(pickled, "return torch.mul(torch.dequantize(self.a), self.a)").launches
    assert [(launch.kind, launch.output) for launch in made] == [("mul", (2, 3))]


def test_a_device_is_read() -> None:
    pickled = b"ctorch\ndevice\n" + handmade.text("cpu") + b"\x85R"
    assert attribute_of(pickled, "return torch.relu(torch.to(x, self.a))").kinds == {"relu": 1}


def test_an_object_that_packed_itself_unpacks_itself() -> None:
    code = (
        handmade.forward("b = self.box", "return torch.mul(x, b.factor)")
        + "class Box:\n  factor : int\n  def __setstate__(self: __torch__.Box,\n    state: Tuple[int, int]) -> NoneType:\n"
        "    first, second, = state\n    self.factor = torch.add(first, second)\n    return None\n"
    )
    box = b"c__torch__\nBox\n)\x81K\x02K\x03\x86b"
    assert read(handmade.archive(code, data=handmade.module({"box": box}))).kinds == {"mul_scalar": 1}


def test_mangled_classes_of_one_name_are_told_apart() -> None:
    path = "code/__torch__/___torch_mangle_7.py"
    head = "class M(Module):\n  def forward(self: __torch__.___torch_mangle_7.M,\n    x: Tensor) -> Tensor:\n"
    inner = head + "    return torch.tanh(x)\n"
    code = handmade.forward("y = (self.child).forward(x, )", "return torch.relu(y)")
    data = handmade.module({"child": b"c__torch__.___torch_mangle_7\nM\n)\x81}b"})
    network = read(handmade.archive(code, data=data, more={path: inner.encode()}))
    assert [(launch.kind, launch.scope) for launch in network.launches] == [("tanh", "child"), ("relu", "")]
