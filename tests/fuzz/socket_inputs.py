# SPDX-License-Identifier: Apache-2.0
"""Conversations with the daemon, drawn from a seed: calls as they should be, and what becomes of them on the way.

A conversation is what one connection sends. Its calls are put together by the interface definitions, so that they get past the
first checks; then values, text, framing, descriptors and the connection's life are each spoilt now and then.
"""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from jetdvfs.daemon.wire import protocol
from jetdvfs.daemon.wire.interface import Interface, is_structure, members, plain
from jetdvfs.tests.fuzz.socket_files import KINDS, RARE_KINDS
from jetdvfs.tests.soak.wire import INTERFACES

_NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 255, 65536, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30),
    *(0.0, -0.0, 0.5, 1e-320, 1e-9, 1e9, 1.7976931348623157e308, 5e-324, 30.0, 12.5, 999.999),
)
_WORDS = (
    *("", "1", "2", "n1", "n2", "timeline", "sum", "min-energy", "min-edp", "latency_ms=50", "power_mw=15000", "energy_mj=400"),
    *(
        "latency_ms=1e-320",
        "latency_ms=nan",
        "latency_ms=",
        "speed=9",
        "float32",
        "int64",
        "\x00",
        "\x1b[31mred",
        "\u202e",
        "\ud800",
    ),
    *("x" * 256, "x" * 257, "é" * 128, "aten::index", "a\nb", "%s%n", "../../etc/passwd", "🦊" * 64, "none", "held"),
)
# What mostly stands where a name is used.
_USUAL: Mapping[str, tuple[Any, ...]] = {
    "lease": ("@lease",),
    "target": ("min-energy", "min-edp", "latency_ms=50", "power_mw=15000", "energy_mj=400"),
    "dtype": ("float32",),
    "reason": ("fuzzing",),
    "app": ("fuzzer",),
    "confidence": (0.9, 0.99),
    "fps": (5, 30.0),
}
# Clocks of an AGX Xavier, so that some configurations can be had.
_CLOCKS = {
    "cpu_khz": (115200, 729600, 1190400, 2265600),
    "gpu_hz": (114750000, 675750000, 1377000000),
    "emc_hz": (204000000, 1331200000, 1600000000, 2133000000),
}
_NESTED = 40


class Piece(Struct, frozen=True):
    """What one ``sendmsg`` sends: bytes, and this many descriptors of a kind; whether an answer is waited for then.

    In the bytes, ``@network`` and ``@lease`` stand for the last ones that the daemon named on this connection.
    """

    data: bytes
    kind: str = ""
    count: int = 0
    waits: bool = False


class Conversation(Struct, frozen=True):
    """What a connection does.

    Attributes:
        methods: the method of each answer to be expected, in order; empty for one that is none.
        half_closes: it closes its writing end when all is sent.
        reads: it reads its answers; else it goes at once.
        admin: it is root's socket.
    """

    pieces: tuple[Piece, ...]
    methods: tuple[str, ...]
    half_closes: bool
    reads: bool
    admin: bool

    def to_json(self) -> dict[str, Any]:
        pieces = [
            {"data": base64.b64encode(p.data).decode(), "kind": p.kind, "count": p.count, "waits": p.waits} for p in self.pieces
        ]
        return {**asdict(self), "pieces": pieces}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Conversation:
        pieces = tuple(Piece(base64.b64decode(p["data"]), p["kind"], p["count"], p["waits"]) for p in value["pieces"])
        return cls(pieces, tuple(value["methods"]), value["half_closes"], value["reads"], value["admin"])


def conversation(seed: int) -> Conversation:
    """The conversation of a seed."""
    draw = random.Random(f"jetdvfs socket {seed}")
    admin = draw.random() < 0.05
    interface = INTERFACES[protocol.ADMIN_INTERFACE if admin else protocol.INTERFACE]
    pieces, methods = list[Piece](), list[str]()
    for name in _course(draw, interface):
        message, method = _message(draw, interface, name)
        pieces += _pieces(draw, message, name == "LoadModel")
        if method is not None:
            methods.append(method)
        if pieces:
            pieces[-1] = replace(pieces[-1], waits=method is not None and draw.random() < 0.7)
    return Conversation(tuple(pieces), tuple(methods), draw.random() < 0.15, draw.random() < 0.9, admin)


