# SPDX-License-Identifier: Apache-2.0
"""Dependencies of the product and its extras, with their licences.

    python systemd/dependencies.py    write licences.txt, from the metadata of the packages installed here

A line has name, licence and the package's own dependencies. Packages that are not installed keep their lines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
LICENCES = HERE / "licences.txt"
#: The product's own requirements, next to its extras.
REQUIRED = ""
#: A longer `License` in metadata is a text.
LONGEST_NAME = 60


class Dependency(NamedTuple):
    """Licence of a package, and the names of its direct dependencies."""

    licence: str
    needs: tuple[str, ...]


def declared(cfg: Path = HERE.parent / "setup.cfg") -> dict[str, list[Requirement]]:
    """Direct dependencies by extra; extras in extras are left out."""
    from packaging.requirements import Requirement

    parser = ConfigParser()
    parser.read(cfg)
    lists = {REQUIRED: parser["options"]["install_requires"], **parser["options.extras_require"]}
    found = {extra: [Requirement(line) for line in text.split("\n") if line] for extra, text in lists.items()}
    return {extra: [one for one in wanted if one.name != "jetdvfs"] for extra, wanted in found.items()}


def closure(names: Iterable[str], dependencies: Mapping[str, Dependency]) -> set[str]:
    """These packages and all that they need, as far as they are known."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in dependencies and name not in found:
            found.add(name)
            waiting += dependencies[name].needs
    return found


def listed() -> dict[str, Dependency]:
    """The lines of licences.txt."""
    lines = [line.split("\t") for line in LICENCES.read_text(encoding="utf-8").splitlines()]
    return {name: Dependency(licence, tuple(needs.split())) for name, licence, needs in lines}


def installed() -> dict[str, Dependency]:
    """Direct and indirect dependencies that this environment has."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, Dependency] = {}
    waiting = [one for wanted in declared().values() for one in wanted]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        environments = [{"extra": extra} for extra in ("", *requirement.extras)]
        lines = [Requirement(line) for line in package.requires or ()]
        wanted = [one for one in lines if one.marker is None or any(map(one.marker.evaluate, environments))]
        needs = {canonicalize_name(one.name) for one in wanted}
        before = found.get(name, Dependency("", ()))
        if not needs <= set(before.needs) or name not in found:
            found[name] = Dependency(licence_of(name), tuple(sorted(needs | set(before.needs))))
            waiting += wanted
    return found


def licence_of(name: str) -> str:
    """Licence of an installed package, as its metadata name it."""
    metadata = distribution(name).metadata
    for key in ("License-Expression", "License"):
        if key in metadata and (len(text := metadata[key]) <= LONGEST_NAME or key != "License") and text != "UNKNOWN":
            return text
    classifiers = [line for line in metadata.get_all("Classifier", []) if line.startswith("License ::")]
    return " AND ".join(line.rpartition(" :: ")[2] for line in classifiers)


def write() -> None:
    """Write licences.txt, without the packages that no extra needs any more."""
    from packaging.utils import canonicalize_name

    known = {**(listed() if LICENCES.exists() else {}), **installed()}
    whole = {name: one._replace(needs=tuple(other for other in one.needs if other in known)) for name, one in known.items()}
    direct = {canonicalize_name(one.name) for wanted in declared().values() for one in wanted}
    kept = sorted(closure(direct, whole))
    lines = [f"{name}\t{whole[name].licence}\t{' '.join(whole[name].needs)}\n" for name in kept]
    LICENCES.write_text("".join(lines), encoding="utf-8")
    print(f"{LICENCES}: {len(kept)} packages; without a licence: {', '.join(direct - set(kept)) or 'none'}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    write()
