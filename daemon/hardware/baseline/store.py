# SPDX-License-Identifier: Apache-2.0
"""Storage of the baseline: two copies in root's folder, which lasts for one boot.

The copies are written one after the other, each atomically. A marker next to the folder shows that clocks were held if both are
lost, and a witness in the state directory, if the whole runtime directory was removed. Nothing is synced.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from ...errors import HardwareRefused
from .record import BaselineRecord, DamagedRecord, Marker, decoded, encoded

COPIES = ("baseline.0", "baseline.1")
_WITNESS = "held-in-boot"
_MOST_BYTES = 1 << 20
_MOST_SET_ASIDE = 8


class DamagedFile(NamedTuple):
    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class StoredBaseline(Struct, frozen=True):
    """Baseline on disk: the newest complete record of this boot, faulty and outdated files.

    ``lost`` says why the baseline of held clocks is unknown; ``marker`` is None unless complete and of this boot.
    """

    record: BaselineRecord | None = None
    lost: tuple[str, ...] = ()
    marker: Marker | None = None
    damaged: tuple[DamagedFile, ...] = ()
    outdated: tuple[Path, ...] = ()


class BaselineStore:
    def __init__(self, folder: Path, state_dir: Path | None = None) -> None:
        self.folder = folder
        self._copies = tuple(folder / name for name in COPIES)
        self._marker = folder.with_name(f"{folder.name}.held")
        # Neither is removed in this boot: if only the outer one is left, the folder was removed.
        self._inner_witness = folder.with_name(_WITNESS)
        self._outer_witness = state_dir / _WITNESS if state_dir else None

    @property
    def intact(self) -> bool:
        return all(os.path.lexists(path) for path in (*self._copies, self._marker))

    @property
    def marked(self) -> bool:
        return os.path.lexists(self._marker)

    @property
    def empty(self) -> bool:
        alone = self._outer_witness is not None and os.path.lexists(self._outer_witness)
        missed = alone and not os.path.lexists(self._inner_witness)
        return not missed and not any(os.path.lexists(path) for path in self._all)

    @property
    def _all(self) -> tuple[Path, ...]:
        # The marker goes first: without it, a remaining copy is harmless.
        return (self._marker, *self._copies)

    def read(self, boot_id: str) -> StoredBaseline:
        """Read all files without changing them; only root's own files are trusted."""
        records: list[BaselineRecord] = []
        damaged: list[DamagedFile] = []
        outdated: list[Path] = []
        with _noting(damaged, self.folder):
            _check_folder(self.folder)
        for path in () if damaged else self._copies:
            with _noting(damaged, path):
                data = _read(path)
                record = None if data is None else decoded(data, BaselineRecord)
                if record is not None and record.boot_id == boot_id:
                    records.append(record)
                elif record is not None:
                    outdated.append(path)
        lost = () if outdated else tuple(map(str, damaged))
        marker = None
        with _noting(damaged, self._marker):
            data = _read(self._marker)
            marker = None if data is None else decoded(data, Marker)
        if marker is not None and marker.boot_id != boot_id:
            marker = None
            outdated.append(self._marker)
        if not lost and (marker or any(one.path == self._marker for one in damaged)):
            lost = (f"{self.folder}: both copies are gone",)
        elif not (lost or records or outdated or marker) and self._was_removed(boot_id):
            lost = (f"{self.folder.parent}: was taken away, with all that it held",)
            marker = self._witnessed()
        record = max(records, key=lambda one: one.generation, default=None)
        return StoredBaseline(record, () if record else lost, marker, tuple(damaged), tuple(outdated))

    def _was_removed(self, boot_id: str) -> bool:
        """True if clocks were held in this boot and the folder has no trace of it."""
        if self._outer_witness is None or os.path.lexists(self._inner_witness):
            return False
        with contextlib.suppress(DamagedRecord):
            data = _read(self._outer_witness)
            return data is not None and boot_id.encode() in data
        return False

    def _witnessed(self) -> Marker | None:
        with contextlib.suppress(DamagedRecord):
            data = _read(self._outer_witness) if self._outer_witness else None
            return None if data is None else decoded(data, Marker)
        return None

    def _witness(self, marker: Marker) -> None:
        if self._outer_witness is None:
            return
        if os.path.lexists(self._inner_witness):
            known = self._witnessed()
            if known is None or known.boot_id != marker.boot_id or set(marker.domains) <= set(known.domains):
                return
        with contextlib.suppress(OSError):  # full or read-only disk: one sign less
            for path in (self._inner_witness, self._outer_witness):
                if path.parent.is_dir():
                    self._put(path, encoded(marker))

    def tidy(self, kept: StoredBaseline) -> tuple[str, ...]:
        for path in kept.outdated:
            with contextlib.suppress(OSError):
                path.unlink()
        self._tidy_folder()
        said = []
        for damage in kept.damaged:
            try:
                said.append(f"baseline {damage}; set aside as {_set_aside(damage.path).name}")
            except OSError as error:
                said.append(f"baseline {damage}; it cannot be set aside ({error.strerror})")
        return tuple(said)

    def mark(self, marker: Marker) -> None:
        try:
            self._put(self._marker, encoded(marker))
            self._witness(marker)
        except OSError as error:
            raise HardwareRefused(f"baseline {self._marker}: cannot be written ({error.strerror})") from error

    def save(self, record: BaselineRecord) -> str:
        """Write both copies; return the error of one of them. Raises HardwareRefused if both fail."""
        data = encoded(record)
        failed = []
        for path in self._copies:
            try:
                self._put(path, data)
            except OSError as error:
                failed.append(f"baseline {path}: cannot be written ({error.strerror})")
        if len(failed) == len(self._copies):
            raise HardwareRefused(failed[0])
        return "".join(failed)

    def remove(self, *, marker: bool = True) -> None:
        for path in self._all if marker else self._all[1:]:
            try:
                if os.path.lexists(path):
                    _out_of_the_way(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise HardwareRefused(f"baseline {path}: cannot be removed ({error.strerror})") from error
        self._tidy_folder()

    def _tidy_folder(self) -> None:
        for path in (self._marker, *self._copies):
            with contextlib.suppress(OSError):
                _partial(path).unlink()
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _put(self, path: Path, data: bytes) -> None:
        partial = _partial(path)
        try:
            _write_new(partial, data)
        except (FileNotFoundError, NotADirectoryError):
            self._make_folder()
            _write_new(partial, data)
        except FileExistsError:
            _out_of_the_way(partial)
            _write_new(partial, data)
        try:
            try:
                partial.replace(path)
            except IsADirectoryError:
                _set_aside(path)
                partial.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise

    def _make_folder(self) -> None:
        if os.path.lexists(self.folder) and not self.folder.is_dir():
            _set_aside(self.folder)
        self.folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.folder.chmod(0o700)


@contextlib.contextmanager
def _noting(damaged: list[DamagedFile], path: Path) -> Iterator[None]:
    try:
        yield
    except DamagedRecord as damage:
        damaged.append(DamagedFile(path, str(damage)))


def _check_folder(folder: Path) -> None:
    status = _status(folder)
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise DamagedRecord("is no folder")
    if status is not None:
        _check_owner(status)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedRecord(f"cannot be read ({error.strerror})") from error


def _check_owner(status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise DamagedRecord(f"belongs to user {status.st_uid}")


def _read(path: Path) -> bytes | None:
    status = _status(path)
    if status is None:
        return None
    if not stat.S_ISREG(status.st_mode):  # opening a device may have effects
        raise DamagedRecord("is no regular file")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DamagedRecord("is no regular file")
            _check_owner(status)
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise DamagedRecord("other users may write to it")
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DamagedRecord(f"cannot be read ({error.strerror})") from error
    if len(data) > _MOST_BYTES:
        raise DamagedRecord(f"has more than {_MOST_BYTES} bytes")
    return data


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def _out_of_the_way(path: Path) -> None:
    try:
        path.unlink()
    except IsADirectoryError:
        _set_aside(path)


def _set_aside(path: Path) -> Path:
    names = [path.with_name(f"{path.name}.damaged{number or ''}") for number in range(_MOST_SET_ASIDE)]
    aside = next((name for name in names if not os.path.lexists(name)), names[0])
    path.replace(aside)
    return aside