def _course(draw: random.Random, interface: Interface) -> list[str]:
    """The methods to be called: any, or those that an application calls one after the other."""
    if "Hold" not in interface.decoders or draw.random() < 0.5:
        return draw.choices(tuple(interface.decoders), k=draw.choice((1, 1, 1, 2, 3, 8)))
    first = draw.choice(("LoadModel", "LoadNetwork", "Hold"))
    return [
        first,
        *draw.choices(("Predict", "Plan", "Hold", "Hold", "Report", "Unload", "Release", "Status"), k=draw.randint(1, 5)),
    ]


def _message(draw: random.Random, interface: Interface, method: str) -> tuple[bytes, str | None]:
    """A message with its NUL, or what is left of one; and its method where an answer may be expected."""
    call: dict[str, Any] = {"method": f"{interface.name}.{method}"}
    (parameters,) = (known.parameters for known in interface.methods if known.name == method)
    call["parameters"] = _value(draw, parameters, "")
    if draw.random() < 0.03:
        call = {"method": f"{protocol.SERVICE}.{draw.choice(('GetInfo', 'GetInterfaceDescription', 'GetNothing'))}"}
        call["parameters"] = {"interface": draw.choice((interface.name, "com.example", protocol.SERVICE))}
    for _ in range(draw.choice((0, 0, 0, 0, 1, 1, 2, 5))):
        if draw.random() < 0.85:
            call["parameters"] = _mutated(draw, call.get("parameters"))
        else:
            call = _changed(draw, call)
    text = json.dumps(call, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    for _ in range(draw.choice((0,) * 8 + (1, 3))):
        text = draw.choice(_SPOIL)(draw, text)
    ending = draw.choices((b"\0", b"", b"\0\0", b"\0\n\0", b"\n\0"), (94, 2, 2, 1, 1))[0]
    expected = call.get("oneway") is not True and ending.endswith(b"\0")
    return text + ending, method if expected else None


def _changed(draw: random.Random, call: dict[str, Any]) -> dict[str, Any]:
    """A call of which one member is taken out, put in or something else."""
    found = dict(call)
    how = draw.random()
    if how < 0.4:
        found[draw.choice(("oneway", "more", "upgrade", "id", "error"))] = draw.choice((True, False, None, 1, "x", {}))
    elif how < 0.6:
        found.pop(draw.choice(("method", "parameters")), None)
    else:
        name = draw.choice(sorted(found) or ["method"])
        found[name] = _other(draw, found.get(name))
    return found


def _value(draw: random.Random, declared: object, name: str) -> Any:
    """A value of a declared type that has a chance of meaning something."""
    kind = plain(declared)
    if is_structure(kind):
        given = {key: _value(draw, one, key) for key, one in members(kind).items() if _present(draw, one)}
        return _sensible(draw, given)
    if get_origin(kind) is Literal:
        return draw.choice(get_args(kind))
    if name == "shape" and draw.random() < 0.85:
        return [1, 3, 8, 8]
    if get_origin(kind) is list:
        return [_value(draw, get_args(kind)[0], name) for _ in range(draw.choice((0, 1, 1, 2, 4)))]
    if kind is Raw:
        return _network(draw)
    if name == "network" and draw.random() < 0.85:
        return "@network"
    if name in _CLOCKS:
        return draw.choice(_CLOCKS[name])
    if name in _USUAL and draw.random() < 0.85:
        return draw.choice(_USUAL[name])
    if kind is int:
        return draw.choice((1, 2, 3, 8, 224, draw.choice(_NUMBERS)))
    if kind is float:
        return draw.choice((0.9, 5.0, 12.5, 30.0, draw.choice(_NUMBERS)))
    return draw.random() < 0.5 if kind is bool else draw.choice(_WORDS)


def _present(draw: random.Random, kind: object) -> bool:
    return NoneType not in get_args(kind) or draw.random() < 0.5


def _sensible(draw: random.Random, members: dict[str, Any]) -> dict[str, Any]:
    """Members that exclude each other, mostly without one of them."""
    if "configuration" in members and draw.random() < 0.8:
        members.pop("target", None)
        members.pop("network", None) if "network" in members and isinstance(members["network"], str) else None
    return members


def _network(draw: random.Random) -> dict[str, Any]:
    shape = [draw.choice((1, 3, 8, 64)) for _ in range(draw.randint(1, 4))]
    relu = {"kind": "relu", "inputs": [shape], "output": shape, "dtype": "float32", "scope": "", "params": {}}
    launch = {
        **relu,
        "flops": draw.choice((1, 1000, draw.choice(_NUMBERS))),
        "bytes": draw.choice((4, 4096, draw.choice(_NUMBERS))),
    }
    return {"name": draw.choice(_WORDS), "launches": [launch] * draw.choice((0, 1, 1, 3, 200))}


def _mutated(draw: random.Random, value: Any) -> Any:
    """The value with one of its parts exchanged, taken out, doubled or put deeper."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        key = draw.choice(sorted(value))
        found = dict(value)
        how = draw.random()
        if how < 0.1:
            del found[key]
        elif how < 0.2:
            found[draw.choice((*_WORDS, "oneway", "more", "upgrade", "parameters"))] = draw.choice(
                (True, False, None, 1, "x", {})
            )
        else:
            found[key] = _mutated(draw, value[key])
        return found
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        how = draw.random()
        if how < 0.2:
            return value[:at] + value[at + 1 :]
        if how < 0.4:
            return value + [value[at]] * draw.choice((1, 10, 2000))
        return [*value[:at], _mutated(draw, value[at]), *value[at + 1 :]]
    return _other(draw, value)


def _other(draw: random.Random, value: Any) -> Any:
    how = draw.random()
    if how < 0.35:
        return draw.choice(_NUMBERS)
    if how < 0.65:
        return draw.choice(_WORDS)
    if how < 0.75:
        return draw.choice((None, True, False, [], {}, [[]], {"": {}}))
    if how < 0.85:
        for _ in range(draw.choice((1, 3, _NESTED))):
            value = [value] if draw.random() < 0.5 else {"a": value}
        return value
    if how < 0.9:
        return draw.choice(("x" * 70_000, [0] * 20_000, {str(number): 0 for number in range(3000)}))
    return [value, value]


def _flip(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text) or 1)
    return text[:at] + bytes([draw.randrange(256)]) + text[at + 1 :]


def _cut(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text) or 1)
    return text[:at] + text[at + draw.choice((1, 5, 50)) :]


def _put(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text) or 1)
    what = draw.choice(
        (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"\0", b"\\u0000", b"\\ud800", b"\xff", b" " * 999, b"[" * 3000)
    )
    return text[:at] + what + text[at:]


def _number(draw: random.Random, text: bytes) -> bytes:
    """Exchange some digit for a number that JSON's grammar allows and nobody expects."""
    digits = [at for at, byte in enumerate(text) if 48 <= byte <= 57]
    if not digits:
        return text
    at = draw.choice(digits)
    return text[:at] + draw.choice((b"1e400", b"-0", b"1E-999", b"9" * 5000, b"0.1e1", b"NaN")) + text[at + 1 :]


_SPOIL: tuple[Callable[[random.Random, bytes], bytes], ...] = (_flip, _cut, _put, _number)


def _pieces(draw: random.Random, data: bytes, wants_file: bool) -> list[Piece]:
    """A message in the pieces in which it is sent, one of them with descriptors where some are wanted, or now and then."""
    cuts = [draw.randrange(len(data) or 1) for _ in range(draw.choice((0, 0, 0, 0, 0, 1, 3)))]
    edges = [0, *sorted(cuts), len(data)]
    parts = [data[begin:end] for begin, end in itertools.pairwise(edges) if end > begin]
    carrying = draw.randrange(len(parts)) if parts and draw.random() < (0.95 if wants_file else 0.04) else -1
    kind = draw.choice(RARE_KINDS) if draw.random() < 0.004 else draw.choice(KINDS)
    count = draw.choices((1, 2, 3, 4, 5, 16, 64, 253), (80, 3, 2, 3, 3, 3, 3, 3))[0]
    return [Piece(part, kind, count) if at == carrying else Piece(part) for at, part in enumerate(parts)]
