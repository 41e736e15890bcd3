# SPDX-License-Identifier: Apache-2.0
"""Inputs for the fuzz target: how a string of bytes becomes a model file, and where to start from.

The first byte of an input names the layer that the rest of it stands for (:data:`LAYERS`). Some layers take the rest as it is
(the whole file, the module's pickle, the code); the others read it as a list of choices from which something well-formed
is put together, so that a fuzzer that flips bytes reaches what lies behind checksums, syntax and JSON.
"""

from __future__ import annotations

import json
import random
import struct
import zipfile
from collections.abc import Callable

from jetdvfs.tests.fuzz.choices import Choices
from jetdvfs.tests.fuzz.engines import engine
from jetdvfs.tests.fuzz.graphs import GRAPH as GRAPH_EXAMPLE
from jetdvfs.tests.fuzz.graphs import graph, onnx_file
from jetdvfs.tests.fuzz.host_numbers import host_numbers
from jetdvfs.tests.fuzz.language_models import language_model
from jetdvfs.tests.fuzz.torchscript_code import ATTRIBUTES, CODE, CONSTANT_CODE, TOKENS, pickled, program
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.models.handmade_engine import account, small
from jetdvfs.tests.support.paths import FIXTURES, REFERENCE

ARCHIVES = FIXTURES / "archives"

# Zip containers


