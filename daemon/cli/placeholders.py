# SPDX-License-Identifier: Apache-2.0
"""Placeholders for names of hosts, users, paths, addresses and serial numbers in text for other people."""

from __future__ import annotations

import ipaddress
import os
import pwd
import re
import socket
from collections.abc import Iterable, Iterator
from typing import Any

from ...profiles.board import list_boards
from ..hardware.files import Files

SYSTEM_PATHS = (
    "/dev", "/etc/jetdvfs", "/etc/nv_tegra_release", "/etc/nvpmodel", "/etc/nvpmodel.conf", "/proc", "/run/jetdvfs",
    "/run/systemd", "/sys", "/usr/bin", "/usr/lib", "/usr/sbin", "/var/lib/jetdvfs", "/var/lib/nvpmodel",
)  # fmt: skip
"""Folders whose paths are alike on every machine, and stay."""
_ALIKE = {"board", "daemon", "debian", "jetdvfs", "jetson", "localhost", "nobody", "nvidia", "root", "tegra", "ubuntu", "user"}
_TREE = "/sys/firmware/devicetree/base"
_SERIALS = (
    f"{_TREE}/serial-number", f"{_TREE}/chosen/ecid", f"{_TREE}/chosen/nvidia,*-mac", "/proc/device-tree/serial-number",
    "/etc/machine-id", "/sys/block/mmcblk*/device/cid", "/sys/block/*/device/serial", "/sys/class/dmi/id/*_serial",
    "/sys/class/net/*/address", "/sys/module/tegra_fuse/parameters/tegra_chip_uid",
)  # fmt: skip
_HEX = "[0-9a-fA-F]"
_PART = r"[^\s\"'`<>|,;:()\[\]{}]"  # of a path in a sentence
_KINDS = {
    "host": r"(?<=://)[^\s\"'<>]+",
    "serial": rf"\b{_HEX}{{2}}(?:[:-]{_HEX}{{2}}){{5}}\b|\b{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}\b"
    rf"|\b(?=\d*[a-fA-F]){_HEX}{{12}}\b",
    "address": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\b\d{1,3}(?:\.\d{1,3}){3}\b"
    rf"|(?<![\w:]){_HEX}{{0,4}}(?::{_HEX}{{0,4}}){{2,7}}(?![\w:])",
}
_LEAST = 4  # letters of a name that is replaced within words, too
_USERS = range(1000, 65534)


class Placeholders:
    """One placeholder for each name, the same wherever the name occurs.

    Args:
        root: file tree of the board; the names of this machine's own tree are replaced, too.
        paths: known paths, replaced whole even if relative or with spaces.
    """

    def __init__(self, root: str | os.PathLike[str], paths: Iterable[str | os.PathLike[str]] = ()) -> None:
        trees = [Files(tree, longest_s=1.0) for tree in dict.fromkeys(("/", os.path.realpath(root)))]
        self._roots = sorted({os.fspath(root), *(tree.root for tree in trees)} - {"/"}, key=len, reverse=True)
        self._found: dict[tuple[str, str], str] = {}
        self.counts = dict.fromkeys(("host", "user", "path", "address", "serial"), 0)
        names: dict[str, str] = {}
        alike = _ALIKE.union(*map(_words, list_boards()))
        for kind, found in (("serial", _serials), ("host", _hosts), ("user", _users)):
            names.update((name.lower(), kind) for tree in trees for name in found(tree) if set(_words(name)) - alike)
        self._kind_of = names
        inner = {**_KINDS, "name": _any(_bounded(name) for name in names)}
        known = {path for one in paths if re.search(r"[/.]\w|\w[/.]", path := os.fspath(one)) and not _is_alike(path)}
        paths_pattern = rf"(?<![\w<>/~.-])(?:{_any(map(re.escape, known))}|(?:~|\.{{1,2}})?/(?=[\w.@+~-])){_PART}*"
        self._names = _pattern(inner)
        self._all = _pattern({"host": inner.pop("host"), "path": paths_pattern, **inner})

    def value(self, value: Any) -> Any:
        """A JSON value with placeholders in its texts and names of members."""
        if isinstance(value, str):
            return self._all.sub(self._replaced, value)
        if isinstance(value, dict):
            return {self.value(name): self.value(inner) for name, inner in value.items()}
        return [*map(self.value, value)] if isinstance(value, list | tuple) else value

    def _replaced(self, match: re.Match[str]) -> str:
        kind, text = str(match.lastgroup), match[0]
        if kind == "path":
            return self._path(text.rstrip(".")) + "." * (len(text) - len(text.rstrip(".")))
        if kind == "address" and "@" not in text and not _is_address(text):
            return text
        return self._placeholder(self._kind_of.get(text.lower(), "user") if kind == "name" else kind, text.lower())

    def _path(self, text: str) -> str:
        for root in self._roots:
            if text.startswith(f"{root}/") and _is_alike(text[len(root) :]):
                return self._placeholder("path", root) + self._names.sub(self._replaced, text[len(root) :])
        return self._names.sub(self._replaced, text) if _is_alike(text) else self._placeholder("path", text)

    def _placeholder(self, kind: str, name: str) -> str:
        if (kind, name) not in self._found:
            self.counts[kind] += 1
            number = "" if kind in ("host", "serial") else f"-{self.counts[kind]}"
            self._found[kind, name] = f"<{kind}{number}>"
        return self._found[kind, name]


def _any(patterns: Iterable[str]) -> str:
    return "|".join(sorted(patterns, key=len, reverse=True)) or "(?!)"


def _pattern(kinds: dict[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in kinds.items()), re.IGNORECASE)


def _bounded(name: str) -> str:
    within = ("", "") if len(name) >= _LEAST else (r"(?<![^\W_])", r"(?![^\W_])")
    digits = ("(?<!\\d)" if name[0].isdigit() else "", "(?!\\d)" if name[-1].isdigit() else "")
    return f"{within[0]}{digits[0]}{re.escape(name)}{digits[1]}{within[1]}"


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_]+", name.lower())


def _is_alike(path: str) -> bool:
    path = os.path.normpath(path)
    return any(path == folder or path.startswith(f"{folder}/") for folder in SYSTEM_PATHS)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _serials(tree: Files) -> Iterator[str]:
    for path in (path for pattern in _SERIALS for path in tree.glob(pattern)):
        text = (tree.find_text(path) or "").strip()
        if len(text) >= _LEAST and set(text) - set("0:-"):
            yield from {text.replace(":", between) for between in (":", "-", " ", "")}


def _hosts(tree: Files) -> Iterator[str]:
    own = (socket.gethostname(), socket.gethostname().partition(".")[0])
    yield from filter(None, (*own, tree.find_text("/etc/hostname"), tree.find_text("/proc/sys/kernel/hostname")))


def _users(tree: Files) -> Iterator[str]:
    """Names of accounts and of the people behind them; of the present user also by the environment."""
    yield from filter(None, (os.environ.get(name) for name in ("SUDO_USER", "LOGNAME", "USER")))
    accounts = [(one.pw_name, one.pw_uid, one.pw_gecos) for one in pwd.getpwall()] if tree.root == "/" else []
    lines = (line.split(":") for line in (tree.find_text("/etc/passwd") or "").splitlines())
    accounts += [(line[0], int(line[2]), line[4]) for line in lines if len(line) == 7 and line[2].isdecimal()]
    for name, uid, person in accounts:
        if uid in _USERS or uid == os.getuid():
            yield from filter(None, (name, person.partition(",")[0]))
