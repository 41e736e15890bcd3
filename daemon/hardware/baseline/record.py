# SPDX-License-Identifier: Apache-2.0
"""A board's baseline and its form on disk: a line with the checksum, then JSON."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from ...errors import HardwareBusy
from ..clocks.domain import ClockDomain
from ..files import Files

BOOT_ID = "/proc/sys/kernel/random/boot_id"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VERSION = 2
T = TypeVar("T")


class DamagedRecord(Exception):
    """The stored data is damaged."""


class BaselineEntry(Struct, frozen=True):
    """Our values in one file; until ``confirmed`` by an effect of the last write, another value proves nothing."""

    values: tuple[str, ...]
    confirmed: bool


class BaselineRecord(Struct, frozen=True):
    boot_id: str
    domains: tuple[ClockDomain, ...]
    values: dict[str, str]
    journal: dict[str, BaselineEntry]
    machine: str = ""
    generation: int = 0
    lost: tuple[str, ...] = ()
    version: int = _VERSION
    taken: dict[str, str] = field(default_factory=dict)


class Marker(Struct, frozen=True):
    boot_id: str
    board: str
    domains: tuple[str, ...] = ()


def read_boot_id(files: Files) -> str:
    text, again = files.read_text(BOOT_ID), files.read_text(BOOT_ID)
    if text != again or not _UUID.fullmatch(text):
        raise HardwareBusy(f"{BOOT_ID}: holds {text[:40]!r}, expected the boot's id")
    return text


def encoded(value: BaselineRecord | Marker) -> bytes:
    text = msgspec.json.encode(value)
    return b"%s\n%s\n" % (_checksum(text), text)


def decoded(data: bytes, kind: type[T]) -> T:
    checksum, _, text = data.partition(b"\n")
    text = text.removesuffix(b"\n")
    if checksum != _checksum(text):
        raise DamagedRecord("its checksum does not fit")
    value = _parsed(text, kind)
    if isinstance(value, BaselineRecord):
        _check(value)
    return value


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _parsed(text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DamagedRecord(str(error)) from error


def _check(record: BaselineRecord) -> None:
    if record.version != _VERSION:
        raise DamagedRecord(f"version {record.version}, expected {_VERSION}: reboot, or restore with the release that wrote it")
    outside = [path for domain in record.domains for path in _paths(domain) if not path.startswith("/sys/") or ".." in path]
    if outside:
        raise DamagedRecord(f"{outside[0]} is not below /sys")


def _paths(domain: ClockDomain) -> Iterator[str]:
    yield from (*domain.paths, *domain.floors, *domain.ceilings)
    yield from (path for path in (domain.readback, domain.choices) if path)