def widened(data: bytearray, choices: Choices) -> bytearray:
    """The archive with 64-bit sizes and offsets for one of its entries, after other extra fields or before them."""
    at = data.find(b"PK\x01\x02")
    end = data.rfind(b"PK\x05\x06")
    if at < 0 or end < 0:
        return data
    compressed, size, name, extra = struct.unpack_from("<IIHH", data, at + 20)
    offset = struct.unpack_from("<I", data, at + 42)[0]
    numbers = [choices.of((number, *LIMITS)) if choices.below(4) == 0 else number for number in (size, compressed, offset)]
    field = struct.pack("<HHQQQ", 1, 24 - 8 * choices.below(3), *numbers)
    field = choices.of((field, b"FB\x04\x00ZZZZ" + field, field + b"FB\xff\x00"))
    struct.pack_into("<II", data, at + 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", data, at + 30, len(field))
    struct.pack_into("<I", data, at + 42, 0xFFFFFFFF)
    data[at + 46 + name : at + 46 + name + extra] = field
    grown = end + len(field) - extra
    struct.pack_into("<I", data, grown + 12, struct.unpack_from("<I", data, grown + 12)[0] + len(field) - extra)
    return data


LIMITS = (0, 1, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, (1 << 64) - 1)


def container(choices: Choices) -> bytes:
    """A zip archive around a good model, with any of its structure bent: sizes, offsets, order, 64-bit fields, folders."""
    entries = {
        "m/data.pkl": handmade.module(ATTRIBUTES),
        "m/code/__torch__.py": CODE.encode(),
        "m/constants.pkl": handmade.EMPTY_CONSTANTS,
        "m/version": b"3\n",
        "m/byteorder": b"little",
        "m/data/0": b"\x00" * 768,
    }
    names = list(entries)
    for _ in range(choices.below(3)):
        name = choices.of(names)
        edit = choices.below(6)
        if edit == 0:
            entries.pop(name, None)
        elif edit == 1:
            entries[name] = choices.piece(choices.byte())
        elif edit == 2:
            entries["m/" + choices.of((".data/version", "extra/a", "data/1", "code/__torch__/a.py", ".format_version"))] = (
                b"10\n"
            )
        elif edit == 3:
            entries = {name: entries.pop(name, b""), **entries}
        elif edit == 4:
            entries = {f"{choices.of(('', 'other/', 'm/m/', '/', '../', 'é/'))}{key}": value for key, value in entries.items()}
        else:
            entries["m/version"] = choices.of((b"0", b"1\n", b"2", b"10", b"11", b"", b"x", b"9" * 99, b"\xff"))
    method = choices.of((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    data = bytearray(handmade.zipped(entries, method))
    marks = [b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"]
    if choices.below(4) == 0:
        data = widened(data, choices)
    for _ in range(choices.below(4)):
        mark = choices.of(marks)
        places = [at for at in range(len(data)) if data[at : at + 4] == mark]
        if not places:
            continue
        at = choices.of(places) + 4 + 2 * choices.below(20)
        width = choices.of((2, 4, 8))
        number = (
            choices.of(LIMITS) if choices.below(2) else int.from_bytes(data[at : at + width], "little") + choices.byte() - 128
        )
        data[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
    if choices.below(4) == 0:
        end = data.rfind(b"PK\x05\x06")
        if 0 <= end <= len(data) - 22:
            count, size, offset = struct.unpack_from("<HII", data, end + 10)
            numbers = [
                choices.of((number, *LIMITS)) if choices.below(4) == 0 else number for number in (count, count, size, offset)
            ]
            wide = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, *numbers)
            locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, choices.of((end, 0, (1 << 64) - 1)), 1)
            short = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
            data[end:] = wide + locator + short
    if choices.below(8) == 0:
        data += choices.piece(choices.byte())
    return bytes(data)


# Layers


def _exported(content: bytes) -> bytes:
    return handmade.zipped({"m/archive_format": b"pt2", "m/models/model.json": content})


#: What the rest of an input stands for, by its first byte.
LAYERS: tuple[Callable[[bytes], bytes], ...] = (
    lambda content: content,
    lambda content: handmade.archive(CODE, data=content),
    lambda content: handmade.archive(CONSTANT_CODE, constants=content),
    lambda content: handmade.zipped({"m/data.pkl": handmade.PLAIN_MODULE, "m/code/__torch__.py": content}),
    _exported,
    lambda content: container(Choices(content)),
    lambda content: handmade.archive(CONSTANT_CODE, data=pickled(Choices(content)), constants=pickled(Choices(content[::-1]))),
    lambda content: handmade.archive(program(Choices(content)), data=handmade.module(ATTRIBUTES), more={"data/0": bytes(768)}),
    lambda content: _exported(graph(Choices(content))),
    lambda content: onnx_file(Choices(content)),
    lambda content: engine(Choices(content)),
    lambda content: language_model(Choices(content)),
    lambda content: host_numbers(Choices(content)),
)
WHOLE, PICKLE, CONSTANTS, SOURCE, GRAPH_TEXT, CONTAINER, OPCODE, PROGRAM, GRAPH_CHOICES, ONNX, ENGINE, LANGUAGE, HOST = range(
    len(LAYERS)
)


def model_file(data: bytes) -> bytes:
    """The model file that an input stands for."""
    return LAYERS[data[0] % len(LAYERS)](data[1:]) if data else b""


def seeds() -> list[bytes]:
    """Well-formed inputs for every layer."""
    whole = handmade.archive(CODE, data=handmade.module({"w": handmade.tensor("0", 2, 3)}))
    made = [(WHOLE, whole), (PICKLE, handmade.PLAIN_MODULE), (CONSTANTS, handmade.EMPTY_CONSTANTS), (SOURCE, CODE.encode())]
    made.append((PICKLE, handmade.module({"a": handmade.tensor("0", 8, 3, 3, 3), "b": b"]", "c": b"}"})))
    made.append((CONSTANTS, b"\x80\x02(" + handmade.tensor("0") + handmade.tensor("0", 1, 3, 1, 1) + b"K\x02t."))
    made += [(WHOLE, start + bytes(64)) for start in (b"GGUF", b"ftrt", bytes(4) + b"TFL3", bytes(4) + b"ORTM", b"\x7fELF")]
    made.append((WHOLE, (2).to_bytes(8, "little") + b"{}"))  # safetensors
    made.append((GRAPH_TEXT, json.dumps(GRAPH_EXAMPLE).encode()))
    made += [(WHOLE, onnx_file(Choices(random.Random(seed).randbytes(300)))) for seed in range(8)]
    made += [(WHOLE, host_numbers(Choices(random.Random(seed).randbytes(200)))) for seed in range(4)]
    made += [(WHOLE, account(small(), "x", "y"))]
    made += [(WHOLE, engine(Choices(random.Random(seed).randbytes(300)))) for seed in range(8)]
    made += [(WHOLE, language_model(Choices(random.Random(seed).randbytes(40)))) for seed in range(8)]
    made += [(SOURCE, program(Choices(random.Random(seed).randbytes(300))).encode()) for seed in range(4)]
    made += [(layer, random.Random(seed).randbytes(120)) for layer in range(CONTAINER, len(LAYERS)) for seed in range(8)]
    for path in [
        *(REFERENCE / f"{name}.pt" for name in ("squeezenet1_0", "shufflenet_v2_x1_0")),
        *sorted(ARCHIVES.glob("*.pt*")),
    ]:
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
            made += [(PICKLE, file.read(name)) for name in names if name.endswith("data.pkl")]
            made += [(CONSTANTS, file.read(name)) for name in names if name.endswith("constants.pkl")]
            made += [(SOURCE, file.read(name)) for name in names if name.endswith(".py") and "code" in name][:6]
            made += [(GRAPH_TEXT, file.read(name)) for name in names if name.endswith("models/model.json")]
        made.append((WHOLE, path.read_bytes()))
    return [bytes([layer]) + content for layer, content in made]


def mutate(data: bytes, source: random.Random) -> bytes:
    """A few random edits: bytes, runs, repeats, numbers at their limits, pieces of code."""
    edited = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 4, 16))):
        at = source.randrange(len(edited) + 1)
        kind = source.randrange(7)
        if kind == 0 and edited:
            edited[at % len(edited)] = source.randrange(256)
        elif kind == 1:
            del edited[at : at + source.choice((1, 4, 64, 1024))]
        elif kind == 2:
            edited[at:at] = source.randbytes(source.choice((1, 2, 8)))
        elif kind == 3:
            start = source.randrange(len(edited) + 1)
            edited[at:at] = edited[start : start + source.choice((1, 16, 256))] * source.choice((1, 2, 50))
        elif kind == 4:
            limit = source.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x00"))
            edited[at : at + 4] = limit
        elif kind == 5:
            line = b"\n" + b"  " * source.randrange(5) if source.random() < 0.8 else b""
            edited[at:at] = line + source.choice(TOKENS)
        else:
            lines = bytes(edited).split(b"\n")
            place = source.randrange(len(lines))
            lines[place:place] = [b"    " + source.choice(TOKENS) for _ in range(source.randrange(1, 6))]
            edited = bytearray(b"\n".join(lines))
    return bytes(edited[: 1 << 20])
